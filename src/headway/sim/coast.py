"""Take many steps at once while there is nothing to decide (Coast).

While every running sequence is decoding, no request may join and no command comes, each step
repeats the previous one, one position further on. Three things still change from step to step: the
time and its shares, the blocks that are needed and filled, and the sequences that end. Coast does
these exactly as the scheduler does. It does the rest (Rows, Events, appending tokens, adding
shares) once, at the end.

A stretch of steps ends where a sequence ends. It is at most one block long, so no sequence needs
or fills two blocks in it. If fewer blocks are free than there are rows, it is one step long. If
some running sequences may be deferred, it also ends before the first step without time for all of
them. If a cost model predicts times, it ends before the next look at the lanes (Newcomers).

For simulations only: where tokens are really computed, there is nothing to save.
"""

from headway.core.batch import Event
from headway.core.cost.features import Features
from headway.core.cost.gathering import Gathering
from headway.core.kv.block_table import grow, publish
from headway.core.ledger import StepRow
from headway.core.policies.chunk import Ahead, unlimited
from headway.core.policies.defer import NOBODY
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.core.sequences.sequence import TIMED
from headway.core.view import View

FILLER = 0  # the token that every sequence generates


class Coast:
    """The decode steps between two decisions. If it `is_steady`, take steps while `ahead` is not
    0, then close it."""

    def __init__(self, scheduler: Scheduler, now: int) -> None:
        self.scheduler, self.pool = scheduler, scheduler.pool
        self.running = list(scheduler.roster.running.values())
        self.taken = 0  # steps
        self._waiting = scheduler.roster.waiting
        # By step, counted from here: the sequences that end, need a block or fill one, as places
        # in `running`. Sequences in _grows and _fills may have ended before their step.
        self._ends: dict[int, list[int]] = {}
        self._grows: dict[int, list[int]] = {}  # they need another block
        self._fills: dict[int, list[int]] = {}  # they have filled a block
        self._end_steps: list[int] = []  # the keys of _ends, the next one last
        self._origins = [sequence.computed for sequence in self.running]
        self._left = len(self.running)
        self._held, self._width = scheduler.group.rectangle(self._left, 1)
        self._reads = sum(self._origins)  # computed positions of the sequences that still run
        self._share = 0  # nanoseconds of a row, summed over the steps
        self._began = self._end = scheduler.committed  # when the stretch begins, and ends so far
        self._deferred = NOBODY  # deferred sequences: every step taken here has time for them all
        self._allowed: Ahead = unlimited  # how long a step that includes them may take
        self._sure = 0.0  # share of the steps that must keep to this time
        self.is_steady = self._decides_nothing(now)
        if self.is_steady:
            self._foresee()

    def _decides_nothing(self, now: int) -> bool:
        scheduler = self.scheduler
        policies, running = scheduler.settings.policies, self.running
        if not running or len(running) > policies.step_tokens or scheduler.group.together:
            return False
        if self._waiting and policies.goes_by_tier and self._hopes:
            return False
        for sequence in running:
            if (
                len(sequence.tokens) - sequence.scheduled != 1
                or sequence.first_token == NEVER
                or not sequence.begun
            ):
                return False
        if scheduler.newcomers.looks_again:
            return False
        if any(lane.blocks.most != NEVER for lane in scheduler.roster.limited_lanes.values()):
            return False  # a sequence that grows may have to preempt another one of its lane
        if self._waiting:
            starts = policies.join.start(scheduler.view(now)).count
            if starts or not getattr(policies.join, "steady", False):
                return False
        if not policies.goes_by_tier or all(each.tier == TIMED for each in running):
            return True
        return self._serves_all(scheduler.view(now))

    @property
    def _hopes(self) -> bool:
        """Whether a waiting request might be relegated or restored."""
        lines = self.scheduler.roster.lines.values()
        return any(line.relegated or (line.is_timed and line.waiting) for line in lines)

    def _serves_all(self, view: View) -> bool:
        """Whether each step includes the later tiers as long as it has time for them."""
        policies = self.scheduler.settings.policies
        if any(policies.relegate.restored(view)) or policies.join.start(view).count:
            return False
        self._deferred = policies.defer.deferred(view, joins=False)
        if not self._deferred:
            return True
        if self.scheduler.roster.limited_lanes or not hasattr(policies.chunk, "ahead"):
            return False
        if not all(getattr(each, "steady", False) for each in (policies.join, policies.defer)):
            return False
        self._allowed, self._sure = policies.chunk.ahead(view), policies.chunk.allow(view).sure
        self.running.sort(key=self._deferred.__contains__)  # deferred sequences' rows come last
        self._origins = [sequence.computed for sequence in self.running]
        return True

    def _foresee(self) -> None:
        ends, grows, fills = self._ends, self._grows, self._fills
        for place, sequence in enumerate(self.running):
            computed = sequence.computed
            ends.setdefault(sequence.limit - len(sequence.tokens), []).append(place)
            grows.setdefault(sequence.room - computed + 1, []).append(place)
            fills.setdefault(sequence.full_at - computed, []).append(place)
        self._end_steps = sorted(ends, reverse=True)

    @property
    def ahead(self) -> int:
        """How many steps can be taken at once. 0: nothing runs, a request may join, the next step
        looks at the lanes, or there are too few free blocks."""
        if not self._left or not (until_look := self._until_look):
            return 0
        if (self._waiting or self._deferred) and self._left < len(self.running):
            return 0
        free = self.pool.num_free
        if free >= self._left:
            most = min(self.pool.block_size, self._end_steps[-1] - self.taken, until_look)
            return min(most, self._until_learning) if self._deferred else most
        grows = self._grows.get(self.taken + 1, ())
        return int(free >= sum([not self.running[place].ended for place in grows]))

    @property
    def _until_look(self) -> int:
        """How many steps come before the next look at the lanes and their paces."""
        scheduler = self.scheduler
        if scheduler.settings.policies.in_groups:
            return NEVER
        return scheduler.newcomers.until_look(scheduler.steps, self._waiting)

    @property
    def _until_learning(self) -> int:
        """How many steps until the drift, which scales their prices, may change."""
        return self.scheduler.estimates.until_look(self.scheduler.steps)

    def has_time(self, step: int, now: int) -> bool:
        """Whether this step from here (1 is the next), if it begins now, has time for all rows."""
        if not self._deferred:
            return True
        estimates = self.scheduler.estimates
        features = self.features(step, estimates.cost.gathering)
        return estimates.surely(features, self._sure) <= self._allowed(self.taken + step, now)

    def _due(self, due: dict[int, list[int]], steps: int) -> list[list[int]]:
        """The places due in each of the next steps. Each place is due again one block later."""
        running, size, after = self.running, self.pool.block_size, self.taken + 1
        by_step: list[list[int]] = []
        for step in range(after, after + steps):
            places = [place for place in due.pop(step, ()) if not running[place].ended]
            if places:
                due[step + size] = sorted([*due.get(step + size, ()), *places])
            by_step.append(places)
        return by_step

    def features(self, step: int, gathering: Gathering) -> Features:
        """Features of this step from here (1 is the next). If rows are not padded, the features
        grow by the same amount with each step."""
        rows, held = self._left, self._held
        reads = self._reads + rows * step
        if held or gathering.at_once:
            pairs = zip(self.running, self._origins, strict=True)
            origins = [origin for sequence, origin in pairs if not sequence.ended]
            lengths = [self.taken + step + origin for origin in origins]
            reads = gathering.reads(lengths + [max(lengths)] * held)
        return Features(rows + held, rows + held, 0, reads, reads, rows, 1)

    def take(self, times: list[tuple[int, int, int]]) -> list[Event]:
        """Take these steps, at most `ahead` of them. Returns the events of sequences that end in
        the last one.

        times: for each step, when it began, its nanoseconds, and the host's share of them.
        """
        grows, fills = self._due(self._grows, len(times)), self._due(self._fills, len(times))
        self._account(times, grows)
        self._reads += self._left * len(times)
        self.taken += len(times)
        self._move_blocks(grows, fills)
        return self._finish_all() if self.taken == self._end_steps[-1] else []

    def _account(self, times: list[tuple[int, int, int]], grows: list[list[int]]) -> None:
        """Share out the steps' time and write a ledger row for each step."""
        scheduler, rows, held, width = self.scheduler, self._left, self._held, self._width
        estimates, step, began = scheduler.estimates, scheduler.steps, scheduler.steps
        free, waiting, slots = self.pool.num_free, self._waiting, rows + held
        shares = extras = 0
        step_rows: list[StepRow] = []
        for (now, spent, host), growing in zip(times, grows, strict=True):
            step += 1
            if estimates.looks_at(step):
                features = self.features(step - began, estimates.cost.gathering)
                estimates.learn(features, spent)
            share, extra = divmod(spent, slots)
            shares += share
            extras += extra
            free -= len(growing)
            before = step, now, spent, share * held, rows, rows, rows, held, width
            step_rows.append(StepRow(*before, rows, waiting, free, host))
        scheduler.ledger.extend(step_rows)
        next(each for each in self.running if not each.ended).nanoseconds += extras
        self._share += shares
        scheduler.steps = step
        self._end = scheduler.committed = now + spent

    def _move_blocks(self, grows: list[list[int]], fills: list[list[int]]) -> None:
        """Allocate the blocks that these steps need and publish those they fill, step by step."""
        running, pool = self.running, self.pool
        for growing, filling in zip(grows, fills, strict=True):
            for place in growing:
                grow(pool, running[place], 1)
            for place in filling:
                self._advance(place)
                publish(pool, running[place])

    def _finish_all(self) -> list[Event]:
        """Finish the sequences that end in the last step, in row order."""
        scheduler, ledger = self.scheduler, self.scheduler.ledger
        scheduler.roster.note_batch()  # the sequences that end now were still in the batch
        events: list[Event] = []
        for place in self._ends[self._end_steps.pop()]:
            self._advance(place)
            events.append(self._finish(place))
        free = self.pool.num_free
        ledger.steps[-1] = ledger.steps[-1]._replace(running=self._left, free_blocks=free)
        return events

    def _finish(self, place: int) -> Event:
        sequence = self.running[place]
        self._settle(place)
        self._left -= 1
        self._held = self.scheduler.group.rectangle(self._left, 1)[0]
        self._reads -= sequence.computed
        tokens = (FILLER,) * (sequence.computed - self._origins[place])
        return self.scheduler.finish(sequence, Finish.LENGTH, self._end, tokens)

    def _advance(self, place: int) -> None:
        """Bring a sequence's tokens and positions up to the last step taken."""
        sequence, at = self.running[place], self._origins[place] + self.taken
        sequence.tokens += [FILLER] * (at - sequence.computed)
        sequence.computed = sequence.scheduled = at

    def _settle(self, place: int) -> None:
        """Add a sequence's shares of the steps' time."""
        sequence = self.running[place]
        sequence.nanoseconds += self._share
        sequence.last_token = self._end
        sequence.sent = len(sequence.blocks)

    def close(self) -> list[Event]:
        """Do the work that was put off. Returns the tokens of the sequences that still run."""
        if not self.taken:
            return []
        scheduler = self.scheduler
        if self.taken not in self._ends:  # otherwise _finish_all has noted the batch
            scheduler.roster.note_batch()
        scheduler.estimates.drain(scheduler.roster.lines.values(), self._end - self._began)
        events: list[Event] = []
        tokens = (FILLER,) * self.taken
        for place, sequence in enumerate(self.running):
            if not sequence.ended:
                self._advance(place)
                self._settle(place)
                events.append(Event(sequence.request.id, tokens))
        choices = scheduler.settings.policies.mix.choices(View(self._end, (), prefilled=False))
        scheduler.prefilled = next(kinds for kinds in choices if kinds.decode).prefill
        return events
