"""What becomes of requests that are late (relegate)."""

from collections.abc import Collection, Iterable

from headway.core.batch import Event
from headway.core.kv.block_table import cached
from headway.core.kv.blocks import BlockPool
from headway.core.policies.relegate import Relegate, is_late_to_end
from headway.core.request import NEVER
from headway.core.sequences.roster import Roster
from headway.core.sequences.sequence import Sequence
from headway.core.settings import Settings
from headway.core.view import View


def relegate(
    settings: Settings, roster: Roster, pool: BlockPool, view: View, promised: Collection[Sequence]
) -> tuple[list[Event], list[tuple[Sequence, str]]]:
    """Relegate requests that can no longer keep their budget, and restore those that can again.

    promised: waiting requests that are not expected in time, in lanes that refuse late ones. Those
    whose prompts another request has begun to compute since then are judged like all others.

    Returns what callers are to hear, and the requests to end with the words for each: they wait
    for their first token, and their lane refuses late requests.
    """
    events: list[Event] = []
    refused: list[tuple[Sequence, str]] = []
    policy = settings.policies.relegate
    for early in tuple(policy.restored(view)):
        roster.restore(early)
    # A set in their order. A promise counts a whole prompt of which the step has computed a part.
    unkept = dict.fromkeys([each for each in promised if not _finds_more(pool, each)])
    for late in dict.fromkeys((*unkept, *_late(policy, roster, pool, view, unkept))):
        # An answer that its caller reads already is not broken off, though it may wait again.
        may_end = late.number not in roster.running and late.first_seen == NEVER
        if late in unkept or (may_end and roster.lines[late.request.lane].lane.refuses_late):
            refused.append((late, _words(late, view, is_promised=late in unkept)))
        else:
            roster.relegate(late)
            events.append(Event(late.request.id, relegated=True))
    return events, refused


def _late(
    policy: Relegate, roster: Roster, pool: BlockPool, view: View, unkept: Collection[Sequence]
) -> Iterable[Sequence]:
    """The late by the policy. Those that wait are first looked up in the prefix cache, except the
    `unkept`, which end anyway. If that finds more, the policy is asked once more for all of them: a
    prompt that many share may make many of them late at once."""
    found = tuple(policy.relegated(view))
    waiting = [s for s in found if s.number not in roster.running and s not in unkept]
    grown = [s for s in waiting if _finds_more(pool, s)]
    return policy.relegated(view) if grown else found


def _words(late: Sequence, view: View, *, is_promised: bool) -> str:
    """The words for the caller of a request that is refused."""
    arrived, ends = late.request.arrived, not is_promised and is_late_to_end(late, view)
    limit = (late.done_by if ends else late.first_by) - arrived
    what = "end" if ends else "first token"
    return f"its {what} is not expected within {limit / 1e9:g} s of its arrival"


def _finds_more(pool: BlockPool, sequence: Sequence) -> bool:
    """Look up a waiting prompt in the prefix cache again. Returns whether more of it is there."""
    before, sequence.hit = sequence.hit, cached(pool, sequence)
    return sequence.hit > before
