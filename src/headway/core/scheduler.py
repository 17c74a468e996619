"""Decide what the next step computes (Scheduler): handed `now` and commands, it returns values.

There is no prefill phase and no decode phase. A sequence has tokens known and tokens computed,
and a step computes some of the difference (the rule of vLLM's v1 scheduler). First a Plan chooses
the step and reserves its blocks, which may preempt sequences. Then rows are built from the plan.
"""

from collections.abc import Iterable

from headway.core.accounts.accounts import Accounts
from headway.core.accounts.no_accounts import NoAccounts
from headway.core.admission import refuse
from headway.core.batch import Batch, Event, Logprob, Output, Want, add_scores, finish_of
from headway.core.commands import Add, Cancel, Close, Command, Enough, Refuse, Retune, Stop
from headway.core.cost.estimates import Estimates
from headway.core.kv.block_table import cached, publish
from headway.core.kv.blocks import BlockPool
from headway.core.ledger import Ledger, step_row
from headway.core.load import Load
from headway.core.planning.in_flight import InFlight
from headway.core.planning.late import relegate
from headway.core.planning.newcomers import Newcomers
from headway.core.planning.plan import Plan
from headway.core.planning.resizing import Resizing
from headway.core.planning.retuning import Retuning
from headway.core.planning.rows import build_rows
from headway.core.policies.calls import Calls
from headway.core.policies.relegate import Keep
from headway.core.request import COMPUTED, NEVER, NOT_YET, Finish, Request
from headway.core.sequences.group import Group
from headway.core.sequences.roster import Roster
from headway.core.sequences.sequence import Sequence
from headway.core.settings import Settings
from headway.core.view import View

make = tuple.__new__  # of an Event: as in planning/rows.py
Tokens = tuple[int, ...]
Scored = tuple[Logprob, ...]


