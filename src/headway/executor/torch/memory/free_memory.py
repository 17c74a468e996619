"""Free bytes of a device, of this host, and of the process's control groups."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import MemoryPlanError

if TYPE_CHECKING:  # importing torch takes half a second, and planning does not need it
    import torch

# Files of NVIDIA's and AMD's drivers. If one exists, torch may find a device that it calls cuda.
DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/dev/kfd"))


def free_on_default_device() -> tuple[str, int]:
    """The kind of device that models are loaded on by default, and its free bytes.

    torch, which is slow to import, is imported only if there is a GPU driver.
    """
    if any(path.exists() for path in DRIVERS):
        import torch

        if torch.cuda.is_available():
            return "cuda", free_memory(torch.device("cuda"))
    return "cpu", free_on_host()


def measure(device: str) -> tuple[str, int]:
    """A device's name in torch, and its free bytes. device: empty for the default one.

    This imports torch and takes memory on the device: call it in a process that then ends.
    """
    import torch

    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return str(chosen), free_memory(chosen)


def free_memory(device: "torch.device") -> int:
    """Free bytes on a device."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    return free_on_host()


def free_on_host(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """MemAvailable of the system, or less if a control group (a container) has less left.

    If the system has no MemAvailable: half of the physical memory. Raises MemoryPlanError if that
    is unknown too.
    """
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) << 10 for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        return _half_of_physical()
    return min([available, *_groups_free(proc, groups)])


def _half_of_physical() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        raise MemoryPlanError(
            "this system does not say how much memory it has: set num_blocks"
        ) from None


def _groups_free(proc: Path, groups: Path) -> list[int]:
    """Bytes left in each control group (version 1 or 2) that this process is in."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    rooms = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":  # version 2
            top, limit, usage = groups, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, limit = groups / "memory", "memory.limit_in_bytes"
            usage = "memory.usage_in_bytes"
        else:
            continue
        own = top / name.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(top) and (room := _group_free(folder, limit, usage)) >= 0:
                rooms.append(room)
    return rooms


def _group_free(folder: Path, limit: str, usage: str) -> int:
    """Bytes left in one group; -1 if it sets no limit. Inactive file cache counts as free."""
    try:
        most = (folder / limit).read_text().strip()
        used = int((folder / usage).read_text())
        stat = (folder / "memory.stat").read_text().split()
    except (OSError, ValueError):
        return -1
    if not most.isdigit():  # "max"
        return -1
    cached = dict(zip(stat[::2], stat[1::2], strict=False)).get("inactive_file", "0")
    return max(0, int(most) - used + int(cached))
