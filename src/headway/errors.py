"""What headway says no with. Each message is one line that names the cause and the remedy.

HeadwayError
|-- SettingError           a setting that cannot be obeyed (also a ValueError)
|-- RefusedError           a request that was not accepted; may carry a time to come back
|-- JournalError           a journal that cannot be read, or that a run has parted from
|-- StuckError             a simulation in which nothing will ever happen again
`-- EngineDownError        the engine has ended; its cause is the exception's __cause__
"""


class HeadwayError(Exception):
    """Whatever headway tells its user; the command line prints it without a traceback."""


class SettingError(HeadwayError, ValueError):
    """A setting that cannot be obeyed."""


class RefusedError(HeadwayError):
    """Said at the door: why, and when to come back (nanoseconds of the engine's clock)."""

    def __init__(self, reason: str, retry_at: int) -> None:
        super().__init__(reason)
        self.retry_at = retry_at


class JournalError(HeadwayError):
    """A journal that cannot be read, or that a run has parted from; names the line or step."""


class StuckError(HeadwayError):
    """A simulation in which nothing will ever happen again: a dead end found for free."""


class EngineDownError(HeadwayError):
    """The engine has ended, by itself or by a fault, and takes no more."""
