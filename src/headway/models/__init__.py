"""The checkpoints that ship with the package, and how reports name a model."""

from os.path import abspath
from pathlib import Path

EMBEDDED = Path(__file__).parent / "headway-tiny"


def display_name(source: str | Path | None) -> str:
    """A model's name in reports and journals: of a folder its last part, so that no path of this
    machine is told; a hub id as it is. None: the embedded model."""
    if source is None or is_embedded(source):
        return f"{EMBEDDED.name} (embedded)"
    return Path(abspath(source)).name if Path(source).is_dir() else str(source)


def is_embedded(source: str | Path) -> bool:
    """Whether this is the embedded model's name, and no folder here has it."""
    return str(source) == EMBEDDED.name and not Path(source).exists()
