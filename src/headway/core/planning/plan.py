"""The first phase of a step (Plan): choose who gets how many tokens, and reserve their blocks."""

from collections.abc import Iterator
from itertools import chain

from headway.core.block_table import grow, reserve
from headway.core.blocks import BlockPool
from headway.core.cost.sizer import Sizer
from headway.core.planning.lane_limits import LaneLimits
from headway.core.planning.victims import Victims
from headway.core.policies.mix import RowKinds
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.roster import Roster
from headway.core.sequence import Sequence
from headway.core.view import View

MISFITS = 16  # a step stops looking after so many waiting sequences that do not fit
PATIENCE = 64  # a sequence that was overtaken so often is not overtaken again


class Plan:
    """A step while it is being chosen. The rows are built afterwards, of those that kept their
    blocks."""

    def __init__(self, policies: Policies, pool: BlockPool, roster: Roster, view: View) -> None:
        self.policies, self.pool, self.roster, self.view = policies, pool, roster, view
        self.shares: dict[Sequence, int] = {}  # tokens that the step computes of each
        self.joined: list[Sequence] = []
        self.kinds = RowKinds(prefill=False, decode=False)  # those for which there was work
        self.start = policies.join.start(view)
        self._places = self.start.count  # that are left for those who wait
        self._allow = policies.chunk.allow(view)
        self._left = policies.step_tokens
        self._prompt_left = self._allow.tokens
        self._least_left = self._allow.least  # prompt tokens that it computes in any case
        self._sizer: Sizer | None = None  # none: the step may take any time
        if self._allow.nanoseconds != NEVER:
            self._sizer = Sizer(view.estimates, self._allow.nanoseconds, self._allow.sure)
        self._deferred = policies.defer.deferred(view)
        self._victims = Victims(policies.preempt, roster, pool, view)
        self._limits = LaneLimits(roster, pool)
        self._misfits: list[Sequence] = []
        self._in_turns = False  # more run than the step has tokens

    def choose(self) -> None:
        """Fill `shares` and `joined`; move sequences and blocks accordingly. Called once.

        If more run than the step has tokens, those who are in it are served last in the next.
        """
        for kinds in self.policies.mix.choices(self.view):
            self._take(kinds)
            if self.shares:
                self.kinds = kinds
                break
        self.roster.join(self.joined)
        if self._in_turns:
            self.roster.move_to_back(self.shares)

    def _take(self, kinds: RowKinds) -> None:
        """First those that decode, then the others, in the order policy's order."""
        others = list[Sequence]()
        if len(self.roster.running) > self._left:
            self._take_in_turns(kinds)
        else:
            others = self._decode(kinds.decode)
        if kinds.prefill and (others or self.start.count or self._victims.across):
            self._consider(self._candidates(others))

    def _take_in_turns(self, kinds: RowKinds) -> None:
        """If not all can get a token: in the order they are served, prompts or not."""
        self._in_turns = True
        for sequence in tuple(self.roster.running.values()):
            if sequence.pending > 1:
                if kinds.prefill:
                    self._give(sequence)
            elif not (sequence.pending and kinds.decode) or self._left <= 0:
                continue
            elif self._has_room(sequence, 1):
                self.shares[sequence] = 1
                self._left -= 1

    def _decode(self, wanted: bool) -> list[Sequence]:
        """If wanted, one token for each that has one to compute and does not miss the step.
        Returns the others, those with prompts among them."""
        shares, left, deferred, others = self.shares, self._left, self._deferred, []
        for sequence in tuple(self.roster.running.values()):
            at = sequence.scheduled
            if (pending := len(sequence.tokens) - at) == 1 and sequence not in deferred:
                if wanted and (at < sequence.room or self._has_room(sequence, 1)):
                    shares[sequence] = 1
            elif pending:
                others.append(sequence)
        self._left = left - len(shares)
        if self._sizer:
            self._sizer.decode(sequence.scheduled for sequence in shares)
        self._limits.count(shares)
        return others

    def _candidates(self, others: list[Sequence]) -> Iterator[Sequence]:
        """These of the running, and the waiting, in the order policy's order; before all, those
        that the join policy names first."""
        ranked, first = self.policies.order.rank(self.view, others), self.start.first
        if not first:
            return ranked
        listed = list(ranked)
        rest = () if self.start.only else (each for each in listed if each not in first)
        return chain((each for each in listed if each in first), rest)

    def _consider(self, candidates: Iterator[Sequence]) -> None:
        running, exclusive = self.roster.running, self.start.exclusive
        for sequence in candidates:
            if self._is_full and not exclusive:  # a group's rows may come in later steps
                break
            if sequence in self.shares:  # it is named twice
                continue
            if sequence.number in running:
                self._give(sequence)
            elif not self._try_to_join(sequence):
                break

    @property
    def _is_full(self) -> bool:
        return self._left <= 0 or self._prompt_left <= 0

    def _give(self, sequence: Sequence) -> None:
        """As many of its pending tokens as the step has left."""
        if self._is_full:
            return
        take, single = sequence.pending, sequence in self._deferred
        if self._allow.split:
            take = min(take, self._left, self._prompt_left)
        take = self._limits.within(sequence, take)
        if self._sizer:
            take = self._within_time(self._sizer, sequence, take, single)
        if take <= 0 or not self._has_room(sequence, take):
            return
        self.shares[sequence] = take
        self._left -= take
        self._limits.give(sequence, take)
        if not single:
            self._prompt_left -= take
            self._least_left -= take
        if self._sizer:
            self._sizer.add(sequence.scheduled, take)

    def _within_time(self, sizer: Sizer, sequence: Sequence, take: int, single: bool) -> int:
        """How many of so many tokens the step has time for; a step has one row in any case."""
        fits = sizer.fit(sequence.scheduled, take)
        if fits < take and not (single and self.shares):
            fits = max(fits, min(take, max(self._least_left, int(not self.shares))))
        if fits < take:
            self._prompt_left = min(self._prompt_left, fits)  # there is no time for anybody else
        return fits

    def _has_room(self, sequence: Sequence, take: int) -> bool:
        """Whether it runs and has blocks for so many more tokens. Preempts others if need be."""
        end = sequence.scheduled + take
        if end <= sequence.room:
            return True
        if sequence.number not in self.roster.running:  # this step has preempted it
            return False
        need = self.pool.blocks_for(end) - len(sequence.blocks)
        while self.pool.num_free < need:
            if (victim := self._victims.next_for(sequence)) is None:
                return False  # the others are in flight: next time
            self._preempt(victim)
            if victim is sequence:
                return False
        grow(self.pool, sequence, need)
        return True

    def _preempt(self, victim: Sequence) -> None:
        self._left += self.shares.pop(victim, 0)
        self._victims.taken(victim)
        self.roster.preempt(victim)

    def _try_to_join(self, sequence: Sequence) -> bool:
        """Let a waiting sequence join if it fits. Returns whether others may be tried.

        One that does not fit is overtaken, but not for ever.
        """
        if not self._victims.may_join(sequence):
            return self._victims.across
        if sequence.awaits_leader and not self.start.exclusive:
            return True
        if not self._limits.may_join(sequence):
            return self._is_worth_trying(sequence)
        if not self._has_place(sequence) or not self._reserve(sequence):
            return self._is_worth_trying(sequence)
        self._places -= 1
        self.joined.append(sequence)
        self._limits.join(sequence)
        self._give(sequence)
        for passed in self._misfits:
            passed.overtaken += 1
        return self._places > 0 or self._victims.across

    def _is_worth_trying(self, misfit: Sequence) -> bool:
        """Whether to try others after this one; if not, blocks that come free are kept for it."""
        if not self.start.count and not self._victims.across:
            return False
        self._misfits.append(misfit)
        return misfit.overtaken < PATIENCE and len(self._misfits) < MISFITS

    def _has_place(self, sequence: Sequence) -> bool:
        """Whether it may run beside the others. Takes the slot of a later tier if need be."""
        if self._places > 0:
            return True
        if not self._victims.across or not self._could_hold(sequence):
            return False
        if (victim := self._victims.next_for(sequence, behind=True)) is None:
            return False
        self._preempt(victim)
        self._places += 1
        return True

    def _reserve(self, sequence: Sequence) -> bool:
        """Its blocks. Takes those of later tiers if need be and if that is enough."""
        whole = self.start.exclusive
        if reserve(self.pool, sequence, whole=whole):
            return True
        if not self._victims.across or not self._could_hold(sequence):
            return False
        while (victim := self._victims.next_for(sequence, behind=True)) is not None:
            self._preempt(victim)
            if reserve(self.pool, sequence, whole=whole):
                return True
        return False

    def _could_hold(self, sequence: Sequence) -> bool:
        """Whether its tokens would fit if all later tiers were preempted."""
        need = self.pool.blocks_for(len(sequence.tokens))
        return self.pool.num_free >= need or self._victims.blocks_behind(sequence) >= need
