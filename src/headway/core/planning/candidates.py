"""The candidates of a step, in the order policy's order but for in_order, named_first and
in_time_first; which have not fitted (Misfits), and for which memory will suffice (Future)."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain

from headway.core.accounts.rules import Rule
from headway.core.kv.block_table import demand
from headway.core.kv.blocks import BlockPool
from headway.core.lane import Line
from headway.core.planning.lane_limits import FAR, PATIENCE, LaneLimits
from headway.core.policies.join import Start
from headway.core.policies.memory import Forecast, moves
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.sequences.sequence import TIMED, UNTIMED, Sequence
from headway.core.view import View

MISFITS = 16  # after so many misfits, those too large for the blocks to be had are passed over


def in_order(
    policies: Policies, view: View, running: Collection[Sequence], limits: LaneLimits
) -> Iterator[Sequence]:
    """Rank these running sequences and the waiting ones: by the order policy, but the first of each
    lane that lacks slots or blocks of its least go before all others that wait. As many go as the
    lane lacks slots, or one for its blocks, if the lane keeps enough for it. Among them the order
    stays."""
    ranked = limits.without_closed(policies.order.rank(view, running))
    lacking = limits.lacking(view.lines) if policies.keeps_leasts else {}
    return _lacking_first(ranked, lacking, limits) if lacking else ranked


def _lacking_first(
    ranked: Iterator[Sequence], lacking: dict[str, int], limits: LaneLimits
) -> Iterator[Sequence]:
    """lacking: by lane, how many of its sequences go first."""
    passed: list[Sequence] = []
    while any(lacking.values()) and (sequence := next(ranked, None)):
        runs, lane = sequence.number in limits.roster.running, sequence.request.lane
        if runs and not passed:  # who waits does not overtake it
            yield sequence
        elif runs or not lacking.get(lane):
            passed.append(sequence)
        else:
            lacking[lane] -= 1
            if limits.is_kept_for(sequence):
                yield sequence
            else:
                passed.append(sequence)
    yield from passed
    yield from ranked


def named_first(ranked: Iterator[Sequence], start: Start) -> Iterator[Sequence]:
    """Yield the sequences that the join policy names before all others, or alone."""
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
    """Try waiting sequences that are in time before waiting ones of later tiers, whose slots they
    would take in the next step. has_place: whether one of a later tier would keep its slot.
    running: sequences that ran before the step."""
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
    """ahead: how many sequences wait and are in time."""
    seen: set[Sequence] = set()  # an order may name a sequence twice
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
    """Waiting sequences that did not fit in this step. Others overtake them, but not for ever."""

    def __init__(self, pool: BlockPool, behind: Callable[[int], int]) -> None:
        """behind: how many blocks sequences of a tier may take from later tiers."""
        self._pool, self._behind = pool, behind
        self._found: list[Sequence] = []
        self._passed = 0

    def add(self, sequence: Sequence, has_place: bool) -> bool:
        """Note a sequence that does not fit. has_place: whether there may be a slot, left or taken
        from later tiers. Returns whether others may be tried; if not, blocks that come free are
        kept for this sequence."""
        self._found.append(sequence)
        return sequence.overtaken < PATIENCE and (has_place or len(self._found) < MISFITS)

    def pass_over(self, sequence: Sequence) -> bool:
        """Whether to skip a sequence: many have not fitted, and its tokens need more blocks than
        are free or held by victims of later tiers. The prefix cache is not asked."""
        if len(self._found) < MISFITS:
            return False
        lacks = self._pool.blocks_for(len(sequence.tokens)) - self._pool.num_free
        is_large = lacks > 0 and lacks > self._behind(sequence.tier)
        self._passed += is_large
        return is_large

    @property
    def is_far(self) -> bool:
        """Whether the step has passed over so many sequences that it looks no further."""
        return self._passed >= FAR

    def overtake(self) -> None:
        """Count that another sequence has joined before the misfits."""
        for sequence in self._found:
            sequence.overtaken += 1


class Future:
    """Whether memory will suffice, now and later, for a sequence beside those that keep their
    blocks. Made for one step: each join or preemption in it changes the forecasts."""

    def __init__(
        self, policies: Policies, view: View, limits: LaneLimits, joined: list[Sequence]
    ) -> None:
        """view: before the step. joined: the plan's own list, which grows during the step."""
        self._memory, self._view, self._limits, self._joined = policies.memory, view, limits, joined
        # Sequences in time take blocks of later tiers, so later tiers leave them some.
        self._across: bool = getattr(policies.preempt, "across", False)
        self._found: dict[int, Forecast | None] = {}  # by tier
        self._refused, self._count = UNTIMED, 0  # the first tier refused; sequences refused
        self._moves, self._steps = moves(view), NEVER  # steps until a refused one may have room

    def is_open(self, places: int) -> bool:
        """Whether any waiting sequence needs to be tried. places: slots for the waiting."""
        return places > 0 and not self._limits.roster.lull.lasts(self._moves, self._view)

    @property
    def is_full(self) -> bool:
        """Whether so many sequences were refused that no more are tried."""
        return self._count >= MISFITS

    def close(self, refused: Mapping[Sequence, Rule], *, is_far: bool) -> None:
        """End the step's tries. refused: what kept out each sequence that was tried. is_far: so
        many are too large that no others were tried. A lull begins if memory alone kept them out,
        they were all that wait (or `is_far`, or `is_full`), and no lane's limits kept any out."""
        if self._limits.holding or any(rule != Rule.BLOCKS for rule in refused.values()):
            return
        if refused and (is_far or self.is_full or len(refused) == self._view.waiting):
            free = self._limits.pool.num_free
            self._limits.roster.lull.begin(self._moves, self._view, free, self._steps)

    def has_room(self, joining: Sequence) -> bool:
        """Whether the sequence may join. If its lane keeps room for it, no forecast is made."""
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
        """Forget the forecasts: a sequence has joined or was preempted."""
        self._found.clear()
