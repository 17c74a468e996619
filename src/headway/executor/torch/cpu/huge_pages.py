"""Weights in huge pages: one entry of the page table for 2 MiB instead of 512.

A decode step reads all weights once, in one order. Every 4 KiB the processor must look up the next
page, in a virtual machine through two tables. From huge pages it reads a tenth more a second.

Linux gives them where a process asks for them (madvise), and since 6.1 it also moves what is there
already (MADV_COLLAPSE). To ask before weights are read would be simpler. But if a host takes free
memory back from its virtual machines, each 2 MiB takes milliseconds, while somebody waits for the
first answer.
"""

import ctypes
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

Part = tuple[int, int]  # address, bytes

COLLAPSE = 25  # MADV_COLLAPSE
SIZE = 2 << 20  # of a huge page on x86
LEAST = 64 << 20  # bytes: fewer are mostly in a cache
DELAY = 2.0  # seconds: the tokenizer is loaded first, and the first answer given
# Shares of the time in which it works: beside steps, which lack it, and while nothing is computed.
BUSY, IDLE = 0.03, 0.5
COMPUTING = 0.2  # of a core: a process that uses more computes
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def collapse_later(parts: Iterable[Part]) -> threading.Timer | None:
    """Move this memory into huge pages, in the background. None: there is too little of it, or no
    such call. Where it is refused, all stays as it is."""
    blocks = blocks_of(parts)
    if not _allowed() or len(blocks) * SIZE < LEAST:
        return None
    timer = threading.Timer(DELAY, collapse, (blocks, BUSY, IDLE))
    timer.name, timer.daemon = "headway-huge-pages", True
    timer.start()
    return timer


def _allowed() -> bool:
    """Whether there are huge pages, and they were not forbidden."""
    try:
        return "[never]" not in SWITCH.read_text()
    except OSError:
        return False


def blocks_of(parts: Iterable[Part]) -> list[int]:
    """The addresses of all 2 MiB of which these parts fill at least half, ascending."""
    filled = Counter[int]()
    for address, size in parts:
        for block in range(address // SIZE, -(-(address + size) // SIZE)):
            begin, end = max(address, block * SIZE), min(address + size, (block + 1) * SIZE)
            filled[block] += end - begin
    return sorted(block * SIZE for block, size in filled.items() if 2 * size >= SIZE)


def collapse(blocks: Iterable[int], busy: float = 1.0, idle: float = 1.0) -> int:
    """How many of them are in huge pages now. busy, idle: shares of the time in which it works,
    while the process computes something and while it does not. It rests in between."""
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
