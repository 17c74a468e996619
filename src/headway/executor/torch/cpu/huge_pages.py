"""Weights in huge pages: one page table entry for 2 MiB instead of 512 entries.

A decode step reads all weights once, in order. Every 4 KiB the processor looks up another page, in
a virtual machine through two tables. With huge pages it reads a tenth more per second.

Linux gives huge pages to a process that asks (madvise). Since 6.1 it also moves existing memory
into them (MADV_COLLAPSE). Asking before the weights are read would be simpler. But if the host
reclaims free memory from its virtual machines, each 2 MiB takes milliseconds, and the first request
would wait for it.
"""

import ctypes
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

Part = tuple[int, int]  # address, bytes

COLLAPSE = 25  # MADV_COLLAPSE
SIZE = 2 << 20  # bytes of a huge page on x86
LEAST = 64 << 20  # bytes: less than this stays mostly in a cache
DELAY = 2.0  # seconds: leaves time to load the tokenizer and to give the first answer
# Shares of the time spent moving: while steps run, which it slows down, and while nothing runs.
BUSY, IDLE = 0.03, 0.5
COMPUTING = 0.2  # share of a core: above it, the process counts as busy
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def collapse_later(parts: Iterable[Part]) -> threading.Timer | None:
    """Move this memory into huge pages in the background. Returns None if there is too little
    memory or huge pages are off. What the system refuses to move stays where it is."""
    blocks = blocks_of(parts)
    if not _allowed() or len(blocks) * SIZE < LEAST:
        return None
    timer = threading.Timer(DELAY, collapse, (blocks, BUSY, IDLE))
    timer.name, timer.daemon = "headway-huge-pages", True
    timer.start()
    return timer


def _allowed() -> bool:
    """Whether the system has huge pages and they are not switched off."""
    try:
        return "[never]" not in SWITCH.read_text()
    except OSError:
        return False


def blocks_of(parts: Iterable[Part]) -> list[int]:
    """The addresses, ascending, of the 2 MiB blocks that these parts fill at least half."""
    filled = Counter[int]()
    for address, size in parts:
        for block in range(address // SIZE, -(-(address + size) // SIZE)):
            begin, end = max(address, block * SIZE), min(address + size, (block + 1) * SIZE)
            filled[block] += end - begin
    return sorted(block * SIZE for block, size in filled.items() if 2 * size >= SIZE)


def collapse(blocks: Iterable[int], busy: float = 1.0, idle: float = 1.0) -> int:
    """Move blocks into huge pages one by one; return how many succeeded. busy, idle: the share of
    the time spent moving, while the process is busy and while it is idle; it sleeps in between."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    moved, share = 0, busy
    for block in blocks:
        began = time.monotonic()
        moved += madvise(block, SIZE, COLLAPSE) == 0
        rest = (time.monotonic() - began) * (1 / share - 1)
        used = time.process_time()
        time.sleep(rest)
        share = busy if time.process_time() - used > COMPUTING * rest else idle
    return moved
