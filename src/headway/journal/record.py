"""One step of a journal (Record), and the digest of its rows."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import pack
from zlib import crc32

from headway.core.batch import Row
from headway.core.commands import Command


@dataclass(frozen=True, slots=True)
class Record:
    """One step, or one idle poll that took in commands."""

    step: int  # 0: commands came or requests expired, and no step was run
    now: int  # when the step was decided, as the scheduler was told
    commands: tuple[Command, ...]  # in the order they were applied
    tokens: tuple[tuple[int, ...], ...] = ()  # sampled, by row
    errors: dict[int, str] = field(default_factory=dict)
    nanoseconds: int = 0  # from `now` to its commit
    host: int = 0  # of them, those in which the device waited for the host
    digest: int = 0  # of its rows; 0: no rows


def digest(rows: Iterable[Row]) -> int:
    """32 bits of each row's sequence, start, length and want."""
    plain = list[int]()
    for sequence, start, tokens, _, want in rows:
        plain += (sequence, start, len(tokens), want)
    return crc32(pack(f"<{len(plain)}q", *plain))
