"""Steps in which nothing is to be decided, taken in one go.

While everybody who runs lacks just its next token, nobody may join and no command comes, a step
is the one before it with every row one position further on. What differs is done here exactly as
the scheduler does it, step by step: time and its shares, blocks taken and offered, ends. What
does not (a share for each row, a Row, an Event, a token appended) is made up for at the end.
For simulations: where tokens are computed, there is nothing to save.
"""

from headway.core.batch import Event
from headway.core.blocks import grow, publish
from headway.core.cost import Features
from headway.core.join import Continuous, Dynamic, LengthClasses, Static
from headway.core.ledger import StepRow
from headway.core.request import NEVER, Finish, Sequence
from headway.core.scheduler import Scheduler
from headway.core.view import View

# Join policies whose answer changes only when somebody arrives, ends or, where nobody runs, with
# time: while some run and nobody may join, nobody may join.
PATIENT = (Continuous, Static, Dynamic, LengthClasses)
FILLER = 0  # the token that all say
NOT_YET = Finish.NOT_YET


class Coast:
    """From one decision to the next. Make it, step while it can, close it."""

    def __init__(self, scheduler: Scheduler, now: int) -> None:
        self.scheduler, self.pool = scheduler, scheduler.pool
        self.running = list(scheduler.roster.running.values())
        self._size = self.pool.block_size
        self.taken = 0  # steps
        self._waiting = scheduler.roster.waiting
        self._ends = dict[int, list[int]]()  # by steps from here: who ends then, by place
        # By steps modulo a block: who may need a block, who may have filled one, by place.
        self._grows = [list[int]() for _ in range(self._size)]
        self._fills = [list[int]() for _ in range(self._size)]
        self._origins = [sequence.computed for sequence in self.running]
        self._left = len(self.running)
        self._held, self._width = scheduler.group.rectangle(self._left, 1)
        self._reads = sum(self._origins)  # positions behind those that still run
        self._rate = 0  # nanoseconds of a token, summed over the steps
        self._began = self._end = scheduler.committed  # the last step
        self.is_steady = self._decides_nothing(now)
        if self.is_steady:
            self._foresee()

    def _decides_nothing(self, now: int) -> bool:
        scheduler = self.scheduler
        policies, running = scheduler.settings.policies, self.running
        if not running or len(running) > policies.step_tokens or scheduler.group.together:
            return False
        for sequence in running:
            if (
                len(sequence.tokens) - sequence.scheduled != 1
                or sequence.scheduled != sequence.computed
                or sequence.first_token == NEVER
                or not sequence.begun
                or FILLER in sequence.stops
            ):
                return False
        if not scheduler.roster.waiting:
            return True
        view = View(now, tuple(scheduler.roster.lines.values()), running)
        return isinstance(policies.join, PATIENT) and not policies.join.start(view).count

    def _foresee(self) -> None:
        for place, sequence in enumerate(self.running):
            self._ends.setdefault(sequence.limit - len(sequence.tokens), []).append(place)
            self._grows[(sequence.room - sequence.computed + 1) % self._size].append(place)
            self._fills[(sequence.fills - sequence.computed) % self._size].append(place)

    @property
    def can_go_on(self) -> bool:
        """Whether there is one more such step: somebody runs, nobody may join, blocks suffice."""
        if not self._left or (self._waiting and self._left < len(self.running)):
            return False
        free = self.pool.num_free
        return free >= self._left or free >= len(self._growing())

    def _growing(self) -> list[Sequence]:
        at, running, origins = self.taken, self.running, self._origins
        return [
            running[place]
            for place in self._grows[(at + 1) % self._size]
            if running[place].room == origins[place] + at and not running[place].ended
        ]

    @property
    def features(self) -> Features:
        """Of the next step."""
        rows, held = self._left, self._held
        reads = self._reads + rows
        if held:
            reads += held * (1 + self.taken + max(self._positions()))
        return Features(rows + held, rows + held, 0, reads, reads, rows, 1)

    def _positions(self) -> list[int]:
        pairs = zip(self.running, self._origins, strict=True)
        return [origin for sequence, origin in pairs if not sequence.ended]

    def step(self, now: int, done: int, host: int) -> list[Event]:
        """One step from now to done; the ends that came of it."""
        scheduler, rows, held = self.scheduler, self._left, self._held
        if scheduler.estimates.looks_at(scheduler.steps + 1):
            scheduler.estimates.learn(self.features, done - now)
        for sequence in self._growing():
            grow(self.pool, sequence, 1)
        self.taken += 1
        scheduler.steps += 1
        self._end = scheduler.committed = done
        spent = done - now
        rate, extra = divmod(spent, rows + held)
        self._rate += rate
        next(iter(scheduler.roster.running.values())).nanoseconds += extra
        self._reads += rows
        events = self._settle(done)
        before = scheduler.steps, now, spent, rate * held, rows, rows, rows, held, self._width
        after = self._left, self._waiting, self.pool.num_free, host
        scheduler.ledger.add(tuple.__new__(StepRow, before + after))
        return events

    def _settle(self, done: int) -> list[Event]:
        """Blocks that this step has filled, and sequences that it has ended, in order of rows."""
        at = self.taken
        running, origins = self.running, self._origins
        filled = [
            place
            for place in self._fills[at % self._size]
            if running[place].fills == origins[place] + at and not running[place].ended
        ]
        ended = self._ends.get(at)
        if not ended:
            for place in filled:
                self._sync(place)
                publish(self.pool, running[place])
            return []
        self.scheduler.roster.stepped()  # who ends in it was in it
        events = list[Event]()
        for place in sorted({*filled, *ended}):
            self._sync(place)
            if place in filled:
                publish(self.pool, running[place])
            if place in ended:
                events.append(self._finish(place, done))
        return events

    def _finish(self, place: int, done: int) -> Event:
        sequence = self.running[place]
        sequence.nanoseconds += self._rate
        sequence.last_token = done
        sequence.sent = len(sequence.blocks)
        self._left -= 1
        self._held = self.scheduler.group.rectangle(self._left, 1)[0]
        self._reads -= sequence.computed
        said = (FILLER,) * (sequence.computed - self._origins[place])
        return self.scheduler.finish(sequence, Finish.LENGTH, done, said)

    def _sync(self, place: int) -> None:
        """Its tokens and positions, up to now."""
        sequence, at = self.running[place], self._origins[place] + self.taken
        sequence.tokens += [FILLER] * (at - sequence.computed)
        sequence.computed = sequence.scheduled = at

    def close(self) -> list[Event]:
        """Make up for what was put off; what those who still run have said."""
        if not self.taken:
            return []
        if self.taken not in self._ends:
            self.scheduler.roster.stepped()
        passed = self._end - self._began
        self.scheduler.estimates.drain(self.scheduler.roster.lines.values(), passed)
        events, said = list[Event](), (FILLER,) * self.taken
        taken, end, rate, new = self.taken, self._end, self._rate, tuple.__new__
        for sequence, origin in zip(self.running, self._origins, strict=True):
            if not sequence.ended:
                at = origin + taken
                sequence.tokens += said[: at - sequence.computed]
                sequence.computed = sequence.scheduled = at
                sequence.nanoseconds += rate
                sequence.last_token = end
                sequence.sent = len(sequence.blocks)
                events.append(new(Event, (sequence.request.id, said, NOT_YET, "", (), ())))
        view = View(self._end, (), prefilled=False)
        turns = self.scheduler.settings.policies.mix.turns(view)
        self.scheduler.prefilled = next(turn for turn in turns if turn.decode).prefill
        return events
