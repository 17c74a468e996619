"""One record of a journal (Record), and the digest of its rows."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import pack
from zlib import crc32

from headway.core.batch import Row
from headway.core.commands import Command


@dataclass(frozen=True, slots=True)
class Record:
    """One turn of the engine's loop: the step that was decided, and the step that came back.

    With depth 1 these are the same step.
    """

    step: int  # the step that was decided; 0: none
    now: int  # when the step was decided, as the scheduler was told
    commands: tuple[Command, ...]  # in the order they were applied
    collected: int = 0  # the step that came back; 0: none
    tokens: tuple[tuple[int, ...], ...] = ()  # sampled in the collected step, by row
    errors: dict[int, str] = field(default_factory=dict)  # of the collected step, by row
    nanoseconds: int = 0  # from `now` to the commit of the collected step
    host: int = 0  # nanoseconds in which the device waited for the host
    digest: int = 0  # of the rows of the step that was decided; 0: no rows


def digest(rows: Iterable[Row]) -> int:
    """32 bits of each row's sequence, start, length and want."""
    plain = list[int]()
    for sequence, start, tokens, _, want in rows:
        plain += (sequence, start, len(tokens), want)
    return crc32(pack(f"<{len(plain)}q", *plain))
