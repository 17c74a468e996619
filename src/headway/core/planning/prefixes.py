"""Which sequences wait while another computes the prefix of their prompts (Prefixes)."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice

from headway.core.kv.block_table import matchable
from headway.core.kv.blocks import BlockPool
from headway.core.request import NEVER
from headway.core.sequences.roster import Roster
from headway.core.sequences.sequence import Sequence
from headway.core.view import View

LEAST = 2  # blocks that waiting must save; SGLang's threshold is 32 tokens, two blocks of 16
MOST = 64  # sequences that a step keeps waiting, at most: each of them is hashed


class Prefixes:
    """The prefixes that are being computed, in one step. Requests with the same new prefix compute
    it once (as SGLang's in-batch prefix caching does within a queue).

    A block is in the prefix cache from the commit of the step that fills it. Before that, another
    sequence with the same prefix would compute it again. It waits instead, and joins when it can
    use the blocks:

    leader    |<- published ->|<- in flight, in this step ->|<- later ->|
    waiting   |<- would match |<------- the same tokens ---------->|<- its own ->|

    A sequence waits only for a leader that this step, or one in flight, computes: never for one
    that stands still. It waits only if that takes no more steps than to compute the shared blocks
    itself. It does not wait if it could have its first token from this step and might be late
    otherwise. Its slot is kept, so no other sequence overtakes it because it shares.
    """

    def __init__(self, pool: BlockPool, roster: Roster, view: View) -> None:
        self.pool, self.roster, self.view = pool, roster, view
        self.waiting: list[Sequence] = []  # sequences that wait for a prefix in this step
        # By the number of blocks that they have published, and the hash of the next one:
        self._leaders: dict[int, dict[bytes, Sequence]] = {}
        self._looked = False
        self._joined = 0  # how many of those that join were looked at as leaders

    @property
    def is_full(self) -> bool:
        """Whether as many sequences wait as a step keeps waiting."""
        return len(self.waiting) >= MOST

    def keep(
        self, sequence: Sequence, shares: dict[Sequence, int], joined: list[Sequence], own: int
    ) -> bool:
        """Whether a sequence that could join waits for a prefix instead.

        shares, joined: the step so far. own: tokens that the step would compute of it.
        """
        self._look(joined)
        if not self._leaders or (leader := self._leader(sequence)) is None:
            return False
        taken = shares.get(leader, 0)
        if not taken and not leader.in_flight:
            return False
        size, begin = self.pool.block_size, leader.published
        end = begin + _equal(sequence.hashes[begin:], leader.hashes[begin:])
        if not taken:  # only what is in flight comes
            end = min(end, leader.scheduled // size)
        if end - begin < LEAST:
            return False
        left = end * size - leader.scheduled - taken
        steps = 1 + (-(-left // taken) if left > 0 else 0)
        if steps > -(-(end - begin) * size // max(1, own)):
            return False
        if own >= sequence.pending - begin * size and self._hurries(sequence):
            return False
        self.waiting.append(sequence)
        return True

    def _look(self, joined: list[Sequence]) -> None:
        """Find the sequences whose next blocks are not in the cache yet."""
        if not self._looked:
            self._looked = True
            self._note(self.roster.running.values())
        self._note(islice(joined, self._joined, None))
        self._joined = len(joined)

    def _note(self, sequences: Iterable[Sequence]) -> None:
        """Note the leaders: of sequences that compute the same block next, the first."""
        for each in sequences:
            if len(each.hashes) - each.published >= LEAST:
                following = self._leaders.setdefault(each.published, {})
                following.setdefault(each.hashes[each.published], each)

    def _leader(self, sequence: Sequence) -> Sequence | None:
        """The sequence that computes the first block that this one would not find in the cache."""
        full = matchable(self.pool, sequence)
        hashes = sequence.hashes
        for place, following in self._leaders.items():
            leader = following.get(hashes[place]) if place < full else None
            if leader and len(self.pool.match(hashes[:full])) == place:
                return leader
        return None

    def _hurries(self, sequence: Sequence) -> bool:
        """Whether waiting might make the sequence late: it is still in time, but has less time left
        than twice its prompt takes."""
        if (by := sequence.next_by) == NEVER:
            return False
        return 0 <= by - self.view.now < 2 * self.view.estimates.first_token(sequence)


def _equal(some: list[bytes], others: list[bytes]) -> int:
    """How many hashes both begin with. They are chained: behind a difference all differ."""
    return bisect_left(
        range(min(len(some), len(others))), True, key=lambda at: some[at] != others[at]
    )
