"""A recorded run, lived again: the same steps and rows, and what of it another run can follow."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from headway import __version__
from headway.commands.replay.recording import Recording
from headway.core.batch import Batch, Output
from headway.core.commands import Add, Cancel, Command, Stop
from headway.core.cost.features import Features, batch_features
from headway.core.cost.gathering import UNPADDED, Gathering
from headway.core.request import Finish, Request
from headway.core.scheduler import Scheduler
from headway.engine import Engine
from headway.errors import JournalError
from headway.runs.run import Outcome, account
from headway.sim.replay import JournalInbox

BY_ITSELF = (Finish.STOP, Finish.LENGTH, Finish.COMPUTED)


@dataclass(frozen=True, slots=True)
class Relived:
    recording: Recording
    scheduler: Scheduler  # as it was after the last record
    requests: Mapping[str, Request]  # by id, in order of arrival
    timed: tuple[tuple[int, Command], ...]  # all but stops, when the engine could first see them
    said: Mapping[str, tuple[int, ...]]  # the tokens sampled for each, those past its end too
    ends: Mapping[str, Stop | Cancel]  # of answers that did not end by their tokens alone
    zero: int  # nanoseconds: the run's beginning
    steps: tuple[Features, ...]  # what each step computed

    @property
    def outcome(self) -> Outcome:
        return account(self.scheduler, self.requests.values(), self.zero)

    @property
    def broken(self) -> Mapping[Finish, int]:
        """Answers known only so far, by how they ended; NOT_YET: the journal ends before them."""
        finish = {row.id: row.finish for row in self.scheduler.ledger.requests}
        ends = self.ends.items()
        return Counter(
            finish.get(id, Finish.NOT_YET) for id, end in ends if isinstance(end, Cancel)
        )


class Listener:
    """Beside the journal's executor: what each step computed, and which tokens were for whom."""

    def __init__(self, inbox: JournalInbox, scheduler: Scheduler, gathering: Gathering) -> None:
        self.inbox, self.scheduler, self.gathering = inbox, scheduler, gathering
        self.said = dict[str, list[int]]()
        self.steps = list[Features]()
        self._ids = list[str]()  # of the rows of the step in flight

    def submit(self, batch: Batch) -> int:
        running = self.scheduler.roster.running
        self._ids = [running[row.sequence].request.id for row in batch.rows]
        self.steps.append(batch_features(batch, self.gathering))
        return self.inbox.submit(batch)

    def collect(self, ticket: int) -> Output:
        output = self.inbox.collect(ticket)
        for at, (id, tokens) in enumerate(zip(self._ids, output.tokens, strict=True)):
            if at not in output.errors:
                self.said[id] += tokens
        return output


def relive(recording: Recording, gathering: Gathering = UNPADDED) -> Relived:
    """gathering: that its steps are to be counted with. JournalError where the run parts from its
    journal, or its books do not balance."""
    try:
        return _relive(recording, gathering)
    except JournalError as error:
        wrote = recording.about.get("headway", __version__)
        other = f", and headway {wrote} wrote it: replay it with that one"
        raise JournalError(
            f"{recording.name}: {error}{other if wrote != __version__ else ''}"
        ) from error
    except AssertionError as error:  # the core asserts what no run of its own can break
        raise JournalError(
            f"{recording.name} is damaged: no run can have done this ({error or 'a broken rule'})"
        ) from error


def _relive(recording: Recording, gathering: Gathering) -> Relived:
    inbox, scheduler = JournalInbox(recording.records), Scheduler(recording.settings)
    listener = Listener(inbox, scheduler, gathering)
    engine = Engine(scheduler, listener, inbox, inbox)
    requests, stops = dict[str, Request](), dict[str, Stop]()
    timed, seen = list[tuple[int, Command]](), 0
    for record in recording.records:
        open_ = set(scheduler.roster.by_id)
        asleep = not open_  # whatever woke the engine, it took it in at once
        for command in record.commands:
            if isinstance(command, Stop):
                if command.id in open_:
                    stops[command.id] = command
                continue
            if isinstance(command, Add):
                request = command.request
                if request.id in requests:
                    raise JournalError(f"two of its requests are called {request.id!r}")
                requests[request.id], listener.said[request.id] = request, []
                open_.add(request.id)
            since = record.now if asleep else seen
            timed.append((_first_seen(command, record.now, since), command))
        seen = record.now
        engine.step()
    scheduler.check()
    return Relived(
        recording,
        scheduler,
        requests,
        _in_order(timed),
        {id: tuple(said) for id, said in listener.said.items()},
        _ends(scheduler, requests, stops),
        _zero(recording, requests),
        tuple(listener.steps),
    )


def _zero(recording: Recording, requests: Mapping[str, Request]) -> int:
    """The run's beginning, as near as the journal tells it."""
    first = min((each.arrived for each in requests.values()), default=recording.records[0].now)
    if recording.warm_up:
        return first - recording.first_arrival
    return min(recording.records[0].now, first)


def _first_seen(command: Command, now: int, since: int) -> int:
    """When it came into the inbox: after the poll before, which did not see it, and before this.

    Of a request its arrival is known, and used if it lies between; else, and of the others, the
    best that is known is the end of that time or, for requests, its beginning.
    """
    if isinstance(command, Add):
        return min(now, max(command.request.arrived, since))
    return now


def _in_order(timed: list[tuple[int, Command]]) -> tuple[tuple[int, Command], ...]:
    """As they were taken in: none before the one ahead of it."""
    latest, ordered = 0, list[tuple[int, Command]]()
    for time, command in timed:
        latest = max(latest, time)
        ordered.append((latest, command))
    return tuple(ordered)


def _ends(
    scheduler: Scheduler, requests: Mapping[str, Request], stops: Mapping[str, Stop]
) -> dict[str, Stop | Cancel]:
    """Those who saw a stop string in their text, and those whose text is known only so far."""
    ended = {row.id for row in scheduler.ledger.requests if row.finish in BY_ITSELF}
    cut = {id: Cancel(id) for id in requests if id not in ended}
    return {**cut, **{id: stop for id, stop in stops.items() if id in ended}}
