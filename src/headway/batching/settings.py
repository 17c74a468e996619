"""How the calls of a function are batched (BatchSettings)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.core.lane import Budget, Lane
from headway.core.policies.calls import Calls
from headway.core.policies.chunk import Whole
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.settings import Settings
from headway.errors import PromptError, SettingError

MOST = 1_000_000  # that an item may cost
WIDE = 2**60  # cells of a block: each item has one block, however much it costs
BISECT, TOGETHER = "bisect", "together"


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Times are in seconds."""

    size: int = 32  # items of a call, at most; with processes, of each one's share
    window: float = 0.0  # that an item may wait for others; 0: a call starts whenever none runs
    windows: Mapping[str, float] = field(default_factory=dict)  # by lane
    # By lane, its budget: an item should have its result so long after it was submitted. None: no
    # budget. Or a Lane of your own, for instance with a priority. An item that is in no call
    # within its budget's `queue` is dropped (DeadlineError).
    lanes: Mapping[str, float | Lane | None] = field(default_factory=lambda: {"default": None})
    max_waiting: int = 1_000  # items of a lane; one more is refused. A Lane has a bound of its own
    cost: Callable[[Any], int] | None = None  # of an item: its tokens, say. None: each costs 1
    max_cost: int = 0  # of a call; an item alone may exceed it. 0: no limit
    # Items of a call cost at most the same of these, and are padded to it; an item beyond the last
    # is padded to the longest of its call.
    buckets: tuple[int, ...] = ()
    pad: Callable[[Any, int], Any] | None = None  # an item, padded to a cost
    # What becomes of a call that raises. bisect: it is repeated in halves until the items are
    # found that fail, so the function may see an item again. together: all of its items fail.
    on_error: str = BISECT
    processes: int = 0  # that share each call; 0: it runs in a thread of this process

    def __post_init__(self) -> None:
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
        """What an item costs. PromptError for what is no cost."""
        if self.cost is None:
            return 1
        cost = self.cost(item)
        if not isinstance(cost, int) or not 1 <= cost <= MOST:
            raise PromptError(f"an item costs {cost!r}, not a whole number from 1 to {MOST:,}")
        return cost

    def for_engine(self, *, streams: bool = False) -> Settings:
        """What the scheduler is made from. SettingError if the parts do not go together.

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
        blocks = 3 * join.size  # of two calls, and free ones: nobody is ever preempted
        return Settings(blocks, WIDE, lanes, policies, depth=1 + ahead)

    def _lane(self, name: str, given: float | Lane | None) -> Lane:
        if isinstance(given, Lane):
            if given.name != name:
                raise SettingError(f"lane {name!r} is a Lane of the name {given.name!r}")
            return given
        if given is None:
            return Lane(name, max_waiting=self.max_waiting)
        if not 0 < given < 1e9:
            raise SettingError(f"lane {name!r}: a budget of {given} seconds cannot be kept")
        return Lane(name, Budget(e2e=int(given * 1e9)), max_waiting=self.max_waiting)


def made_settings(given: dict[str, Any]) -> BatchSettings:
    """Settings of these names. SettingError for an unknown one."""
    if strange := set(given) - set(BatchSettings.__dataclass_fields__):
        known = ", ".join(BatchSettings.__dataclass_fields__)
        raise SettingError(f"there is no setting {sorted(strange)[0]!r}; there are {known}")
    return BatchSettings(**given)
