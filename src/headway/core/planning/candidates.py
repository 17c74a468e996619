"""Who is considered in a step, and in which order: the order policy's, but for two things; who has
not fitted (Misfits), and for whom memory will suffice (Future)."""

from collections.abc import Callable, Collection, Iterator
from itertools import chain

from headway.core.block_table import demand
from headway.core.blocks import BlockPool
from headway.core.lane import Line
from headway.core.planning.lane_limits import PATIENCE, LaneLimits
from headway.core.policies.join import Start
from headway.core.policies.memory import Forecast, moves
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.sequence import TIMED, UNTIMED, Sequence
from headway.core.view import View

MISFITS = 16  # after so many that do not fit, only those are tried that will
FAR = 512  # and so many that will not are passed over


def named_first(ranked: Iterator[Sequence], start: Start) -> Iterator[Sequence]:
    """Those that the join policy names go before all others, or alone."""
    if not start.first:
        return ranked
    listed, first = list(ranked), start.first
    rest = () if start.only else (each for each in listed if each not in first)
    return chain((each for each in listed if each in first), rest)


def in_time_first(
    ranked: Iterator[Sequence],
    lines: tuple[Line, ...],
    running: Collection[Sequence],
    has_place: Callable[[Sequence], bool],
) -> Iterator[Sequence]:
    """Whoever is in time and waits is tried before those of later tiers, whose slots it would take
    in the next step. has_place: of those, who would keep its slot. running: who ran before the
    step."""
    ahead = sum([len(line.waiting) for line in lines if line.is_timed])
    if not ahead or not any(line.later for line in lines):
        return ranked
    return _in_time_first(ranked, ahead, frozenset(running), has_place)


def _in_time_first(
    ranked: Iterator[Sequence],
    ahead: int,
    ran: frozenset[Sequence],
    has_place: Callable[[Sequence], bool],
) -> Iterator[Sequence]:
    """ahead: how many wait and are in time."""
    seen: set[Sequence] = set()  # an order may name somebody twice
    later: list[Sequence] = []
    for sequence in ranked:
        if sequence in ran:
            yield sequence
        elif sequence.tier == TIMED:
            ahead -= sequence not in seen
            seen.add(sequence)
            yield sequence
        elif has_place(sequence):
            yield sequence
        else:
            later.append(sequence)
        if ahead <= 0:
            yield from later
            yield from ranked
            return
    yield from later


class Misfits:
    """Those who wait and have not fitted in this step. Others overtake them, but not for ever."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._found: list[Sequence] = []
        self._passed = 0

    def add(self, sequence: Sequence, places: int) -> bool:
        """It does not fit. places: slots that are left. Returns whether others may be tried; if
        not, blocks that come free are kept for it."""
        self._found.append(sequence)
        return sequence.overtaken < PATIENCE and (places > 0 or len(self._found) < MISFITS)

    def pass_over(self, sequence: Sequence) -> bool:
        """Whether it need not be tried: many have not fitted, and there are too few free blocks for
        its tokens, even if some of them are cached."""
        if len(self._found) < MISFITS:
            return False
        is_large = self._pool.blocks_for(len(sequence.tokens)) > self._pool.num_free
        self._passed += is_large
        return is_large

    @property
    def is_far(self) -> bool:
        """Whether so many were passed over that the step looks no further."""
        return self._passed >= FAR

    def overtake(self) -> None:
        """Another has joined."""
        for sequence in self._found:
            sequence.overtaken += 1


class Future:
    """For whom memory will suffice later on too, beside those who keep their blocks. One step's:
    who joins or is preempted in it changes what follows."""

    def __init__(
        self, policies: Policies, view: View, limits: LaneLimits, joined: list[Sequence]
    ) -> None:
        """view: before the step. joined: those who have joined in it, as they are when asked."""
        self._memory, self._view, self._limits, self._joined = policies.memory, view, limits, joined
        # Those in time take blocks of later tiers, so these leave them some.
        self._across: bool = getattr(policies.preempt, "across", False)
        self._found: dict[int, Forecast | None] = {}  # by tier
        self._refused, self._count = UNTIMED, 0  # the first tier that was refused; how many were
        self._moves, self._steps = moves(view), NEVER  # until one of them may have room

    def is_open(self, places: int) -> bool:
        """Whether anybody needs to be tried. places: slots for those who wait."""
        return places > 0 and not self._limits.roster.lull.lasts(self._moves, self._view)

    @property
    def is_full(self) -> bool:
        """Whether so many were refused that nobody else is tried."""
        return self._count >= MISFITS

    def close(self, tried: int) -> None:
        """Nobody else is tried in this step. tried: how many were, and did not join. If it has
        refused them all, and no lane kept anybody out, it need not be asked in the next steps."""
        if not 0 < self._count == tried or self._limits.holding:
            return
        if self.is_full or tried == self._view.waiting:
            self._limits.roster.lull.begin(self._moves, self._view, self._steps)

    def has_room(self, joining: Sequence) -> bool:
        """Whether it may join. What a lane keeps is for it in any case."""
        if not self._memory.foresees(joining) or self._limits.is_kept_for(joining):
            return True
        tier = joining.tier if self._across else UNTIMED
        if tier <= self._refused and self._suffices(joining, tier):
            return True
        self._refused = min(self._refused, tier)
        self._count += 1
        return False

    def _suffices(self, joining: Sequence, tier: int) -> bool:
        if tier not in self._found:
            holders = [*self._limits.roster.running.values(), *self._joined]
            stays = self._across and tier != TIMED
            staying = [each for each in holders if each.tier == TIMED] if stays else []
            beside = [s for s in holders if s.tier <= tier and not (stays and s.tier == TIMED)]
            self._found[tier] = self._memory.forecast(self._view, beside, staying)
        if (forecast := self._found[tier]) is None:
            return True
        _, used = demand(self._limits.pool, joining, whole=False)
        steps = forecast.steps_to_room(joining, len(used) * self._view.block_size)
        self._steps = min(self._steps, steps or NEVER)
        return steps == 0

    def change(self) -> None:
        """Somebody has joined, or was preempted."""
        self._found.clear()
