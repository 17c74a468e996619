"""The first phase of a step (Plan): choose each sequence's tokens, and reserve their blocks."""

from collections.abc import Iterator

from headway.core.accounts.rules import Rule
from headway.core.kv.block_table import grow, reserve
from headway.core.kv.blocks import BlockPool
from headway.core.planning.candidates import Future, Misfits, in_order, in_time_first, named_first
from headway.core.planning.lane_limits import LaneLimits
from headway.core.planning.leasts import Leasts
from headway.core.planning.prefixes import Prefixes
from headway.core.planning.remainder import Remainder
from headway.core.planning.victims import Victims
from headway.core.policies.mix import NEITHER, RowKinds
from headway.core.policies.policies import Policies
from headway.core.sequences.roster import Roster
from headway.core.sequences.sequence import Sequence
from headway.core.view import View

FEW = 8  # singles that are tried one by one if not all fit; of more, each half is tried at once


class Plan:
    """A step while it is being chosen. Rows are built later, for those that keep their blocks."""

    def __init__(self, policies: Policies, pool: BlockPool, roster: Roster, view: View) -> None:
        self.policies, self.pool, self.roster, self.view = policies, pool, roster, view
        self.shares: dict[Sequence, int] = {}  # tokens that the step computes of each sequence
        self.joined: list[Sequence] = []
        self.kinds = NEITHER  # the row kinds for which there was work
        self.start = policies.join.start(view)
        self.places = self.start.count  # slots that are left for waiting sequences
        self.allowance = policies.chunk.allow(view)
        self.rest = Remainder(self.allowance, policies.step_tokens, view)
        self._victims = Victims(policies, roster, pool, view)
        self.limits = LaneLimits(roster, pool)
        self._future = Future(policies, view, self.limits, self.joined)
        self.joins = self._future.is_open(self.places) or self._victims.give_slots
        self.deferred = policies.defer.deferred(view, joins=self.joins)
        self._singles: set[Sequence] = set()  # the deferred sequences that decode
        self._leasts = Leasts(roster, policies.order, view)
        self._prefixes = Prefixes(pool, roster, view)
        self._misfits = Misfits(pool, self._victims.blocks_behind)
        self.refused: dict[Sequence, Rule] = {}  # waiting ones that were tried and did not join
        self._open = True  # waiting sequences may be tried
        self._in_turns = False  # more sequences run than the step has tokens

    def choose(self) -> None:
        """Fill `shares` and `joined`; move sequences and blocks accordingly. Called once."""
        for kinds in self.policies.mix.choices(self.view):
            self._take(kinds)
            if self.shares:
                self.kinds = kinds
                break
        self._future.close(self.refused, is_far=self._misfits.is_far)
        self.roster.join(self.joined)
        if self._in_turns:
            self.roster.move_to_back(self.shares)  # they are served last in the next step

    def _take(self, kinds: RowKinds) -> None:
        """Serve the decodes first, then the others in the order policy's order."""
        in_turns = len(self.roster.running) > self.rest.tokens
        others = self._take_in_turns(kinds) if in_turns else self._decode(kinds.decode)
        if not kinds.prefill or not (others or self.joins):
            return
        if not (self.joins and self.view.waiting) and self._give_at_once(others):
            return
        others = self._keep_leasts(others) if self._leasts.any else others
        self._consider(self._candidates(others), others)
        if self._singles and not self.rest.time_is_up:  # a full chunk is no reason to miss a step
            self._give_singles([s for s in others if s in self._singles and s not in self.shares])

    def _take_in_turns(self, kinds: RowKinds) -> list[Sequence]:
        """If not all can get a token, serve the running in order, prompts or not. Returns []."""
        self._in_turns = True
        for sequence in tuple(self.roster.running.values()):
            if sequence.pending > 1:
                if kinds.prefill:
                    self._give(sequence)
            elif not (sequence.pending and kinds.decode) or self.rest.tokens <= 0:
                continue
            elif self._has_room(sequence, 1):
                self._share(sequence, 1)
        return []

    def _decode(self, wanted: bool) -> list[Sequence]:
        """If wanted, give a token to each sequence that decodes and may not miss the step. Returns
        the others: those with prompts, and those that may miss it."""
        shares, deferred, others = self.shares, self.deferred, []
        self._singles = singles = set(deferred)
        for sequence in tuple(self.roster.running.values()):
            at = sequence.scheduled
            if (pending := len(sequence.tokens) - at) == 1 and sequence not in deferred:
                if wanted and (at < sequence.room or self._has_room(sequence, 1)):
                    shares[sequence] = 1
            elif pending:
                others.append(sequence)
            if pending != 1:
                singles.discard(sequence)
        self.rest.decode(shares)
        self.limits.count(shares)
        return others

    def _candidates(self, others: list[Sequence]) -> Iterator[Sequence]:
        """Rank these running sequences and, if any may join, the waiting; `start.first` lead."""
        view = self.view._replace(lines=self.limits.open(self.view.lines) if self.joins else ())
        ranked = named_first(in_order(self.policies, view, others, self.limits), self.start)
        if not self._victims.across:
            return ranked
        return in_time_first(ranked, view.lines, others, self._would_stay)

    def _would_stay(self, sequence: Sequence) -> bool:
        """Whether sequences in time would not take this one's slot back."""
        return self.limits.is_kept_for(sequence) or self._victims.would_spare(sequence)

    def _runs(self, sequence: Sequence) -> bool:
        return sequence.number in self.roster.running

    def _consider(self, candidates: Iterator[Sequence], running: list[Sequence]) -> None:
        """Serve candidates until the step is full: these ran before it, the others may join."""
        exclusive, given, shares = self.start.exclusive, self._leasts.given, self.shares
        seen = self._leasts.tried.difference(self.shares)  # an order may name a sequence twice
        singles, left = list[Sequence](), set(running)
        for sequence in candidates:
            if sequence in seen or (sequence in shares and sequence not in given):
                continue
            seen.add(sequence)
            left.discard(sequence)  # also if this step has preempted it
            if sequence in self._singles:
                singles.append(sequence)
            else:
                if singles:
                    self._give_singles(singles)
                if self.rest.is_full and not exclusive:  # a group's rows may come in later steps
                    return
                if self._runs(sequence) or sequence in shares:
                    self._give(sequence)
                elif self._open:
                    self._open = self._try_to_join(sequence)
            if (self.rest.time_is_up and not exclusive) or not (self._open or left):
                break
        if singles:
            self._give_singles(singles)

    def _give_singles(self, singles: list[Sequence]) -> None:
        """Give a token to each of these while there is room, and empty the list."""
        if self.rest.has_any(single=True) and not self._give_at_once(singles):
            half = len(singles) // 2 if len(singles) > FEW else 0
            for part in (singles[:half], singles[half:]) if half else ():
                self._give_singles(part)
            for each in () if half else singles:
                self._give(each)
        singles.clear()

    def _give_at_once(self, singles: list[Sequence]) -> bool:
        """Give each a token if all may miss a step and all fit. Returns whether they do."""
        if self.limits.any or not (self._singles.issuperset(singles) and self.rest.fits(singles)):
            return False
        if lacking := [each for each in singles if each.scheduled >= each.room]:
            for each in lacking:
                self._has_room(each, 1)
            # Leave out those that got no block, and those whose blocks were taken for others.
            singles = [each for each in singles if each.scheduled < each.room]
        self.shares.update(dict.fromkeys(singles, 1))
        self.rest.tokens -= len(singles)
        return True

    def _give(self, sequence: Sequence) -> None:
        """Give the sequence as many of its pending tokens as the step has left."""
        rest, wanted, single = self.rest, sequence.pending, sequence in self._singles
        if not rest.has_any(single=single):
            return
        if kept := self._leasts.take_back(sequence, self.shares) if self._leasts.given else 0:
            self.limits.give(sequence, -kept)
            rest.give_back(sequence, kept)
        wanted = self.limits.within(sequence, wanted if single else rest.cut(wanted))
        take = rest.within_time(sequence, wanted, kept, may_wait=sequence in self.deferred)
        take = max(take, min(wanted, int(not self.shares)))  # a step has at least one row
        if take <= 0 < wanted:
            rest.time_is_up = True
        if take <= 0 or not self._has_room(sequence, take):
            return
        rest.time_is_up = take < wanted
        self._share(sequence, take)
        if not single:
            rest.take_prompt(take, kept)

    def _keep_leasts(self, others: list[Sequence]) -> list[Sequence]:
        """Give out what lanes keep of the step. Returns those of `others` that could use more."""
        for sequence, least in self._leasts.due(others, self.shares):
            if self._runs(sequence):
                self._keep(sequence, least)
            elif self._open and self.joins:
                self._open = self._try_to_join(sequence, least)
        return self._leasts.rest(others, self.shares)

    def _keep(self, sequence: Sequence, least: int) -> None:
        """Give the sequence as many of its pending tokens as its lane lacks of its least."""
        take = self.limits.within(sequence, min(sequence.pending, least, self.rest.tokens))
        if take > 0 and self._has_room(sequence, take):
            self.shares[sequence] = take
            self.limits.give(sequence, take)
            self.rest.keep(sequence, take, prompt=sequence not in self._singles)
            self._leasts.note(sequence, take)

    def _share(self, sequence: Sequence, take: int) -> None:
        self.shares[sequence] = take
        self.limits.give(sequence, take)
        self.rest.take(sequence, take)

    def _has_room(self, sequence: Sequence, take: int) -> bool:
        """Whether the sequence runs and has blocks for `take` more tokens. Preempts if need be."""
        end = sequence.scheduled + take
        if end <= sequence.room:
            return True
        if not self._runs(sequence):  # this step has preempted it
            return False
        need = self.pool.blocks_for(end) - len(sequence.blocks)
        victims, limits = self._victims, self.limits
        while (short := self.pool.num_free < need) or not limits.may_grow(sequence, need):
            victim = victims.next_for(sequence) if short else victims.next_of_lane(sequence)
            if victim is None:
                return False  # the others are in flight: next time
            self._preempt(victim)
            if victim is sequence:
                return False
        grow(self.pool, sequence, need)
        return True

    def _preempt(self, victim: Sequence) -> None:
        self.limits.give(victim, -(taken := self.shares.pop(victim, 0)))
        self.rest.lose(victim, taken)
        self.places += 1
        self.joins |= self.places > 1  # it ends a lull (memory.py), which leaves places
        self._singles.discard(victim)
        self._future.change()
        self._victims.taken(victim)
        self.roster.preempt(victim)

    def _try_to_join(self, sequence: Sequence, least: int = 0) -> bool:
        """Let a waiting sequence join if it fits. Returns whether others may be tried: they may
        overtake a misfit, but not for ever. least: tokens that its lane lacks of its least."""
        if self._misfits.pass_over(sequence):
            return self._refuse(sequence, Rule.BLOCKS, more=not self._misfits.is_far)
        if not self._victims.may_join(sequence):
            return self._refuse(sequence, Rule.PREEMPTING, more=self._victims.let_others_try)
        if sequence.awaits_leader and not self.start.exclusive:
            return self._refuse(sequence, Rule.PREFIX, more=True)
        if not self.limits.may_join(sequence, whole=self.start.exclusive):
            return self.limits.any_open(self.view.lines)  # of which others hold nobody back
        if not self.start.exclusive and self._awaits_prefix(sequence):
            return (self.places > 0 or self._victims.across) and not self._prefixes.is_full
        has_slot = self.places > 0 or self._victims.may_give_to(sequence)
        lasts = has_slot and self._future.has_room(sequence)
        if not lasts or not self._makes_room(sequence):
            rule = Rule.BLOCKS if self.places > 0 else Rule.SLOTS
            return self._refuse(sequence, rule, more=self._is_worth_trying(sequence))
        self.places -= 1
        self._future.change()
        self.joined.append(sequence)
        self.limits.join(sequence)
        if least:
            self._keep(sequence, least)
        else:
            self._give(sequence)
        self._misfits.overtake()
        return self.places > 0 or self._victims.across

    def _awaits_prefix(self, sequence: Sequence) -> bool:
        """Whether it waits while another computes their shared prefix; its slot is kept."""
        own = sequence.pending
        own = self.limits.within(sequence, self.rest.cut(own)) if self.rest.split else own
        if not self._prefixes.keep(sequence, self.shares, self.joined, own):
            return False
        self.places -= 1
        self.limits.keep_slot(sequence)
        return self._refuse(sequence, Rule.PREFIX, more=True)

    def _refuse(self, sequence: Sequence, rule: Rule, *, more: bool) -> bool:
        """Note that `rule` keeps the sequence from joining. Returns `more`: may others be tried?"""
        self.refused[sequence] = rule
        return more

    def _is_worth_trying(self, misfit: Sequence) -> bool:
        """Whether to try others after this one; if not, blocks that come free are kept for it."""
        has_place = self.places > 0 or self._victims.may_give_to(misfit)
        may_join = has_place or not self._victims.are_none
        return self._misfits.add(misfit, has_place) and may_join and not self._future.is_full

    def _makes_room(self, sequence: Sequence) -> bool:
        """Reserve the sequence's blocks, and return whether it worked. If need be, preempts later
        tiers for a slot and blocks, but none if that is not enough."""
        whole = self.start.exclusive
        if self.places > 0 and reserve(self.pool, sequence, whole=whole):
            return True
        if not self._victims.across:
            return False
        for victim in self._victims.behind(sequence, 1 - self.places, whole=whole):
            self._preempt(victim)
        return self.places > 0 and reserve(self.pool, sequence, whole=whole)
