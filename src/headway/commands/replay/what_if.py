"""The recorded requests under other settings: recorded texts, predicted times."""

from collections.abc import Iterable
from dataclasses import dataclass

from headway.commands.replay.rerun import Relived
from headway.core.batch import Batch, Output, Want
from headway.core.commands import Cancel, Command
from headway.core.cost.step_cost import StepCost
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.runs.run import Outcome, account
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox


@dataclass(frozen=True, slots=True)
class Priced:
    """A run that nobody has measured."""

    outcome: Outcome
    said: dict[str, tuple[int, ...]]  # tokens by request: as recorded, or the first of them
    ran_out: frozenset[str]  # who ended because the journal has no more of their answer


class Answers(TraceInbox):
    """Arrivals and cancels at their times; and what an answer itself brings about, at once.

    A stop string is seen in the text, so its Stop comes when so many tokens are there, however
    long they took this time.
    """

    def __init__(self, timed: Iterable[tuple[int, Command]], clock: VirtualClock) -> None:
        super().__init__(timed, clock)
        self.caused = list[Command]()

    def poll(self) -> list[Command]:
        due, self.caused = self.caused + super().poll(), []
        return due


class Reciter:
    """An executor that computes nothing: each request is given the tokens it had."""

    def __init__(self, relived: Relived, scheduler: Scheduler, inbox: Answers) -> None:
        self.relived, self.scheduler, self.inbox = relived, scheduler, inbox
        self.given = dict.fromkeys(relived.said, 0)  # tokens, by request
        self.ran_out = set[str]()
        self._outputs = dict[int, Output]()

    def submit(self, batch: Batch) -> int:
        running = self.scheduler.roster.running
        self._outputs[batch.step] = Output(
            tuple(
                self._next(running[row.sequence].request.id) if row.want & Want.LAST else ()
                for row in batch.rows
            )
        )
        return batch.step

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket)

    def _next(self, id: str) -> tuple[int, ...]:
        """One token; with the last that is known comes the command that ended it, if one did."""
        known, at = self.relived.said[id], self.given[id]
        said = known[at : at + 1]
        self.given[id] = at + len(said)
        if self.given[id] == len(known) and (end := self.relived.ends.get(id)):
            self.inbox.caused.append(end)
            if isinstance(end, Cancel):
                self.ran_out.add(id)
        return said


def what_if(relived: Relived, settings: Settings, cost: StepCost) -> Priced:
    """Every step takes what the cost model predicts, no more and no less: what differs between
    two such runs is the settings' doing, and not chance."""
    clock, scheduler = VirtualClock(), Scheduler(settings)
    inbox = Answers(relived.timed, clock)
    reciter = Reciter(relived, scheduler, inbox)
    priced = PricedExecutor(cost, clock, reciter)
    engine = VirtualEngine(scheduler, priced, inbox, clock, priced)
    while not scheduler.finished:
        engine.step()
    scheduler.check()
    return Priced(
        account(scheduler, relived.requests.values(), relived.zero),
        {id: relived.said[id][:given] for id, given in reciter.given.items()},
        frozenset(reciter.ran_out),
    )
