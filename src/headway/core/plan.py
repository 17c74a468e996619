"""The first phase of a step: choose who gets how many tokens, and reserve their blocks."""

from collections.abc import Iterator
from itertools import chain

from headway.core.block_table import grow, release, reserve
from headway.core.blocks import BlockPool
from headway.core.policies.mix import Turn
from headway.core.policies.policies import Policies
from headway.core.sequence import Sequence
from headway.core.view import View

MISFITS = 16  # waiting sequences that a step may find too large before it stops looking
PATIENCE = 64  # how often one that does not fit is overtaken before blocks are kept for it


class Plan:
    """A step while it is being chosen. It may take blocks from some; rows come after."""

    def __init__(
        self, policies: Policies, pool: BlockPool, running: dict[int, Sequence], view: View
    ) -> None:
        self.policies, self.pool, self.running, self.view = policies, pool, running, view
        self.shares: dict[Sequence, int] = {}  # tokens for each
        self.joined: list[Sequence] = []
        self.preempted: list[Sequence] = []
        self.turn = Turn(prefill=False, decode=False)  # the one that found work
        self.start = policies.join.start(view)
        self._allow = policies.chunk.allow(view)
        self._left = policies.step_tokens
        self._prompt_left = self._allow.tokens
        self._victims = self._preemptible()
        self._in_turns = False  # more run than the step has tokens

    def choose(self) -> None:
        """Once: fills shares, joined and preempted, and moves blocks between those.

        Where more run than a step has tokens, those in it go behind those left out.
        """
        for turn in self.policies.mix.turns(self.view):
            self._take(turn)
            if self.shares:
                self.turn = turn
                break
        if self._in_turns:
            for sequence in self.shares:
                self.running[sequence.number] = self.running.pop(sequence.number)

    def _take(self, turn: Turn) -> None:
        """First those who decode, then those with more of a prompt, then those who join."""
        if len(self.running) > self._left:
            self._in_turn(turn)
        else:
            prompts = self._decode(turn.decode)
            for sequence in prompts if turn.prefill else ():
                self._give(sequence)
        # Not in a step that preempts: a victim could join again with the blocks it has just lost.
        if turn.prefill and self.start.count and not self.preempted:
            self._join()

    def _in_turn(self, turn: Turn) -> None:
        """Where not all can get even one token: who waited longest first, whatever it lacks."""
        self._in_turns = True
        for sequence in tuple(self.running.values()):
            if sequence.pending > 1:
                if turn.prefill:
                    self._give(sequence)
            elif not (sequence.pending and turn.decode) or self._left <= 0:
                continue
            elif self._has_room(sequence, 1):
                self.shares[sequence] = 1
                self._left -= 1

    def _decode(self, wanted: bool) -> list[Sequence]:
        """One token for each who lacks just one; those who lack more are returned."""
        shares, most, prompts = self.shares, self._left, []
        for sequence in tuple(self.running.values()):
            at = sequence.scheduled
            if (pending := len(sequence.tokens) - at) == 1:
                if wanted and (at < sequence.room or self._has_room(sequence, 1)):
                    shares[sequence] = 1
            elif pending:
                prompts.append(sequence)
        self._left = most - len(shares)
        return prompts

    @property
    def _is_full(self) -> bool:
        return self._left <= 0 or self._prompt_left <= 0

    def _give(self, sequence: Sequence) -> None:
        """As much of what it lacks as the step has left."""
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
        """Whether it still runs and has blocks for so many more tokens, taken if need be."""
        end = sequence.scheduled + take
        if end <= sequence.room:
            return True
        if sequence.number not in self.running:  # a victim of this step
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
        """Never one in flight, and never the oldest: that one always ends, and so all do.

        A generator, so that a step with blocks enough looks for nobody.
        """
        running, oldest = self.running, min(self.running)
        for victim in self.policies.preempt.victims(self.view):
            number = victim.number
            if number in running and number != oldest and not victim.in_flight:
                yield victim

    def _preempt(self, victim: Sequence) -> None:
        self._left += self.shares.pop(victim, 0)
        self.preempted.append(victim)
        del self.running[victim.number]
        victim.lost = victim.computed
        release(self.pool, victim)

    def _candidates(self) -> Iterator[Sequence]:
        """The waiting in their order; but those whom the join policy wants first, first."""
        ranked, first = self.policies.order.rank(self.view), self.start.first
        if not first:
            return ranked
        listed = list(ranked)
        others = () if self.start.only else (each for each in listed if each not in first)
        return chain((each for each in listed if each in first), others)

    def _join(self) -> None:
        """Who starts in this step. One that does not fit lets others pass, but not for ever."""
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
                    break  # for the first, what comes free is kept
        for sequence in self.joined:
            self.running[sequence.number] = sequence
