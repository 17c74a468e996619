"""What a diagnosis works from (Evidence): rows, lanes, and what else the source recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.cost.features import Features
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.policies.policies import Policies


@dataclass(frozen=True, slots=True)
class Minute:
    """What the device did in one minute, from a ledger."""

    number: int  # whole minutes since time 0 of the requests' clock
    steps: int
    rows: int  # of these steps, in all
    busy: int  # nanoseconds in steps
    idle: int  # nanoseconds between them

    @property
    def batch(self) -> float:
        """The mean number of rows per step."""
        return self.rows / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Rows of one run on one machine. Times are nanoseconds of one clock.

    Every source has the request rows and the lanes. A rule that needs more and does not get it
    answers NotKnown.
    """

    source: str  # where the rows are from, in words
    requests: tuple[RequestRow, ...]
    lanes: Mapping[str, Lane]
    steps: tuple[StepRow, ...] = ()  # in order of time; empty: the source has none
    features: tuple[Features, ...] = ()  # what each step computed; empty: estimated from the rows
    cost: StepCost = StepCost()  # of the machine as it should be; unknown: fitted to the steps
    policies: Policies | None = None  # None: not recorded
    num_blocks: int = 0  # KV blocks; 0: not recorded
    block_size: int = 16  # tokens of a KV block
    # By request: when the engine took it in. Before that the server reads and tokenizes it, and
    # compiles its grammar. Empty: not recorded.
    taken: Mapping[str, int] = field(default_factory=dict)
    with_grammar: frozenset[str] = frozenset()  # ids of requests that asked for a grammar
    # By request: nanoseconds for which the answer was ready and the client did not read it. Empty:
    # not recorded.
    client_waits: Mapping[str, int] = field(default_factory=dict)
    knows_grammars: bool = True  # False: which requests had a grammar is not recorded
    # By request: nanoseconds of each stage of its time (core/accounts). Empty: not recorded.
    stages: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    minutes: tuple[Minute, ...] = ()  # in order of time; empty: not recorded
    unfinished: int = 0  # requests without a row: the run ended first

    @property
    def slots(self) -> int:
        """Sequences that may run at once; if not recorded, the most that ran in any step."""
        known = self.policies.slots if self.policies else 0
        return known or max((row.running for row in self.steps), default=0)

    @property
    def batch(self) -> float:
        """The mean number of rows per step over all minutes; 0: there are no minutes."""
        return sum(m.rows for m in self.minutes) / max(1, sum(m.steps for m in self.minutes))

    def spent(self, id: str, *stages: str) -> int:
        """Nanoseconds that a request spent in these stages."""
        mine = self.stages.get(id, {})
        return sum(mine.get(name, 0) for name in stages)

    @property
    def begin(self) -> int:
        """When the first request arrived."""
        return min((row.arrived for row in self.requests), default=0)

    @property
    def end(self) -> int:
        """When the last request ended."""
        return max((row.finished for row in self.requests), default=0)
