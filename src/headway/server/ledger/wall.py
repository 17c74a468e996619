"""All of a request's wall time, stage by stage, from its receipt to the last byte (wall_stages)."""

from headway.core.accounts.stages import RequestStages
from headway.core.ledger import RequestRow
from headway.server.ledger.open_call import OpenCall

Stages = list[tuple[str, int]]


def wall_stages(known: OpenCall, row: RequestRow | None, staged: RequestStages | None) -> Stages:
    """Nanoseconds of each stage. They sum to the time from receipt to the last byte.

    body | tokenizing | inbox | (the engine's stages) | delivery | sending
         read      entered  taken in              finished     left     sent

    A request may end at the server first: its client has gone, or a stop string was found. What the
    engine did with it after that is no part of it.
    """
    call = known.call
    read, entered = call.routed.read_at, call.entered_at
    stages = [("body", read - call.arrived), ("tokenizing", entered - read)]
    if row is None or staged is None:  # the engine refused it, or has failed
        stages.append(("inbox" if row else "lost", known.left - entered))
        ended = known.left
    else:
        taken_in = min(staged.taken_in, known.left)
        ended = min(row.finished, known.left)
        stages.append(("inbox", taken_in - entered))
        stages += cut(staged.stages, ended - taken_in)
    stages += [("delivery", known.left - ended), ("sending", known.sent - known.left)]
    return [(name, spent) for name, spent in stages if spent]


def cut(stages: tuple[tuple[str, int], ...], total: int) -> Stages:
    """These stages without what goes beyond so many nanoseconds, which the last ones lose."""
    excess = sum([spent for _, spent in stages]) - total
    kept: Stages = []
    for name, spent in reversed(stages):
        lost = min(spent, max(0, excess))
        excess -= lost
        kept.append((name, spent - lost))
    return kept[::-1]
