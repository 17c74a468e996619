"""Decide what the next step holds. Pure: handed `now` and commands, it returns values.

There is no prefill phase and no decode phase. A sequence has tokens known and tokens computed,
and a step gives it some of the difference (the rule of vLLM's v1 scheduler). First the step is
chosen and its blocks are reserved, which may take them from others; only then are rows built,
of what has stayed.
"""

from bisect import bisect_left
from collections.abc import Iterable

from headway.core.admission import Refuse, admit
from headway.core.batch import (
    Add,
    Batch,
    Begun,
    Cancel,
    Close,
    Command,
    Event,
    Logprob,
    Output,
    Row,
    Stop,
    Want,
)
from headway.core.blocks import BlockPool, publish, release
from headway.core.join import Start
from headway.core.lane import Budget, Line
from headway.core.ledger import Ledger, StepRow
from headway.core.plan import Plan
from headway.core.request import NEVER, Finish, Request, Sequence
from headway.core.settings import Settings
from headway.core.view import LaneLoad, Load, View

NOTHING, LAST, NOT_YET = Want.NOTHING, Want.LAST, Finish.NOT_YET


class Scheduler:
    """One per engine, touched by its thread alone."""

    def __init__(self, settings: Settings, secret: bytes = b"") -> None:
        self.settings = settings
        self.pool = BlockPool(settings.num_blocks, settings.block_size, secret)
        self.lines = {lane.name: Line(lane) for lane in settings.lanes}
        self.ledger = Ledger()
        self.running: dict[int, Sequence] = {}  # by number, in order of joining
        self._leaving: dict[int, Sequence] = {}  # ended, but a step in flight uses their blocks
        self._by_id: dict[str, Sequence] = {}  # all that wait or run
        self._ended: list[int] = []  # for the next batch to tell
        self._flight: dict[int, tuple[int, int]] = {}  # step -> when it was scheduled, its tokens
        self._group, self._slots = Start(), 0  # the latest exclusive group; 0 slots: none was
        self._closing = self._prefilled = False
        self._numbers = self._steps = self._committed = self._pace = 0
        self._last_victim = -1

    # -- in

    def apply(self, commands: Iterable[Command], now: int) -> list[Event]:
        """Take commands in their order. Ids are looked up, never searched for."""
        events = []
        for command in commands:
            match command:
                case Add(request):
                    events += self._add(request, now)
                case Close():
                    self._closing = True
                case Cancel(id) | Stop(id) if id not in self._by_id:
                    pass  # it has ended already: both are idempotent
                case Cancel(id):
                    events.append(self._end(self._by_id[id], Finish.CANCELLED, now))
                case Stop(id, keep):  # pragma: no branch  (there are no others)
                    sequence = self._by_id[id]
                    sequence.discarded += max(0, sequence.generated - keep)
                    del sequence.tokens[len(sequence.request.prompt) + keep :]
                    events.append(self._end(sequence, Finish.STOP, now))
        return events

    def _add(self, request: Request, now: int) -> list[Event]:
        assert request.id not in self._by_id, "ids are ours, and unique"
        sequence = Sequence(self._numbers, request, list(request.prompt))
        if isinstance(answer := admit(request, self.load(now), now), Refuse):
            self.ledger.close(sequence, self._budget(request), Finish.REFUSED, now)
            return [Event(request.id, finish=Finish.REFUSED, error=answer.reason)]
        self._numbers += 1
        self._by_id[request.id] = sequence
        self.lines[request.lane].insert(sequence)
        return []

    # -- decide

    def schedule(self, now: int) -> Batch:
        """The next step, its blocks reserved; without rows if there is nothing to do yet."""
        view = View(
            now,
            tuple(self.lines.values()),
            self.running.values(),
            self._closing,
            self._prefilled,
            self._last_victim,
        )
        plan = Plan(self.settings.policies, self.pool, self.running, view)
        plan.choose()
        for victim in plan.preempted:
            self._dropped(victim)
            victim.preemptions += 1
            self._last_victim = victim.number
            self.lines[victim.request.lane].insert(victim)
        for sequence in plan.joined:
            self.lines[sequence.request.lane].remove(sequence)
        if plan.joined and plan.start.exclusive:
            self._group, self._slots = plan.start, len(plan.joined)
        return self._build(plan, now) if plan.shares else Batch(wake_at=plan.start.wake_at)

    def _build(self, plan: Plan, now: int) -> Batch:
        rows, begun = list[Row](), list[Begun]()
        new = tuple.__new__  # Row's own takes twice the time, and one is made per token
        for sequence, take in plan.shares.items():
            start, tokens, blocks = sequence.scheduled, sequence.tokens, sequence.blocks
            end = start + take
            if not sequence.begun:
                begun.append(self._begin(sequence, now))
            added: tuple[int, ...] = ()
            if sequence.sent < len(blocks):
                added = tuple(blocks[sequence.sent :])
                sequence.sent = len(blocks)
            mine = (tokens[start],) if take == 1 else tuple(tokens[start:end])
            want = LAST if end == len(tokens) < sequence.limit else NOTHING
            rows.append(new(Row, (sequence.number, start, mine, added, want)))
            sequence.scheduled = end
        self._steps += 1
        self._flight[self._steps] = now, sum(plan.shares.values())
        self._prefilled = plan.turn.prefill
        ended, self._ended = tuple(self._ended), []
        held, width = self._rectangle(plan)
        return Batch(self._steps, tuple(rows), tuple(begun), ended, held, width)

    def _begin(self, sequence: Sequence, now: int) -> Begun:
        sequence.begun = True
        if sequence.first_scheduled == NEVER:
            sequence.first_scheduled, sequence.cached = now, sequence.scheduled
        request = sequence.request
        return Begun(sequence.number, len(request.prompt), request.sampling)

    def _rectangle(self, plan: Plan) -> tuple[int, int]:
        """Held slots and padded width of an exclusive group's step; zeros where none runs."""
        if not self._slots:
            return 0, 0
        longest, buckets = max(plan.shares.values()), self._group.buckets
        if longest > 1 and buckets and longest <= buckets[-1]:  # one token needs no padding
            longest = buckets[bisect_left(buckets, longest)]
        return self._slots - len(self.running), longest

    # -- learn

    def commit(self, batch: Batch, output: Output, now: int) -> list[Event]:
        """Take in one step's output. Steps are committed in the order they were scheduled."""
        scheduled, tokens = self._flight.pop(batch.step)
        began = max(scheduled, self._committed)
        spent, waste = now - began, batch.waste
        # A token's share of the step; what division leaves, less than a nanosecond a token, goes
        # to the first row. So the accounts sum to the step exactly.
        rate, extra = divmod(spent, tokens + waste)
        wasted = rate * waste
        self._committed, self._pace = now, spent // tokens
        events, running = list[Event](), self.running
        errors, logprobs = output.errors, output.logprobs
        new = tuple.__new__
        for i, row, sampled in zip(range(len(batch.rows)), batch.rows, output.tokens, strict=True):
            length = len(row.tokens)
            share, extra = rate * length + extra, 0
            sequence = running.get(row.sequence)
            if sequence is None:  # it ended while this step was in flight
                wasted += share
                self._settle(row)
                continue
            sequence.nanoseconds += share
            sequence.computed += length
            if sequence.computed >= sequence.fills:
                publish(self.pool, sequence)
            if i in errors:
                events.append(self._end(sequence, Finish.ERROR, now, error=errors[i]))
            elif sampled:
                said = logprobs.get(i, ()) if logprobs else ()
                if sequence.first_token == NEVER:
                    sequence.first_token = now
                sequence.last_token = now
                if self._accept(sequence, sampled):
                    events.append(self._complete(sequence, sampled, said, now))
                else:
                    events.append(new(Event, (sequence.request.id, sampled, NOT_YET, "", said)))
            elif not sequence.request.max_tokens and sequence.computed == len(sequence.tokens):
                events.append(self._end(sequence, Finish.COMPUTED, now))
        self.ledger.add(self._row(batch, tokens, began, now, wasted))
        return events

    def _row(self, batch: Batch, tokens: int, began: int, now: int, wasted: int) -> StepRow:
        return StepRow(
            step=batch.step,
            began=began,
            nanoseconds=now - began,
            waste_nanoseconds=wasted,
            rows=len(batch.rows),
            tokens=tokens,
            held=batch.held,
            width=batch.width,
            running=len(self.running),
            waiting=sum([len(line.waiting) for line in self.lines.values()]),
            free_blocks=self.pool.num_free,
        )

    def _accept(self, sequence: Sequence, sampled: tuple[int, ...]) -> bool:
        """Append what was sampled, up to its end; whether that came."""
        known = sequence.tokens
        for token in sampled:
            known.append(token)
            if token in sequence.stops or len(known) == sequence.limit:
                return True
        return False

    def _complete(
        self, sequence: Sequence, sampled: tuple[int, ...], said: tuple[Logprob, ...], now: int
    ) -> Event:
        """Its end was among what it sampled: the rest is discarded."""
        kept = len(sequence.tokens) - sequence.computed  # it sampled behind what is computed
        sequence.discarded += len(sampled) - kept
        finish = Finish.STOP if sampled[kept - 1] in sequence.stops else Finish.LENGTH
        return self._end(sequence, finish, now, sampled[:kept], said[:kept])

    def _settle(self, row: Row) -> None:
        """Of one that has ended: its blocks are free when its last step in flight is back."""
        sequence = self._leaving[row.sequence]
        sequence.computed += len(row.tokens)
        if not sequence.in_flight:
            release(self.pool, self._leaving.pop(row.sequence))

    def _dropped(self, sequence: Sequence) -> None:
        """The executor hears of it with the next batch."""
        if sequence.begun:
            self._ended.append(sequence.number)
            sequence.begun = False

    def _end(
        self,
        sequence: Sequence,
        finish: Finish,
        now: int,
        sampled: tuple[int, ...] = (),
        logprobs: tuple[Logprob, ...] = (),
        error: str = "",
    ) -> Event:
        request = sequence.request
        del self._by_id[request.id]
        if sequence.number not in self.running:
            self.lines[request.lane].remove(sequence)
        else:
            del self.running[sequence.number]
            self._dropped(sequence)
            if sequence.in_flight:
                self._leaving[sequence.number] = sequence
            else:
                release(self.pool, sequence)
        self.ledger.close(sequence, self._budget(request), finish, now)
        return Event(request.id, sampled, finish, error, logprobs)

    def _budget(self, request: Request) -> Budget:
        """Its lane's; of a request that was refused because there is no such lane, no limit."""
        line = self.lines.get(request.lane)
        return line.lane.budget if line else Budget()

    # -- out

    @property
    def finished(self) -> bool:
        """Closed, and nothing left to do."""
        return self._closing and not self._by_id and not self._flight

    def load(self, now: int) -> Load:
        """The snapshot that the door and everyone outside reads."""
        pool, settings = self.pool, self.settings
        return Load(
            now=now,
            step=self._steps,
            lanes={
                name: LaneLoad(line.lane, len(line.waiting), line.tokens)
                for name, line in self.lines.items()
            },
            running=len(self.running),
            free_blocks=pool.num_free,
            num_blocks=pool.num_blocks,
            capacity=min(pool.num_blocks * pool.block_size, settings.context),
            pace=self._pace,
            closing=self._closing,
        )

    def check(self) -> None:
        """Raise AssertionError if the books do not balance. For tests, and for when idle."""
        holders = [*self.running.values(), *self._leaving.values()]
        self.pool.check(sequence.blocks for sequence in holders)
        size = self.pool.block_size
        for s in holders:
            assert s.computed <= s.scheduled <= s.room == len(s.blocks) * size
            assert s.fills == (s.published + 1) * size
        assert all(s.pending >= 0 for s in self.running.values())
        assert all(s.in_flight for s in self._leaving.values())
        waiting = [s for line in self.lines.values() for s in line.waiting]
        assert all(not s.blocks and not s.begun for s in waiting)
        live = {s.number for s in (*waiting, *self.running.values())}
        assert live == {s.number for s in self._by_id.values()}
        for line in self.lines.values():
            assert line.waiting == sorted(line.waiting, key=lambda s: s.number)
            assert line.tokens == sum(len(s.request.prompt) for s in line.waiting)
        assert not self._slots or self._slots >= len(self.running)
        self.ledger.check(sum(s.nanoseconds for s in self._by_id.values()))
