"""Divide a request's wall time, from receipt to the last byte, into stages (wall_stages)."""

from headway.core.accounts.stages import RequestStages
from headway.core.ledger import RequestRow
from headway.server.ledger.rows.open_call import OpenCall

Stages = list[tuple[str, int]]


def wall_stages(known: OpenCall, row: RequestRow | None, staged: RequestStages | None) -> Stages:
    """Nanoseconds of each stage; they sum to the time from receipt to the last byte.

    body | tokenizing | inbox | (the engine's stages) | delivery | sending
         read      entered  taken in              finished     left     sent

    A request may end at the server first, when its client has gone or a stop string is found. The
    engine's later work on it is left out.
    """
    call = known.call
    read, entered = call.routed.read_at, call.entered_at
    stages = [("body", read - call.arrived), ("tokenizing", entered - read)]
    stages += stages_from(entered, known.left, known.sent, row, staged)
    return [(name, spent) for name, spent in stages if spent]


def stages_from(
    entered: int, left: int, sent: int, row: RequestRow | None, staged: RequestStages | None
) -> Stages:
    """The stages from when the request was given to its engine. Some may be 0."""
    if row is None or staged is None:  # the engine refused it, or has failed
        stages = [("inbox" if row else "lost", left - entered)]
        ended = left
    else:
        taken_in = min(staged.taken_in, left)
        ended = min(row.finished, left)
        stages = [("inbox", taken_in - entered), *cut(staged.stages, ended - taken_in)]
    return [*stages, ("delivery", left - ended), ("sending", sent - left)]


def cut(stages: tuple[tuple[str, int], ...], total: int) -> Stages:
    """The stages shortened to `total` nanoseconds in all; the excess is cut from the last ones."""
    excess = sum([spent for _, spent in stages]) - total
    kept: Stages = []
    for name, spent in reversed(stages):
        lost = min(spent, max(0, excess))
        excess -= lost
        kept.append((name, spent - lost))
    return kept[::-1]
