"""The processor's features, from the system, without importing torch."""

from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# The system's names of the flags that oneDNN needs for products in bfloat16.
BFLOAT16 = {"x86": {"avx512bw", "avx512vl", "avx512dq"}, "arm": {"bf16"}}


@cache
def cpu_flags(file: Path = CPUINFO) -> frozenset[str]:
    """The processor's flags, by the system's names; empty if the system does not say."""
    if not file.is_file():
        return frozenset()
    lines = [line.partition(":") for line in file.read_text().splitlines()]
    return frozenset(
        flag
        for key, _, value in lines
        if key.strip() in ("flags", "Features")
        for flag in value.split()
    )


def has_fast_bfloat16() -> bool:
    """Whether matrix products in bfloat16 are fast. True if the system does not say.

    If they are not, torch multiplies number by number. On a Zen 3 that gives 1 GFLOP/s, compared
    with 64 in float32 (1,024 x 1,024 matrices, two threads), and a prompt of 512 tokens takes the
    embedded model five times as long.
    """
    flags = cpu_flags(CPUINFO)
    return not flags or any(needed <= flags for needed in BFLOAT16.values())
