"""One run (Run): one strategy on one workload, with the same engine loop as everywhere else."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from headway.core.lane import Lane
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Request
from headway.core.scheduler import Scheduler
from headway.engine import forgotten
from headway.journal.record import Record
from headway.runs.outcome import Outcome, outcome_of
from headway.runs.run_inbox import BoundedInbox, EnforcingInbox, with_deadlines
from headway.runs.testbed import Testbed

NONE = MappingProxyType[str, Hashable]({})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, after each step."""

    elapsed: int  # nanoseconds
    ended: int
    waiting: int
    running: int


class Run:
    """One strategy on one workload, served once. An interrupted run has an outcome too."""

    def __init__(
        self,
        testbed: Testbed,
        policies: Policies,
        lanes: Sequence[Lane],
        requests: Sequence[Request],
        limit: int = NEVER,
        enforce: bool = False,
        keys: Mapping[str, Hashable] = NONE,
    ) -> None:
        """limit: nanoseconds after the beginning at which unfinished requests are cancelled.

        enforce: refuse and drop requests by their lanes' budgets, and end requests that a later one
        supersedes, as `headway serve` does. keys: by request id; a later request supersedes an
        earlier one with an equal key.
        """
        self.testbed, self.requests, self.limit = testbed, requests, limit
        self.scheduler = Scheduler(testbed.settings(policies, lanes))
        self.enforce, self._keys = enforce, keys
        self.began = testbed.clock.now()

    def serve(
        self,
        watch: Callable[[Progress], object] = lambda progress: None,
        keep: Callable[[Record], object] = forgotten,
    ) -> Outcome:
        """Serve all requests.

        watch: called after every step; keep: called with each record of the journal.
        """
        for seen in self.going(keep):
            watch(seen)
        return self.outcome()

    def going(self, keep: Callable[[Record], object] = forgotten) -> Iterator[Progress]:
        """Serve step by step: run one step per iteration, and yield the progress after it."""
        testbed, clock = self.testbed, self.testbed.clock
        testbed.executor.hand_over()
        self.began = clock.now()
        timed = [replace(each, arrived=self.began + each.arrived) for each in self.requests]
        limit = min(NEVER, self.began + self.limit)
        inbox = BoundedInbox(timed, limit, clock)
        if self.enforce:
            lines = self.scheduler.roster.lines
            timed = [with_deadlines(each, lines[each.lane].lane.budget) for each in timed]
            inbox = EnforcingInbox(timed, limit, clock, self.scheduler, self._keys)
        engine = testbed.engine(self.scheduler, testbed.executor, inbox, clock)
        engine.keep = keep
        ledger = self.scheduler.ledger
        while not self.scheduler.finished:
            engine.step()
            load = engine.load
            waiting = sum([lane.waiting for lane in load.lanes.values()])
            elapsed = clock.now() - self.began
            yield Progress(elapsed, len(ledger.requests), waiting, load.running)

    def outcome(self) -> Outcome:
        """The rows of the run so far, with the counts of the offered requests."""
        return outcome_of(self.scheduler, self.requests, self.began)
