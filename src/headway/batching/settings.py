"""How the calls of a function are batched (BatchSettings)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any

from headway.core.lane import RELEGATE, Budget, Lane
from headway.core.policies.calls import Calls
from headway.core.policies.chunk import Whole
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.settings import Settings
from headway.errors import PromptError, SettingError

MOST = 1_000_000  # the highest cost of an item, and the most items of a call
WIDE = 2**60  # cells of a block: each item has one block, however much it costs
BISECT, TOGETHER = "bisect", "together"


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Settings of a Batcher. Times are in seconds.

    size: most items in a call (to 1,000,000); with processes, in each one's share.
    window: how long an item may wait for others; 0: a call starts when none runs. windows: the
    same, by lane.
    lanes: each lane's budget: how long after its submission an item should have its result; None:
    no budget. A Lane object may be given instead, for example to set a priority. An item that is in
    no call within its budget's `queue` is dropped (DeadlineError).
    max_waiting: items per lane; one more is refused. A Lane object has its own bound.
    cost: of an item, such as its tokens: from 1 to 1,000,000, or it is refused; None: each costs 1.
    max_cost: of a call; an item alone may exceed it. 0: no limit.
    buckets: a call holds only items of one bucket, padded to the bucket's cost. Items that cost
    more than the last bucket are padded to the longest item of their call. pad: returns an item
    padded to this cost.
    on_error: what happens when a call raises. bisect: the call is repeated in halves until the
    failing items are found, so the function may see an item again. together: all of its items fail.
    processes: how many share each call; 0: it runs in a thread of this process.
    """

    size: int = 32
    window: float = 0.0
    windows: Mapping[str, float] = field(default_factory=dict)
    lanes: Mapping[str, float | Lane | None] = field(default_factory=lambda: {"default": None})
    max_waiting: int = 1_000
    cost: Callable[[Any], int] | None = None
    max_cost: int = 0
    buckets: tuple[int, ...] = ()
    pad: Callable[[Any, int], Any] | None = None
    on_error: str = BISECT
    processes: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "processes", "max_waiting"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        if self.size > MOST:
            raise SettingError(f"size is {MOST:,} at most, not {self.size:,}")
        if self.on_error not in (BISECT, TOGETHER):
            raise SettingError(f"on_error is {BISECT!r} or {TOGETHER!r}, not {self.on_error!r}")
        if self.processes < 0:
            raise SettingError(f"{self.processes} processes cannot call anything")
        if self.max_cost < 0:
            raise SettingError(f"max_cost must be 0 or more, not {self.max_cost}")
        if self.max_waiting < 1:
            raise SettingError(f"max_waiting must be 1 or more, not {self.max_waiting}")
        if (self.buckets or self.max_cost) and self.cost is None:
            raise SettingError("buckets and max_cost need `cost`: what does an item cost?")
        if self.pad is not None and not self.buckets:
            raise SettingError("`pad` needs buckets to pad to")
        if not self.lanes:
            raise SettingError("a batcher needs a lane")
        for name, seconds in {"window": self.window, **self.windows}.items():
            if not 0 <= seconds < 1e9:
                raise SettingError(f"{name}: {seconds} is no time that an item could wait")

    def cost_of(self, item: Any) -> int:
        """The cost of an item. PromptError if it is no whole number from 1 to MOST."""
        if self.cost is None:
            return 1
        given = self.cost(item)
        try:
            cost = int(index(given))  # of numpy's kinds, too: an array's size may be one
        except TypeError:
            cost = 0
        if not 1 <= cost <= MOST:
            raise PromptError(f"an item costs {given!r}, not a whole number from 1 to {MOST:,}")
        return cost

    def for_engine(self, *, streams: bool = False) -> Settings:
        """The scheduler's settings. SettingError if the parts do not fit together.

        streams: the function yields pieces.
        """
        ahead = not streams and not self.buckets
        lanes = tuple([self._lane(name, given) for name, given in self.lanes.items()])
        windows = {name: int(seconds * 1e9) for name, seconds in self.windows.items()}
        join = Calls(
            self.size * max(1, self.processes),
            int(self.window * 1e9),
            windows,
            self.max_cost or NEVER,
            tuple(self.buckets),
            ahead,
        )
        policies = Policies(join, chunk=Whole(), step_tokens=NEVER)
        blocks = 3 * join.size  # for two calls, and spare ones: no item is ever preempted
        return Settings(blocks, WIDE, lanes, policies, depth=1 + ahead)

    def _lane(self, name: str, given: float | Lane | None) -> Lane:
        if isinstance(given, Lane):
            if given.name != name:
                raise SettingError(f"lane {name!r} is a Lane of the name {given.name!r}")
            if given.late != RELEGATE:
                raise SettingError(
                    f"lane {name!r}: late={given.late!r} is for models; a function serves items "
                    "that it would make late behind the others"
                )
            return given
        if given is None:
            return Lane(name, max_waiting=self.max_waiting)
        if not 0 < given < 1e9:
            raise SettingError(f"lane {name!r}: a budget of {given} seconds cannot be kept")
        return Lane(name, Budget(e2e=int(given * 1e9)), max_waiting=self.max_waiting)


def _whole(name: str, value: Any) -> int:
    try:
        return int(index(value))
    except TypeError:
        raise SettingError(f"{name} must be a whole number, not {value!r}") from None


def made_settings(given: dict[str, Any]) -> BatchSettings:
    """Make settings from these fields. SettingError for an unknown field."""
    if strange := set(given) - set(BatchSettings.__dataclass_fields__):
        known = ", ".join(BatchSettings.__dataclass_fields__)
        raise SettingError(f"there is no setting {sorted(strange)[0]!r}; there are {known}")
    return BatchSettings(**given)
