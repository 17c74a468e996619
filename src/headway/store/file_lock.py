"""FileLock: one process at a time, however it ends."""

import os
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from headway.errors import SettingError


class FileLock:
    """An exclusive lock on a file beside the database. The system releases it with the process.

    Raises SettingError if another process has it, or if the file cannot be made.
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
        """Let others have it. The file stays: to remove it would give two processes a lock each."""
        os.close(self._file)
