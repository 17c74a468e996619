"""What headway refuses to do, and why: one family, so that a door can catch it as one.

The message is a single line that names the cause and, where there is one, the remedy. It is
written for the person who asked: a command prints it and exits with 2, a server answers it.
"""


class HeadwayError(Exception):
    """The root of all that headway raises on purpose."""


class SettingError(HeadwayError):
    """A setting is unknown, out of its range, or contradicts another."""


class CheckpointError(HeadwayError):
    """A checkpoint is missing, incomplete, damaged, or not what its config says."""


class UnsupportedModelError(CheckpointError):
    """A sound checkpoint that asks for something this executor does not compute."""


class MemoryPlanError(HeadwayError):
    """What was asked for does not fit into the memory that is there."""
