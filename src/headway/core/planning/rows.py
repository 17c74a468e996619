"""The second phase of a step: rows of the sequences that kept their blocks (build_rows)."""

from collections.abc import Mapping

from headway.core.batch import Begun, Row, Want
from headway.core.sequences.cells import Cells
from headway.core.sequences.roster import Roster
from headway.core.sequences.sequence import Sequence

NOTHING, LAST = Want.NOTHING, Want.LAST
make = tuple.__new__  # of a Row, a sixth of a step faster than Row(...): decisions/0002


def build_rows(
    shares: Mapping[Sequence, int], roster: Roster, now: int, *, ahead: bool
) -> tuple[tuple[Row, ...], tuple[Begun, ...]]:
    """Build the rows of a step from each sequence's share, and a Begun for each that begins.

    ahead: the next step may be decided before this one is back. Then the token that a row samples
    has its place from now on, although it is not known yet.
    """
    rows: list[Row] = []
    begun: list[Begun] = []
    for sequence, take in shares.items():
        start, tokens, blocks = sequence.scheduled, sequence.tokens, sequence.blocks
        end = start + take
        if not sequence.begun:
            begun.append(roster.begin(sequence, now))
        added: tuple[int, ...] = ()
        if sequence.sent < len(blocks):
            added = tuple(blocks[sequence.sent :])
            sequence.sent = len(blocks)
        mine: tuple[int, ...] | range
        if take == 1:
            mine = (tokens[start],)
        elif isinstance(tokens, Cells):
            mine = tokens.part(start, end)
        else:
            mine = tuple(tokens[start:end])
        known = len(tokens)
        want = LAST if end == known and known < sequence.limit else NOTHING
        if sequence.scores and sequence.unscored(start, end):
            want |= Want.PROMPT
        if sequence.pools:
            want |= Want.VECTOR
        rows.append(make(Row, (sequence.number, start, mine, added, want)))
        sequence.scheduled = end
        if ahead and want & LAST and known + 1 < sequence.limit and not sequence.reads:
            sequence.expect()
    return tuple(rows), tuple(begun)
