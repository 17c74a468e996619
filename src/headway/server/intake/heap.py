"""What the allocator keeps of freed memory, given back to the system."""

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone


def give_back() -> None:
    """Takes up to a tenth of the time in which a text that left so much was encoded. The
    interpreter goes on meanwhile."""
    if _trim:
        _trim(0)
