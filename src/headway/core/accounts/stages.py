"""Where the time of one request went, while the engine had it (RequestStages)."""

from typing import NamedTuple


class LaneWork(NamedTuple):
    """What the steps computed for one lane in some span of time."""

    lane: str
    rows: int
    tokens: int


class RequestStages(NamedTuple):
    """The time from when the engine took a request in to its end. The stages sum to it exactly.

    queue.RULE      it waited, and this rule kept it out of the steps (core.accounts.rules)
    prefill.own     its share of the steps that computed its prompt, and its first token
    prefill.others  the other rows' shares of these steps
    decode.own, decode.others   likewise, from its first token on
    deferred        it ran, and steps left it out: they were full, or it had time to spare
    host            it ran, and no step was computed: the next one was being decided
    preempted       it waited again, because its blocks were taken
    held            it had ended, and its group had not
    """

    id: str
    taken_in: int  # nanoseconds, when the engine took it in
    stages: tuple[tuple[str, int], ...]  # nanoseconds of each stage, in the order they began
    before: tuple[LaneWork, ...] = ()  # what ran between its arrival and its first step

    @property
    def total(self) -> int:
        """Nanoseconds of all stages."""
        return sum([nanoseconds for _, nanoseconds in self.stages])
