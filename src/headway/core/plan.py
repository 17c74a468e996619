"""The first phase of a step (Plan): choose who gets how many tokens, and reserve their blocks."""

from collections.abc import Iterator
from itertools import chain

from headway.core.block_table import grow, reserve
from headway.core.blocks import BlockPool
from headway.core.policies.mix import RowKinds
from headway.core.policies.policies import Policies
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
        self._allow = policies.chunk.allow(view)
        self._left = policies.step_tokens
        self._prompt_left = self._allow.tokens
        self._victims = self._preemptible()
        self._has_preempted = False
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
        if self._in_turns:
            self.roster.move_to_back(self.shares)

    def _take(self, kinds: RowKinds) -> None:
        """First those that decode, then running prompts, then those that join."""
        if len(self.roster.running) > self._left:
            self._take_in_turns(kinds)
        else:
            prompts = self._decode(kinds.decode)
            for sequence in prompts if kinds.prefill else ():
                self._give(sequence)
        # Not in a step that preempts: a victim could join again with the blocks it has just lost.
        if kinds.prefill and self.start.count and not self._has_preempted:
            self._join()

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
        """If wanted, one token for each that has one to compute. Returns those that have more."""
        shares, left, prompts = self.shares, self._left, []
        for sequence in tuple(self.roster.running.values()):
            at = sequence.scheduled
            if (pending := len(sequence.tokens) - at) == 1:
                if wanted and (at < sequence.room or self._has_room(sequence, 1)):
                    shares[sequence] = 1
            elif pending:
                prompts.append(sequence)
        self._left = left - len(shares)
        return prompts

    @property
    def _is_full(self) -> bool:
        return self._left <= 0 or self._prompt_left <= 0

    def _give(self, sequence: Sequence) -> None:
        """As many of its pending tokens as the step has left."""
        if self._is_full:
            return
        take = sequence.pending
        if self._allow.split:
            take = min(take, self._left, self._prompt_left)
        if self._has_room(sequence, take):
            self.shares[sequence] = take
            self._left -= take
            self._prompt_left -= take

    def _has_room(self, sequence: Sequence, take: int) -> bool:
        """Whether it runs and has blocks for so many more tokens. Preempts others if need be."""
        end = sequence.scheduled + take
        if end <= sequence.room:
            return True
        if sequence.number not in self.roster.running:  # this step has preempted it
            return False
        need = self.pool.blocks_for(end) - len(sequence.blocks)
        while self.pool.num_free < need:
            if (victim := next(self._victims, None)) is None:
                return False  # the others are in flight: next time
            self._preempt(victim)
            if victim is sequence:
                return False
        grow(self.pool, sequence, need)
        return True

    def _preemptible(self) -> Iterator[Sequence]:
        """Never one in flight, and never the oldest: so the oldest ends, and in time all do.

        A generator, so that a step with blocks enough never looks for victims.
        """
        running = self.roster.running
        oldest = min(running)
        for victim in self.policies.preempt.victims(self.view):
            number = victim.number
            if number in running and number != oldest and not victim.in_flight:
                yield victim

    def _preempt(self, victim: Sequence) -> None:
        self._has_preempted = True
        self._left += self.shares.pop(victim, 0)
        self.roster.preempt(victim)

    def _candidates(self) -> Iterator[Sequence]:
        """The waiting in the order policy's order, those that the join policy names first."""
        ranked, first = self.policies.order.rank(self.view), self.start.first
        if not first:
            return ranked
        listed = list(ranked)
        others = () if self.start.only else (each for each in listed if each not in first)
        return chain((each for each in listed if each in first), others)

    def _join(self) -> None:
        """Let waiting sequences join. One that does not fit is overtaken, but not for ever."""
        start, misfits = self.start, list[Sequence]()
        for sequence in self._candidates():
            if self._is_full and not start.exclusive:  # a group's rows may come in later steps
                break
            if sequence.awaits_leader and not start.exclusive:
                continue
            if reserve(self.pool, sequence, whole=start.exclusive):
                self.joined.append(sequence)
                self._give(sequence)
                for passed in misfits:
                    passed.overtaken += 1
                if len(self.joined) == start.count:
                    break
            else:
                misfits.append(sequence)
                if sequence.overtaken >= PATIENCE or len(misfits) == MISFITS:
                    break  # in the first case, blocks that come free are kept for it
        self.roster.join(self.joined)
