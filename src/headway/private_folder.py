"""private_folder: a folder in the user's cache that nobody else may write to."""

import os
import stat
from pathlib import Path


def private_folder(name: str) -> Path:
    """~/.cache/headway/NAME, or the same under XDG_CACHE_HOME, created with mode 0700 if missing.

    Raises OSError if it cannot be created, or if it is another user's or writable for others:
    what lies there is trusted.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "headway" / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(f"{folder} can be written by others: it must be yours alone (0700)")
    return folder
