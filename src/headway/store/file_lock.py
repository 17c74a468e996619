"""FileLock: lets one process at a time use a store's file."""

import os
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from headway.errors import SettingError


class FileLock:
    """An exclusive lock on a file beside the database. The system releases it when the process
    ends.

    Raises SettingError if another process holds it, or if the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SettingError(f"the store {path.stem}: {error.strerror}") from None
        try:
            flock(self._file, LOCK_EX | LOCK_NB)
        except OSError:
            os.close(self._file)
            raise SettingError(
                f"the store {path.stem} is in use by another server; servers share a store only in "
                "PostgreSQL"
            ) from None

    def release(self) -> None:
        """Release the lock. The file stays: if it were removed, two processes could each hold a
        lock."""
        os.close(self._file)
