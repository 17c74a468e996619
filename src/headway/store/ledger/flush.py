"""What is written to the ledger at once (Flush), and where device time goes (Account)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

HOUR = 3_600_000_000_000  # nanoseconds
MINUTE = 60_000_000_000


class Account(StrEnum):
    """Every nanosecond of a device is in one of these. `open` is nothing, once all have ended."""

    REQUESTS = "requests"  # the shares of requests that have ended, in their lane
    WASTE = "waste"  # padding, held slots, sequences that had ended
    IDLE = "idle"  # between steps
    OPEN = "open"  # shares of requests that have not ended; taken off again when they end
    UNRECORDED = "unrecorded"  # lost: in a crash, or because there was no room to remember it


class MinuteKey(NamedTuple):
    """Of a row of ledger_minutes, without its writer."""

    minute: int
    account: Account
    lane: str = ""


@dataclass(slots=True)
class MinutePart:
    """What is added to a row of ledger_minutes."""

    nanoseconds: int = 0
    money: int = 0
    steps: int = 0
    rows: int = 0
    requests: int = 0


class SpendKey(NamedTuple):
    """Of a row of ledger_spend, without its writer."""

    day: int
    key: str
    lane: str


@dataclass(frozen=True, slots=True)
class Flush:
    """One batch of a writer: stored whole and once, or not at all."""

    number: int  # 1 for the writer's first
    until: int  # Unix nanoseconds: device time is accounted for up to here
    requests: Sequence[Mapping[str, Any]] = ()  # rows of ledger_requests, without their writer
    minutes: Mapping[MinuteKey, MinutePart] = field(default_factory=dict)
    spend: Mapping[SpendKey, int] = field(default_factory=dict)
    device_ns: int = 0  # the sum of the minutes
    open_ns: int = 0  # of them, of the account `open`
    closes: bool = False  # the writer ends with it
    since: int = 0  # `until` of the flush before it
    open_before: int = 0  # the account `open` after that one


def money(per_hour: int, nanoseconds: int) -> int:
    """What so much device time costs, in billionths, rounded down."""
    return per_hour * nanoseconds // HOUR


def divide_money(parts: Mapping[MinuteKey, MinutePart], per_hour: int, before: int) -> None:
    """Give each part its money, so that all parts of a writer ever sum to the money of their time.

    before: nanoseconds of the writer's earlier parts. Each part gets the difference that it makes
    to the rounded total, so that nothing is lost between them.
    """
    for part in parts.values():
        after = before + part.nanoseconds
        part.money = money(per_hour, after) - money(per_hour, before)
        before = after
