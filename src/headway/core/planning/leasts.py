"""The tokens of a step that lanes keep for themselves (Leasts)."""

from collections.abc import Collection, Iterator
from operator import attrgetter

from headway.core.lane import Lane
from headway.core.policies.order import Order
from headway.core.roster import Roster
from headway.core.sequence import Sequence
from headway.core.view import View

Shares = dict[Sequence, int]  # tokens that the step computes of each
_number = attrgetter("number")


class Leasts:
    """Each lane with a least of step tokens gets these before anybody gets more than its next
    token, as far as its sequences can use them. Lanes go in the order of the configuration; in a
    lane, those that run, by arrival, then those that wait and have a slot within its least.

    Whoever could use more than that is considered with the others, too. Lanes without a least
    cost nothing.
    """

    def __init__(self, roster: Roster, order: Order, view: View) -> None:
        self.roster, self.order, self.view = roster, order, view
        self.any = bool(roster.keeping_lanes)
        self.given: Shares = {}  # to those that could use more
        self.tried: set[Sequence] = set()  # that waited before the step

    def due(self, others: Collection[Sequence], shares: Shares) -> Iterator[tuple[Sequence, int]]:
        """Who may have how many tokens. The next one depends on what they got of the step.

        others: those that run and lack more than a token, or may miss the step.
        """
        for lane in self.roster.keeping_lanes:
            given = [count for each, count in shares.items() if each.request.lane == lane.name]
            least = lane.step_tokens.least - sum(given)
            for sequence in self._candidates(lane, others, shares):
                if least <= 0:
                    break
                yield sequence, least
                least -= shares.get(sequence, 0)

    def _candidates(
        self, lane: Lane, others: Collection[Sequence], shares: Shares
    ) -> Iterator[Sequence]:
        yield from sorted([s for s in others if s.request.lane == lane.name], key=_number)
        line = self.roster.lines[lane.name]
        lacks = min(lane.slots.least - line.running, len(line))
        if lacks <= 0:  # the order is not asked
            return
        ranked = self.order.rank(self.view, ())  # it may name somebody twice
        mine = (s for s in ranked if s.request.lane == lane.name and s not in self.tried)
        for sequence in mine:
            self.tried.add(sequence)
            yield sequence
            lacks -= sequence in shares  # one that does not fit lets those behind it try
            if lacks <= 0:
                return

    def note(self, sequence: Sequence, tokens: int) -> None:
        """It was given so many. It may have more if its blocks suffice, as a prompt's do."""
        if sequence.scheduled + tokens < len(sequence.tokens) <= sequence.room:
            self.given[sequence] = tokens

    def take_back(self, sequence: Sequence, shares: Shares) -> int:
        """What it was given, which it has no longer; 0: nothing."""
        given = self.given.pop(sequence, 0)
        return shares.pop(sequence, 0) if given else 0

    def rest(self, others: Collection[Sequence], shares: Shares) -> list[Sequence]:
        """Those of the others who could use more."""
        return [each for each in others if each not in shares or each in self.given]
