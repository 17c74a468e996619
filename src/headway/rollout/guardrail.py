"""What must not become worse (Guardrail), and a request as a trial sees it (Seen)."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.errors import SettingError, did_you_mean

MS = 1_000_000
ANY_LANE = "*"
# Whether its client, and not the lane's budget, set the deadline that a request may miss: before it
# has started, and after.
NOT_OWN = False, False


@dataclass(eq=False, slots=True)
class Seen:
    """A request of the trial: its arrival, and its row once it has ended."""

    lane: str
    at: int  # nanoseconds
    tokens: int  # in its prompt
    number: int  # in order of arrival
    engine: int = 0  # 1: the second of two
    expected: float = 0.0  # VirtualQueue.arrive
    row: RequestRow | None = None  # None: it has not ended, or was refused at the door
    refused: bool = False
    waits_until: int = NEVER  # judged then, still without its first token; NEVER: it was not
    own: tuple[bool, bool] = NOT_OWN


Figure = Callable[[Seen], float | None]  # None: the request says nothing of the figure


def _first_token(seen: Seen) -> float | None:
    if seen.waits_until != NEVER:  # a lower bound: it still waits
        return log(max(MS, seen.waits_until - seen.at) / 1e9)
    if seen.row is None or seen.row.finish is Finish.REFUSED:
        return None
    spent = seen.row.ttft if seen.row.ttft != NEVER else seen.row.e2e
    return log(max(MS, spent) / 1e9)


def _queue(seen: Seen) -> float | None:
    if seen.waits_until != NEVER:
        return log(max(MS, seen.waits_until - seen.at) / 1e9)
    if seen.row is None or seen.row.finish is Finish.REFUSED:
        return None
    spent = seen.row.queue if seen.row.queue != NEVER else seen.row.e2e
    return log((spent + MS) / 1e9)


def _refusal(seen: Seen) -> float | None:
    return float(_is_refused(seen))


def _is_refused(seen: Seen) -> bool:
    return seen.refused or (seen.row is not None and seen.row.finish is Finish.REFUSED)


def _miss(seen: Seen) -> float | None:
    if seen.waits_until != NEVER or _is_refused(seen):
        return 1.0
    if seen.row is None or seen.row.finish is Finish.UNSATISFIABLE:  # no version helps
        return None
    return float(not seen.row.good)


def _abandonment(seen: Seen) -> float | None:
    return None if seen.row is None else float(seen.row.finish is Finish.CANCELLED)


def _cost(seen: Seen) -> float | None:
    return None if seen.row is None else float(seen.row.nanoseconds)


# Larger is worse for every figure. The weights divide the probability of a false alarm.
FIGURES: dict[str, tuple[Figure, int]] = {
    "queue_p95": (_queue, 4),
    "ttft_p95": (_first_token, 4),
    "attainment": (_miss, 1),
    "refusals": (_refusal, 1),
    "abandonment": (_abandonment, 1),
    "cost_per_good": (_cost, 1),
}
TAILS = frozenset({"queue_p95", "ttft_p95"})
RATIOS = TAILS | {"cost_per_good"}  # compared by logarithms; the other figures are shares


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A limit on how much worse a figure of a lane may become."""

    figure: str
    lane: str = ANY_LANE
    allowed: float = 0.0  # 0.05: 5 % worse or, for a share, 5 points

    def __post_init__(self) -> None:
        check_figure(self.figure)
        if not 0 <= self.allowed < 10:
            raise SettingError(f"guardrail {self.figure}: allowed is from 0 on, as 0.05 for 5 %")

    @property
    def shift(self) -> float:
        """`allowed` in the unit of differences."""
        return log(1 + self.allowed) if self.figure in RATIOS else self.allowed


def check_figure(name: str) -> None:
    """Raises SettingError if there is no such figure."""
    if name not in FIGURES:
        raise SettingError(f"there is no figure {name!r}{did_you_mean(name, FIGURES)}")


EVERYWHERE = tuple(Guardrail(name) for name in FIGURES)
