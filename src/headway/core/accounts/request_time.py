"""The stages of one request, while they are summed (RequestTime)."""

from enum import StrEnum

from headway.core.accounts.stages import LaneWork

PREFILL = "prefill.own", "prefill.others"
DECODE = "decode.own", "decode.others"


class Stage(StrEnum):
    """Where a request is. The last three are reported under their values."""

    QUEUE = "queue"  # reported by rule
    RUN = "run"  # reported as prefill, decode, deferred and host
    RELEGATED = "queue.relegated"
    PREEMPTED = "preempted"
    HELD = "held"


class RequestTime:
    """Nanoseconds by stage, and the sums as they were when the present stage began."""

    __slots__ = (
        *("taken_in", "stage", "since", "spent", "waited", "works", "before"),
        *("left_out", "_own_stage", "_others_stage", "_own", "_stepped", "_left_out"),
    )

    def __init__(self, now: int) -> None:
        self.taken_in = self.since = now
        self.stage = Stage.QUEUE
        self.spent: dict[str, int] = {}
        self.waited: tuple[int, ...] = ()  # by rule, of its lane
        self.works: list[tuple[int, int]] = []  # rows and tokens of each lane when it came
        self.before: list[LaneWork] = []  # what ran before its first step
        self.left_out = 0  # nanoseconds of steps that left it out while it ran
        self._own_stage, self._others_stage = PREFILL
        self._own = self._stepped = self._left_out = 0

    def add(self, stage: str, nanoseconds: int) -> None:
        """Add nanoseconds to this stage."""
        self.spent[stage] = self.spent.get(stage, 0) + nanoseconds

    def begin_run(self, own: int, stepped: int, has_token: bool) -> None:
        """Begin a run. own: the request's shares of steps so far. stepped: nanoseconds of all steps
        so far."""
        self._own_stage, self._others_stage = DECODE if has_token else PREFILL
        self._own, self._stepped, self._left_out = own, stepped, self.left_out

    def end_run(self, passed: int, own: int, stepped: int) -> None:
        """End a run of `passed` nanoseconds: the request ran no longer, or had its first token."""
        own, stepped = own - self._own, stepped - self._stepped
        left_out = self.left_out - self._left_out
        self.add(self._own_stage, own)
        self.add(self._others_stage, stepped - own - left_out)
        if left_out:
            self.add("deferred", left_out)
        self.add("host", passed - stepped)
