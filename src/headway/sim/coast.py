"""Steps in which nothing is to be decided, taken in one go.

While everybody who runs lacks just its next token, nobody may join and no command comes, a step
is the one before it with every row one position further on. What differs is done here exactly as
the scheduler does it: time and its shares, blocks taken and offered, ends. What does not (a share
for each row, a Row, an Event, a token appended) is made up for at the end. Steps are taken at once
up to the next one in which somebody ends, but no more than a block has tokens: in so many nobody
needs or fills two. Where fewer blocks are free than rows may need, they are taken one by one.
For simulations: where tokens are computed, there is nothing to save.
"""

from itertools import chain, islice

from headway.core.batch import Event
from headway.core.block_table import grow_each, next_hashes, publish_each
from headway.core.cost.features import Features
from headway.core.cost.gathering import Gathering
from headway.core.ledger import StepRow
from headway.core.policies.join import Continuous, Dynamic, LengthClasses, Static
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.core.view import View

# Join policies whose answer changes only when somebody arrives, ends or, where nobody runs, with
# time: while some run and nobody may join, nobody may join.
PATIENT = (Continuous, Static, Dynamic, LengthClasses)
FILLER = 0  # the token that all say
NOT_YET = Finish.NOT_YET


class Coast:
    """From one decision to the next. Make it, take what is ahead while something is, close it."""

    def __init__(self, scheduler: Scheduler, now: int) -> None:
        self.scheduler, self.pool = scheduler, scheduler.pool
        self.running = list(scheduler.roster.running.values())
        self._size = self.pool.block_size
        self.taken = 0  # steps
        self._waiting = scheduler.roster.waiting
        self._ends = dict[int, list[int]]()  # by steps from here: who ends then, by place
        self._stops = list[int]()  # these numbers of steps, the next one last
        self._grows = dict[int, list[int]]()  # and who needs a block then, if it still runs
        self._fills = dict[int, list[int]]()  # or has filled one
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
        ends, grows, fills = self._ends, self._grows, self._fills
        for place, sequence in enumerate(self.running):
            computed = sequence.computed
            ends.setdefault(sequence.limit - len(sequence.tokens), []).append(place)
            grows.setdefault(sequence.room - computed + 1, []).append(place)
            fills.setdefault(sequence.full_at - computed, []).append(place)
        self._stops = sorted(self._ends, reverse=True)

    @property
    def ahead(self) -> int:
        """Steps that can be taken at once. 0: nobody runs, somebody may join, or blocks lack."""
        if not self._left or (self._waiting and self._left < len(self.running)):
            return 0
        free = self.pool.num_free
        if free >= self._left:
            return min(self._size, self._stops[-1] - self.taken)
        grows = self._grows.get(self.taken + 1, ())
        return int(free >= sum([not self.running[place].ended for place in grows]))

    def _due(self, due: dict[int, list[int]], steps: int) -> list[list[int]]:
        """Of each of the next steps, whose turn it is, by place; and again a block later."""
        running, size, after, turns = self.running, self._size, self.taken + 1, list[list[int]]()
        for at in range(after, after + steps):
            turn = [place for place in due.pop(at, ()) if not running[place].ended]
            if turn:
                assert at + size not in due, "all rooms end within one block, or never in time"
                due[at + size] = turn
            turns.append(turn)
        return turns

    def features(self, step: int, gathering: Gathering) -> Features:
        """Of this step from here. Without padding, the same is added from one to the next ahead."""
        rows, held = self._left, self._held
        reads = self._reads + rows * step
        if held or gathering.at_once:
            lengths = [self.taken + step + position for position in self._positions()]
            reads = gathering.keys(lengths + [max(lengths)] * held)
        return Features(rows + held, rows + held, 0, reads, reads, rows, 1)

    def _positions(self) -> list[int]:
        pairs = zip(self.running, self._origins, strict=True)
        return [origin for sequence, origin in pairs if not sequence.ended]

    def take(self, times: list[tuple[int, int, int]]) -> list[Event]:
        """So many steps, of those ahead; the ends that came of the last of them.

        times: of each, when it began, its nanoseconds and those of its host.
        """
        grows, fills = self._due(self._grows, len(times)), self._due(self._fills, len(times))
        self._account(times, grows)
        self._reads += self._left * len(times)
        self.taken += len(times)
        self._book(grows, fills)
        return self._ending() if self.taken == self._stops[-1] else []

    def _account(self, times: list[tuple[int, int, int]], grows: list[list[int]]) -> None:
        """Time and its shares, and a row for each step."""
        scheduler, rows, held, width = self.scheduler, self._left, self._held, self._width
        estimates, step, began = scheduler.estimates, scheduler.steps, scheduler.steps
        free, waiting, slots = self.pool.num_free, self._waiting, rows + held
        rates = extras = 0
        made, new = list[StepRow](), tuple.__new__
        for (now, spent, host), growing in zip(times, grows, strict=True):
            step += 1
            if estimates.looks_at(step):
                features = self.features(step - began, estimates.cost.gathering)
                estimates.learn(features, spent)
            rate, extra = divmod(spent, slots)
            rates += rate
            extras += extra
            free -= len(growing)
            before = step, now, spent, rate * held, rows, rows, rows, held, width
            made.append(new(StepRow, (*before, rows, waiting, free, host)))
        scheduler.ledger.extend(made)
        next(iter(scheduler.roster.running.values())).nanoseconds += extras
        self._rate += rates
        scheduler.steps = step
        self._end = scheduler.committed = now + spent

    def _book(self, grows: list[list[int]], fills: list[list[int]]) -> None:
        """Blocks that these steps need and fill, in their order."""
        running, pool = self.running, self.pool
        for place in chain.from_iterable(fills):
            self._sync(place)
        filled = [running[place] for place in chain.from_iterable(fills)]
        names = next_hashes(pool, filled)
        if pool.has_any(names):
            # An older block has such a name, and it matters whether it is evicted, and its name
            # forgotten, before a step offers another under it or after.
            named = iter(names)
            for growing, filling in zip(grows, fills, strict=True):
                grow_each(pool, [running[place] for place in growing])
                offered = [running[place] for place in filling]
                publish_each(pool, offered, list(islice(named, len(offered))))
        else:
            grow_each(pool, [running[place] for place in chain.from_iterable(grows)])
            publish_each(pool, filled, names)

    def _ending(self) -> list[Event]:
        """Who ends in the last step, in the order of its rows."""
        scheduler, ledger = self.scheduler, self.scheduler.ledger
        scheduler.roster.note_batch()  # who ends in it was in it
        events = list[Event]()
        for place in self._ends[self._stops.pop()]:
            self._sync(place)
            events.append(self._finish(place))
        free = self.pool.num_free
        ledger.steps[-1] = ledger.steps[-1]._replace(running=self._left, free_blocks=free)
        return events

    def _finish(self, place: int) -> Event:
        sequence, done = self.running[place], self._end
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
        if self.taken not in self._ends:  # or it was said when they ended
            self.scheduler.roster.note_batch()
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
        choices = self.scheduler.settings.policies.mix.choices(view)
        self.scheduler.prefilled = next(kinds for kinds in choices if kinds.decode).prefill
        return events
