"""A what-if run: the recorded requests and tokens, other settings, predicted step times."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from headway.commands.replay.rerun import Rerun
from headway.core.batch import Batch, Output, Want
from headway.core.commands import Cancel, Command, Retune
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Executor
from headway.runs.outcome import Outcome, outcome_of
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from headway.sim.replay import JournalInbox


@dataclass(frozen=True, slots=True)
class WhatIfRun:
    """A simulated run; nothing in it was measured."""

    outcome: Outcome
    tokens: dict[str, tuple[int, ...]]  # by request: all recorded tokens, or only the first ones
    ran_out: frozenset[str]  # requests that used up the recorded part of an answer


class ReplayInbox(TraceInbox):
    """Arrivals and cancels at their recorded times, and the commands that an answer triggers.

    A stop string depends on the text, so its Stop comes after the same number of tokens, whenever
    this run samples them.
    """

    def __init__(self, commands: Iterable[tuple[int, Command]], clock: VirtualClock) -> None:
        super().__init__(commands, clock)
        self.follow_ups = list[Command]()

    def poll(self) -> list[Command]:
        due, self.follow_ups = self.follow_ups + super().poll(), []
        return due


class RecordedAnswers(Executor):
    """An executor that computes nothing and returns each request's recorded tokens."""

    traits = JournalInbox.traits

    def __init__(self, rerun: Rerun, scheduler: Scheduler, inbox: ReplayInbox) -> None:
        self.rerun, self.scheduler, self.inbox = rerun, scheduler, inbox
        self.given = dict.fromkeys(rerun.sampled, 0)  # tokens, by request
        self.ran_out = set[str]()
        self._outputs = dict[int, Output]()
        self._ends = dict[int, list[Command]]()  # commands that follow a step's tokens, by ticket

    def submit(self, batch: Batch) -> int:
        running = self.scheduler.roster.running
        ends = self._ends[batch.step] = []
        self._outputs[batch.step] = Output(
            tuple(
                self._next(running[row.sequence].request.id, ends) if row.want & Want.LAST else ()
                for row in batch.rows
            )
        )
        return batch.step

    def collect(self, ticket: int) -> Output:
        self.inbox.follow_ups += self._ends.pop(ticket)
        return self._outputs.pop(ticket)

    def _next(self, id: str, ends: list[Command]) -> tuple[int, ...]:
        """The next token. The last one brings the command that ended the answer, if any."""
        known, at = self.rerun.sampled[id], self.given[id]
        token = known[at : at + 1]
        self.given[id] = at + len(token)
        if self.given[id] == len(known) and (end := self.rerun.ends.get(id)):
            ends.append(end)
            if isinstance(end, Cancel):
                self.ran_out.add(id)
        return token


def what_if(rerun: Rerun, settings: Settings, cost: StepCost) -> WhatIfRun:
    """Simulate the recorded requests under these settings.

    Every step takes exactly the predicted time, so two such runs differ by their settings alone.
    A run changes its version wherever the recorded server did, so each request is judged by the
    budget in force when it came. What the settings change holds throughout the run.
    """
    clock, scheduler = VirtualClock(), Scheduler(settings)
    inbox = ReplayInbox(_commands(rerun, settings), clock)
    answers = RecordedAnswers(rerun, scheduler, inbox)
    priced = PricedExecutor(cost, clock, answers)
    engine = VirtualEngine(scheduler, priced, inbox, clock, priced)
    while not scheduler.finished:
        engine.step()
    scheduler.check()
    return WhatIfRun(
        outcome_of(scheduler, rerun.requests.values(), rerun.start),
        {id: rerun.sampled[id][:given] for id, given in answers.given.items()},
        frozenset(answers.ran_out),
    )


def _commands(rerun: Rerun, settings: Settings) -> Iterable[tuple[int, Command]]:
    """The recorded commands. A change of version keeps what these settings change."""
    recorded = rerun.recording.settings
    if settings == recorded:
        return rerun.commands
    changes = {
        new.name: _changes(old, new)
        for old, new in zip(recorded.lanes, settings.lanes, strict=True)
    }

    def kept(command: Command) -> Command:
        if not isinstance(command, Retune):
            return command
        lanes = tuple([replace(each, **changes[each.name]) for each in command.lanes])
        return replace(command, policies=settings.policies, lanes=lanes)

    return [(at, kept(command)) for at, command in rerun.commands]


def _changes(old: Lane, new: Lane) -> dict[str, Any]:
    """The fields in which the new lane differs, with the new values."""
    pairs = {each.name: (getattr(old, each.name), getattr(new, each.name)) for each in fields(new)}
    return {name: after for name, (before, after) in pairs.items() if after != before}
