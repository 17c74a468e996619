"""What this machine's processor does in hardware, asked of the system and not of torch."""

from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# Of each kind of processor, by the system's names: with these, oneDNN has products in bfloat16.
BFLOAT16 = {"x86": {"avx512bw", "avx512vl", "avx512dq"}, "arm": {"bf16"}}


@cache
def has_fast_bfloat16() -> bool:
    """Whether products in bfloat16 are quick; where the system does not say, they are taken to be.

    Where they are not, torch multiplies number by number: on a Zen 3, 1 GFLOP/s where float32 has
    64 (squares of 1,024 on two threads), and a prompt of 512 tokens of the embedded model takes
    five times as long.
    """
    if not CPUINFO.is_file():
        return True
    lines = [line.partition(":") for line in CPUINFO.read_text().splitlines()]
    flags = {
        flag
        for key, _, said in lines
        if key.strip() in ("flags", "Features")
        for flag in said.split()
    }
    return not flags or any(needed <= flags for needed in BFLOAT16.values())
