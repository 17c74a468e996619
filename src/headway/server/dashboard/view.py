"""View: all that the page shows at one time, as one caller may see it, in plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.figures.percentile import Quantile
from headway.server.config.durations import SECOND
from headway.server.ledger.rows.request_rows import Row

POINT = 30 * SECOND  # nanoseconds per point of a chart
POINTS = 30  # per chart: 15 minutes
WINDOW = 300 * SECOND  # nanoseconds that the table's figures cover


@dataclass(frozen=True, slots=True)
class Times:
    """The times of several requests, in nanoseconds."""

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

    batch: float | None  # rows per step, mean over the steps' time; None: no step ran
    running: int | None  # the largest after any step, like the next two; None: no step ran
    waiting: int | None
    blocks: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """A half minute of an engine and its lanes."""

    engine: EnginePoint
    lanes: Mapping[str, LanePoint]


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane's present state, and its figures in the window."""

    name: str
    budget: Budget
    waiting: int
    running: int
    oldest: int  # nanoseconds that the first in line has waited; NEVER: no request waits
    ended: int  # requests of the window
    good: int
    refused: int
    abandoned: int
    queue_p95: Quantile
    ttft_p95: Quantile
    points: tuple[LanePoint, ...]  # the oldest first; the last one is still open


@dataclass(frozen=True, slots=True)
class RunningRow:
    """An open request, as the front knows it."""

    id: str
    lane: str
    prompt: int  # tokens
    generated: int  # tokens so far; 0: it waits, or its prompt is being computed
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
    running: int  # in all lanes, including those that the caller may not see
    waiting: int
    blocks: int  # KV blocks in use
    num_blocks: int  # KV blocks in all; 0: it has none
    batch: float | None  # rows per step, mean over the steps' time; None: no step ran
    steps: int  # in the window
    points: tuple[EnginePoint, ...]
    rows: tuple[RunningRow, ...]  # the first few open requests of the caller's tenant
    mine: int  # how many open requests the tenant has
    others: int  # open requests that are not shown to the caller
    fault: str = ""  # why it failed last, while it is not ready; empty: it has not


def nothing_of(name: str, state: str, fault: str = "") -> ModelView:
    """The view of a function of which only the state is known."""
    return ModelView(name, state, (), True, 0, 0, 0, 0, 0, None, 0, (), (), 0, 0, fault)


@dataclass(frozen=True, slots=True)
class View:
    """Everything on the page."""

    now: int  # Unix nanoseconds
    until: int  # Unix nanoseconds at which the last point of all charts ends
    models: tuple[ModelView, ...]
    slow: Sequence[Row]  # rows of the ledger
    are_late: bool  # True: the slow ones missed their budgets; False: they are just the slowest
    remembered: int  # ended requests that these were chosen from
    key: str  # the name of the caller's key; empty: there are no keys
    signed_in: bool  # by the form, so the page offers to sign out
    explains: bool = True  # ended requests are remembered; False: the server has no books
    versions: Mapping[str, Any] | None = None  # the answer of /v1/versions; None: no answer


def waited_too_long(lane: LaneView) -> bool:
    """Whether the lane's first in line has already waited beyond its budget, and will miss it."""
    limit = min(lane.budget.ttft, lane.budget.queue, lane.budget.e2e)
    return NEVER > lane.oldest > limit