class Scheduler:
    """Decides steps and learns from their outputs. One per engine, for its thread alone."""

    def __init__(self, settings: Settings, secret: bytes = b"") -> None:
        self.settings = settings
        self.pool = BlockPool(settings.num_blocks, settings.block_size, secret)
        self.roster = Roster(settings, self.pool)
        self.ledger = Ledger()
        self.estimates = Estimates(settings.cost, isinstance(settings.policies.join, Calls))
        self._in_flight = InFlight(settings, self.roster, self.estimates)
        self.resizing = Resizing(settings, self.roster, self.estimates.sizes)
        self.group = Group()  # the latest; without slots if there was none
        self.prefilled = False  # the last step had prompts
        self.newcomers = Newcomers(self.estimates, settings)
        self._retuning = Retuning(self.roster, self._in_flight, self.resizing, self.newcomers)
        self._take(settings)
        self.accounts: Accounts | NoAccounts = NoAccounts()  # of each request's time
        self._closing = False  # Close came: no more requests are accepted
        self._enough = False  # Enough came, and no request since then
        self.steps = self.committed = 0  # scheduled so far; when the last one was committed

    # -- in

    def apply(self, commands: Iterable[Command], now: int) -> list[Event]:
        """Obey commands in order, end requests past their deadline, the earliest first, relegate
        requests that can no longer keep their budget, and return the events for callers."""
        events, roster = list[Event](), self.roster
        self.accounts.advance(now)
        self._retune()
        for command in commands:
            match command:
                case Add(request):
                    events += self._add(request, now)
                case Refuse(request):
                    self.ledger.refuse(request, roster.budget(request), self.settings.version, now)
                case Retune():
                    self._retuning.waits = command  # in place of an earlier one that still waits
                    self._retune()
                case Close():
                    self._closing = True
                case Enough():
                    self._enough = True
                case Cancel(id) | Stop(id) if id not in roster.by_id:
                    pass  # it has ended already, which is no error
                case Cancel(id):
                    events.append(self._end(roster.by_id[id], Finish.CANCELLED, now))
                case Stop(id, keep):  # pragma: no branch  (there are no other commands)
                    roster.by_id[id].truncate(keep)
                    events.append(self._end(roster.by_id[id], Finish.STOP, now))
        while due := roster.deadlines.missed(now):
            events.append(self._end(due.sequence, Finish.EXPIRED, now, due.words))
        if self._relegates:
            events += self._relegate(now)
        is_over = self.group.is_over(roster.running)
        return events + self._answer_group(now) if is_over else events

    def _retune(self) -> None:
        """Put the Retune that waits in force, if no group runs."""
        if self._retuning.waits and (settings := self._retuning.due(self.settings, self.group)):
            self.group = Group()
            self.accounts.moved(self.roster.take_moved())
            self._take(settings)

    def _take(self, settings: Settings) -> None:
        self.settings, policies = settings, settings.policies
        self._predicts, self._relegates = bool(policies.predicting), policies.relegate != Keep()

    def _add(self, request: Request, now: int) -> list[Event]:
        has_place = not self._closing and self.roster.has_place(request)
        if not has_place and (answer := refuse(request, self.load(now), now)):
            self.ledger.refuse(request, self.roster.budget(request), self.settings.version, now)
            return [Event(request.id, finish=Finish.REFUSED, error=answer.reason)]
        self._enough = False
        added = self.roster.add(request)
        self.newcomers.add(added)
        self.accounts.add(added)
        if self._predicts:
            added.hit = cached(self.pool, added)
        return []

    def _relegate(self, now: int) -> list[Event]:
        promised, view = self.newcomers.take_late(), self.view(now)
        told, refused = relegate(self.settings, self.roster, self.pool, view, promised)
        self.accounts.moved(self.roster.take_moved())
        return told + [self._end(each, Finish.REFUSED, now, words) for each, words in refused]

    # -- decide

    @property
    def may_look_ahead(self) -> bool:
        """Whether another step can be decided before those in flight are back."""
        return not self.group.slots and self._in_flight.may_look_ahead  # a group is a rectangle

    def view(self, now: int) -> View:
        """What policies see. Its `now` is when the step that they decide about can begin."""
        begins = self._in_flight.all_back(now, self.committed)
        roster, pool, held = self.roster, self.pool, self.pool.blocks_of_lane
        counts = pool.num_free, pool.num_blocks, pool.block_size, self.steps, pool.shared
        known = self.prefilled, roster.last_victim, roster.turns.since, self.estimates, *counts
        rest = self._closing or self._enough, *known, held, begins - now, self._in_flight.finishing
        return View(begins, tuple(roster.lines.values()), roster.running.values(), *rest)

    def schedule(self, now: int) -> Batch:
        """The next step, with its blocks reserved. If there is nothing to do yet, it has no rows
        and says when to ask again (`wake_at`)."""
        since = self.committed if self.roster.running else now  # else it slept: no request waited
        plan = Plan(self.settings.policies, self.pool, self.roster, self.view(now))
        plan.choose()
        self.accounts.decided(plan, now)
        if plan.joined and plan.start.exclusive:
            start, least = plan.start, 1 if self.estimates.calls else 2
            self.group = Group(len(plan.joined), start.buckets, start.together, least)
        self.newcomers.look_ahead(plan)
        if not plan.shares:
            return Batch(wake_at=min(plan.start.wake_at, self.roster.deadlines.next))
        batch = self._build(plan, now, since)
        self.newcomers.promise(batch, plan.view.now, self.group.together)
        return batch

    def _build(self, plan: Plan, now: int, since: int) -> Batch:
        rows, begun = build_rows(plan.shares, self.roster, now, ahead=self._in_flight.ahead)
        self.steps += 1
        self.roster.note_batch()
        total, longest = sum(plan.shares.values()), max(plan.shares.values())
        self.prefilled = plan.kinds.prefill
        held, width = self.group.rectangle(len(self.roster.running), longest)
        batch = Batch(self.steps, rows, begun, self.roster.take_dropped(), held, width)
        self._in_flight.add(batch, now, total, since, self.committed)
        return batch

    # -- learn

    def commit(self, batch: Batch, output: Output, now: int) -> list[Event]:
        """Take in a step's output, in the steps' order, and return the events for callers."""
        began, tokens, since, behind = self._in_flight.pop(batch.step, self.committed)
        spent, waste = now - began, batch.waste
        # Divided among the tokens. The remainder, less than a nanosecond a token, goes to the first
        # row, so that the accounts sum to the step exactly.
        rate, extra = divmod(spent, tokens + waste)
        self.accounts.came_back(now, spent)
        wasted, self.committed = rate * waste, now
        events: list[Event] = []
        running, errors, logprobs = self.roster.running, output.errors, output.logprobs
        for i, row, sampled in zip(range(len(batch.rows)), batch.rows, output.tokens, strict=True):
            length = len(row.tokens)
            share, extra = rate * length + extra, 0
            sequence = running.get(row.sequence)
            if sequence is None:  # it ended while this step was in flight
                wasted += share
                self.roster.settle(row)
                continue
            sequence.nanoseconds += share
            sequence.computed += length
            if errors and i in errors:  # before its blocks are published
                events.append(self._end(sequence, finish_of(errors[i]), now, errors[i]))
                continue
            if sequence.computed >= sequence.full_at:
                publish(self.pool, sequence)
            if sampled:
                scored = logprobs.get(i, ()) if logprobs else ()
                if sequence.first_token == NEVER:
                    self._first_came(sequence, now)
                sequence.last_token = now
                if sequence.unknown:
                    sequence.learn(sampled)
                else:
                    sequence.tokens += sampled
                is_long = len(sequence.tokens) - sequence.unknown >= sequence.limit
                if is_long or not sequence.stops.isdisjoint(sampled):
                    events.append(self._complete(sequence, sampled, scored, now))
                else:
                    told = sequence.request.id, sampled, NOT_YET, "", scored, (), False, (), b""
                    events.append(make(Event, told))
            elif sequence.computed == sequence.limit:
                ended = self.finish(sequence, COMPUTED, now)
                events.append(ended._replace(vector=output.vectors.get(i, b"")))
            if sequence.scores and row.want & Want.PROMPT:
                scores = sequence.take_scores(row, output.prompt_logprobs.get(i, ()))
                add_scores(events, sequence.request.id, scores)
        self._keep(batch, tokens, (began, spent, wasted, output.host))
        self.estimates.see(batch, spent, output.took, behind=behind)
        self.estimates.drain(self.roster.lines.values(), now - since)
        return self._withhold(events, now) if self.group.together else events

    def _first_came(self, sequence: Sequence, now: int) -> None:
        sequence.first_token = sequence.first_seen = now
        self.estimates.first_came(sequence)
        self.accounts.first_token(sequence)

    def _withhold(self, events: list[Event], now: int) -> list[Event]:
        self.group.withheld += events  # its callers hear of these once it has ended
        return self._answer_group(now) if self.group.is_over(self.roster.running) else []

    def _keep(self, batch: Batch, tokens: int, spent: tuple[int, int, int, int]) -> None:
        left = len(self.roster.running), self.roster.waiting, self.pool.num_free
        self.ledger.add(step_row(batch, tokens, spent, left))

    def _complete(self, sequence: Sequence, sampled: Tokens, scored: Scored, now: int) -> Event:
        """Finish a sequence that one of these tokens ends, and discard those sampled after it."""
        kept, finish = sequence.cut_at_end(len(sampled))
        return self.finish(sequence, finish, now, sampled[:kept], scored[:kept])

    def finish(
        self, sequence: Sequence, how: Finish, now: int, sampled: Tokens = (), scored: Scored = ()
    ) -> Event:
        """End a running sequence that has ended by itself, and return its last event."""
        if self.group.together:
            self.roster.withhold(sequence, how)
            self.accounts.withhold(sequence)
        else:
            self.roster.remove(sequence)
            self._close(sequence, how, now)
        return Event(sequence.request.id, sampled, how, "", scored)

    def _answer_group(self, now: int) -> list[Event]:
        """Close a group that has ended, and return all its events, withheld until now."""
        group, self.group = self.group, Group()
        for sequence, finish in self.roster.take_withheld():
            if sequence.generated:
                sequence.first_token = sequence.last_token = now
            self._close(sequence, finish, now)
        return group.withheld

    def _end(self, sequence: Sequence, finish: Finish, now: int, error: str = "") -> Event:
        """End a sequence from outside, wherever it is, and return its last event."""
        self.roster.remove(sequence)
        self.group.forget(sequence.request.id)
        self._close(sequence, finish, now)
        return Event(sequence.request.id, (), finish, error)

    def _close(self, sequence: Sequence, finish: Finish, now: int) -> None:
        row = self.ledger.close(sequence, self.roster.judged_by(sequence), finish, now)
        self.roster.close(sequence)
        self.accounts.close(sequence)
        self.estimates.ended(sequence, finish, now)
        self.ledger.changes += self.resizing.ended(row, self.group.slots)

    # -- out

    @property
    def finished(self) -> bool:
        """Whether the scheduler is closed and has nothing left to do."""
        return self._closing and not self.roster.by_id and not self._in_flight

    def load(self, now: int) -> Load:
        """The snapshot that admission and everything else outside reads."""
        pool, roster, estimates, settings = self.pool, self.roster, self.estimates, self.settings
        lanes = roster.loads(estimates.drain_rate, self.newcomers.etas, self.resizing.windows)
        memory = len(roster.running), pool.num_free, pool.num_blocks, pool.block_size
        most = min(pool.num_blocks * pool.block_size, settings.context)
        known = estimates.prefill, estimates.drift, self._closing, roster.preemptions
        rest = settings.version, roster.open_slots, self._in_flight.all_back(now, self.committed)
        return Load(now, self.steps, lanes, *memory, most, *known, *rest)

    def check(self) -> None:
        """Raise AssertionError if the books do not balance. For tests, and when idle."""
        self.roster.check()
        assert not self.group.slots or self.group.slots >= len(self.roster.running)
        assert not self.group.is_over(self.roster.running), "it has ended and answers nobody"
        self.ledger.check(sum(s.nanoseconds for s in self.roster.by_id.values()))
