"""The tokens of a step that lanes keep for themselves (Leasts)."""

from collections.abc import Collection, Iterator
from operator import attrgetter

from headway.core.lane import Lane
from headway.core.policies.order import Order
from headway.core.sequences.roster import Roster
from headway.core.sequences.sequence import Sequence
from headway.core.view import View

Shares = dict[Sequence, int]  # tokens that the step computes of each sequence
_number = attrgetter("number")


class Leasts:
    """Gives each lane its least of step tokens, as far as its sequences can use them, before any
    sequence gets more than its next token. Lanes go in the order of the configuration. In a lane,
    running sequences go by arrival, then waiting ones that have a slot within the lane's least.

    A sequence that could use more is also considered with the others. Lanes without a least cost
    nothing.
    """

    def __init__(self, roster: Roster, order: Order, view: View) -> None:
        self.roster, self.order, self.view = roster, order, view
        self.any = bool(roster.keeping_lanes)
        self.given: Shares = {}  # to sequences that could use more
        self.tried: set[Sequence] = set()  # sequences that waited before the step

    def due(self, others: Collection[Sequence], shares: Shares) -> Iterator[tuple[Sequence, int]]:
        """Yield each sequence with the most tokens it may have. What it got in `shares` is counted
        before the next one. others: running sequences that lack more than one token, or may miss
        the step.
        """
        for lane in self.roster.keeping_lanes:
            given = [count for each, count in shares.items() if each.request.lane == lane.name]
            least = lane.step_tokens.least - sum(given)
            candidates = self._candidates(lane, others, shares)
            # One by one: a sequence that is named but not tried would miss the step.
            while least > 0 and (sequence := next(candidates, None)):
                yield sequence, least
                least -= shares.get(sequence, 0)

    def _candidates(
        self, lane: Lane, others: Collection[Sequence], shares: Shares
    ) -> Iterator[Sequence]:
        yield from sorted([s for s in others if s.request.lane == lane.name], key=_number)
        line = self.roster.lines[lane.name]
        lacks = min(lane.slots.least - line.running, len(line))
        if lacks <= 0:  # no need to ask the order
            return
        ranked = self.order.rank(self.view, ())  # it may name a sequence twice
        mine = (s for s in ranked if s.request.lane == lane.name and s not in self.tried)
        for sequence in mine:
            self.tried.add(sequence)
            yield sequence
            lacks -= sequence in shares  # one that does not fit lets those behind it try
            if lacks <= 0:
                return

    def note(self, sequence: Sequence, tokens: int) -> None:
        """Note the tokens that a sequence was given, if it could use more and its blocks suffice
        for all its tokens, as a prompt's do."""
        if sequence.scheduled + tokens < len(sequence.tokens) <= sequence.room:
            self.given[sequence] = tokens

    def take_back(self, sequence: Sequence, shares: Shares) -> int:
        """Take back what the sequence was given. Returns those tokens; 0: none."""
        given = self.given.pop(sequence, 0)
        return shares.pop(sequence, 0) if given else 0

    def rest(self, others: Collection[Sequence], shares: Shares) -> list[Sequence]:
        """Those of `others` that could use more."""
        return [each for each in others if each not in shares or each in self.given]
