"""The checkpoints that ship with the package, and what any model is called."""

from os.path import abspath
from pathlib import Path

EMBEDDED = Path(__file__).parent / "headway-tiny"


def display_name(source: str | Path | None) -> str:
    """For reports and journals: a folder's name rather than where it lies on this machine, a hub
    id as it is. None: the embedded one."""
    if source is None:
        return f"{EMBEDDED.name} (embedded)"
    return Path(abspath(source)).name if Path(source).is_dir() else str(source)
