"""Rerun a journal: repeat its steps, and collect what a what-if run needs."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.commands.replay.recording import Recording
from headway.core.batch import Batch, Output
from headway.core.commands import Add, Cancel, Command, Refuse, Stop
from headway.core.cost.features import Features, batch_features
from headway.core.cost.gathering import UNPADDED, Gathering
from headway.core.ledger import Ledger, RequestRow
from headway.core.request import Finish, Request
from headway.core.scheduler import Scheduler
from headway.engine import Engine, Executor
from headway.errors import JournalError
from headway.journal import origin
from headway.runs.outcome import Outcome, counted_from, outcome_of
from headway.sim.replay import JournalInbox

BY_ITSELF = (Finish.STOP, Finish.LENGTH, Finish.COMPUTED)


@dataclass(frozen=True, slots=True)
class Rerun:
    """A journal's run, repeated, with the tokens, commands and ends that a what-if run follows."""

    recording: Recording
    scheduler: Scheduler  # after the last record
    requests: Mapping[str, Request]  # by id, in order of arrival; refused ones included
    commands: tuple[tuple[int, Command], ...]  # (when the engine could first see it, it); no stops
    sampled: Mapping[str, tuple[int, ...]]  # tokens by request, with those sampled past its end
    ends: Mapping[str, Stop | Cancel]  # by request, where the tokens alone did not end the answer
    start: int  # nanoseconds, on the journal's clock
    steps: tuple[Features, ...]  # what each step that came back computed
    overlapped: tuple[bool, ...]  # whether it was decided while another step was computed

    @property
    def outcome(self) -> Outcome:
        return outcome_of(self.scheduler, self.requests.values(), self.start)

    @property
    def open(self) -> tuple[RequestRow, ...]:
        """Rows of the requests still open when the journal ended, in their state at that time."""
        roster, books = self.scheduler.roster, Ledger()
        now = self.recording.records[-1].now
        for each in roster.by_id.values():
            books.close(each, roster.judged_by(each), Finish.NOT_YET, now)
        return tuple([counted_from(self.start, row) for row in books.requests])

    @property
    def refused(self) -> int:
        """The number of requests that were refused on arrival."""
        return sum(isinstance(command, Refuse) for _, command in self.commands)

    @property
    def incomplete(self) -> Mapping[Finish, int]:
        """The number of partly known answers, by how they ended (NOT_YET: the journal ended)."""
        finish = {row.id: row.finish for row in self.scheduler.ledger.requests}
        ends = self.ends.items()
        return Counter(
            finish.get(id, Finish.NOT_YET) for id, end in ends if isinstance(end, Cancel)
        )


class StepObserver(Executor):
    """Wraps the journal's executor, and records each step's features and each request's tokens."""

    traits = JournalInbox.traits

    def __init__(self, inbox: JournalInbox, scheduler: Scheduler, gathering: Gathering) -> None:
        self.inbox, self.scheduler, self.gathering = inbox, scheduler, gathering
        self.sampled = dict[str, list[int]]()
        self.steps, self.overlapped = list[Features](), list[bool]()
        self._ids = dict[int, list[str]]()  # request ids of the rows in flight, by ticket

    def submit(self, batch: Batch) -> int:
        running = self.scheduler.roster.running
        ids = [running[row.sequence].request.id for row in batch.rows]
        self.steps.append(batch_features(batch, self.gathering))
        self.overlapped.append(bool(self._ids))
        ticket = self.inbox.submit(batch)
        self._ids[ticket] = ids
        return ticket

    def collect(self, ticket: int) -> Output:
        output = self.inbox.collect(ticket)
        rows = zip(self._ids.pop(ticket), output.tokens, strict=True)
        for at, (id, tokens) in enumerate(rows):
            if at not in output.errors:
                self.sampled[id] += tokens
        return output


def rerun_journal(recording: Recording, gathering: Gathering = UNPADDED) -> Rerun:
    """Repeat the recorded run, step by step.

    gathering: how padding is counted in the steps' features. Raises JournalError if the rerun
    differs from the journal, or its books do not balance.
    """
    who = origin.other(recording.about)
    try:
        return _rerun_journal(recording, gathering)
    except JournalError as error:
        raise JournalError(f"{recording.name}: {error}{who and '; ' + who}") from error
    except AssertionError as error:  # an invariant of the core that no real run breaks
        rule = error or "a broken rule"
        words = who and f": no run of this one can have done this ({rule}); {who}"
        words = words or f" is damaged: no run can have done this ({rule})"
        raise JournalError(f"{recording.name}{words}") from error


def _rerun_journal(recording: Recording, gathering: Gathering) -> Rerun:
    inbox, scheduler = JournalInbox(recording.records), Scheduler(recording.settings)
    observer = StepObserver(inbox, scheduler, gathering)
    engine = Engine(scheduler, observer, inbox, inbox)
    requests, stops = dict[str, Request](), dict[str, Stop]()
    commands, seen = list[tuple[int, Command]](), 0
    for record in recording.records:
        open_ = set(scheduler.roster.by_id)
        asleep = not open_  # a sleeping engine wakes for a command and takes it at once
        for command in record.commands:
            if isinstance(command, Stop):
                if command.id in open_:
                    stops[command.id] = command
                continue
            if isinstance(command, Add | Refuse):
                request = command.request
                if request.id in requests:
                    raise JournalError(f"two of its requests have the id {request.id!r}")
                requests[request.id] = request
                if isinstance(command, Add):
                    observer.sampled[request.id] = []
                    open_.add(request.id)
            since = record.now if asleep else seen
            commands.append((_first_seen(command, record.now, since), command))
        seen = record.now
        engine.step()
    scheduler.check()
    back = len(scheduler.ledger.steps)  # steps; the last one that was decided may be in flight
    return Rerun(
        recording,
        scheduler,
        requests,
        _in_order(commands),
        {id: tuple(tokens) for id, tokens in observer.sampled.items()},
        _ends(scheduler, observer.sampled, stops),
        _start(recording, requests),
        tuple(observer.steps[:back]),
        tuple(observer.overlapped[:back]),
    )


def _start(recording: Recording, requests: Mapping[str, Request]) -> int:
    """When the run began, as far as the journal tells."""
    first = min((each.arrived for each in requests.values()), default=recording.records[0].now)
    if recording.warm_up:
        return first - recording.first_arrival
    return min(recording.records[0].now, first)


def _first_seen(command: Command, now: int, since: int) -> int:
    """When the command came into the inbox: after the last poll (since) and by this one (now).

    A request counts from its arrival, clamped to this interval. The time of any other command is
    not recorded, so it counts as now.
    """
    if isinstance(command, Add | Refuse):
        return min(now, max(command.request.arrived, since))
    return now


def _in_order(commands: list[tuple[int, Command]]) -> tuple[tuple[int, Command], ...]:
    """The commands in the order the engine took them, with times that never decrease."""
    latest, ordered = 0, list[tuple[int, Command]]()
    for time, command in commands:
        latest = max(latest, time)
        ordered.append((latest, command))
    return tuple(ordered)


def _ends(
    scheduler: Scheduler, taken_in: Iterable[str], stops: Mapping[str, Stop]
) -> dict[str, Stop | Cancel]:
    """By request: its Stop if a stop string ended it, or a Cancel if only part of it is known."""
    ended = {row.id for row in scheduler.ledger.requests if row.finish in BY_ITSELF}
    cut = {id: Cancel(id) for id in taken_in if id not in ended}
    return {**cut, **{id: stop for id, stop in stops.items() if id in ended}}
