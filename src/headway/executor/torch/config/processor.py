"""What the processor can do, from the system and without importing torch."""

from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# Flags, as the system names them, with which oneDNN multiplies in bfloat16.
BFLOAT16 = {"x86": {"avx512bw", "avx512vl", "avx512dq"}, "arm": {"bf16"}}


@cache
def cpu_flags(file: Path = CPUINFO) -> frozenset[str]:
    """As the system names them; none if it does not say."""
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
    """Whether matrix products in bfloat16 are fast. If the system does not say: yes.

    Where they are not, torch multiplies number by number: on a Zen 3, 1 GFLOP/s where float32 has
    64 (1,024 x 1,024 matrices, two threads), and a prompt of 512 tokens takes the embedded model
    five times as long.
    """
    flags = cpu_flags(CPUINFO)
    return not flags or any(needed <= flags for needed in BFLOAT16.values())
