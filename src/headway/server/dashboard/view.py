"""View: all that the page says at one moment, as one caller may see it. Plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.figures.percentile import Quantile
from headway.server.config.durations import SECOND
from headway.server.ledger.rows.request_rows import Row

POINT = 30 * SECOND  # nanoseconds that one point of a chart stands for
POINTS = 30  # of a chart: 15 minutes
WINDOW = 300 * SECOND  # nanoseconds that the table's figures are of


@dataclass(frozen=True, slots=True)
class Times:
    """Of several requests, in nanoseconds."""

    p50: Quantile = None
    p95: Quantile = None
    longest: int | None = None  # None: there were none


UNKNOWN = Times()


@dataclass(frozen=True, slots=True)
class LanePoint:
    """A lane's half minute."""

    ended: int = 0  # requests, refused ones included
    good: int = 0
    refused: int = 0
    abandoned: int = 0
    queue: Times = UNKNOWN
    ttft: Times = UNKNOWN


@dataclass(frozen=True, slots=True)
class EnginePoint:
    """An engine's half minute."""

    batch: float | None  # rows in a step, mean over the steps' time; None: no step ran
    running: int | None  # the most after a step; None: no step ran
    waiting: int | None
    blocks: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """A half minute of an engine and its lanes."""

    engine: EnginePoint
    lanes: Mapping[str, LanePoint]


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane now, and in the window."""

    name: str
    budget: Budget
    waiting: int
    running: int
    oldest: int  # nanoseconds that the first in line has waited; NEVER: nobody waits
    ended: int  # requests of the window
    good: int
    refused: int
    abandoned: int
    queue_p95: Quantile
    ttft_p95: Quantile
    points: tuple[LanePoint, ...]  # the oldest first; the last one is not over


@dataclass(frozen=True, slots=True)
class RunningRow:
    """An open request, as the front knows it."""

    id: str
    lane: str
    prompt: int  # tokens
    generated: int  # tokens that have come; 0: it waits, or its prompt is being computed
    most: int  # tokens that may be generated
    age: int  # nanoseconds since it arrived


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model, or one function."""

    name: str
    state: str
    lanes: tuple[LaneView, ...]
    is_function: bool  # its items are not listed, and it has no KV memory
    slots: int  # sequences that may run at once, as configured
    running: int  # of all lanes, those included that the caller may not see
    waiting: int
    blocks: int  # of KV in use, and in all; 0: it has none
    num_blocks: int
    batch: float | None  # rows in a step, mean over the window; None: no step ran
    steps: int  # of the window
    points: tuple[EnginePoint, ...]
    rows: tuple[RunningRow, ...]  # open requests of the caller's tenant, the first few
    mine: int  # how many there are
    others: int  # open requests that are not shown to the caller


def nothing_of(name: str, state: str) -> ModelView:
    """A function of which only its state is known."""
    return ModelView(name, state, (), True, 0, 0, 0, 0, 0, None, 0, (), (), 0, 0)


@dataclass(frozen=True, slots=True)
class View:
    """All of the page."""

    now: int  # Unix nanoseconds
    until: int  # Unix nanoseconds at which the last point of all charts ends
    models: tuple[ModelView, ...]
    slow: Sequence[Row]  # of the ledger
    are_late: bool  # the slow ones have missed their budgets; False: they are just the slowest
    remembered: int  # ended requests that these were chosen from
    key: str  # the name of the caller's key; empty: there are no keys
    signed_in: bool  # by the form, so that one can sign out
    explains: bool = True  # requests are remembered; False: of functions they are not
    versions: Mapping[str, Any] | None = None  # what /v1/versions says; None: not for this caller


def waited_too_long(lane: LaneView) -> bool:
    """Whether its first in line is past its budget already, and will count against it."""
    limit = min(lane.budget.ttft, lane.budget.queue, lane.budget.e2e)
    return NEVER > lane.oldest > limit
