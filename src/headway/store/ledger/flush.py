"""A unit of writing to the ledger (Flush), and the accounts of device time (Account)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

HOUR = 3_600_000_000_000  # nanoseconds
MINUTE = 60_000_000_000


class Account(StrEnum):
    """The account of each nanosecond of a device. `open` is 0 once all requests have ended."""

    REQUESTS = "requests"  # the shares of ended requests, by lane
    WASTE = "waste"  # padding, held slots, sequences that had already ended
    IDLE = "idle"  # between steps
    OPEN = "open"  # the shares of requests that have not ended; subtracted when they end
    UNRECORDED = "unrecorded"  # lost in a crash, or for lack of memory


class MinuteKey(NamedTuple):
    """The key of a row of ledger_minutes, without its writer."""

    minute: int
    account: Account
    lane: str = ""


@dataclass(slots=True)
class MinutePart:
    """The counts to add to a row of ledger_minutes."""

    nanoseconds: int = 0
    money: int = 0
    steps: int = 0
    rows: int = 0
    requests: int = 0


class SpendKey(NamedTuple):
    """The key of a row of ledger_spend, without its writer."""

    day: int
    key: str
    lane: str


@dataclass(frozen=True, slots=True)
class Flush:
    """One batch of a writer's data, stored as a whole and only once."""

    number: int  # 1 for the writer's first
    until: int  # Unix nanoseconds up to which device time is accounted for
    requests: Sequence[Mapping[str, Any]] = ()  # rows of ledger_requests, without their writer
    minutes: Mapping[MinuteKey, MinutePart] = field(default_factory=dict)
    spend: Mapping[SpendKey, int] = field(default_factory=dict)
    device_ns: int = 0  # the sum of the minutes
    open_ns: int = 0  # the part of it in the account `open`
    closes: bool = False  # the writer's last flush
    since: int = 0  # `until` of the previous flush
    open_before: int = 0  # the account `open` after the previous flush
    device_before: int = 0  # device time of all previous flushes


def money(per_hour: int, nanoseconds: int) -> int:
    """The cost of this much device time, in billionths, rounded down."""
    return per_hour * nanoseconds // HOUR


def divide_money(parts: Mapping[MinuteKey, MinutePart], per_hour: int, before: int) -> None:
    """Set each part's money, so that all parts of a writer always sum to the cost of their time.

    before: nanoseconds of the writer's earlier parts. Each part's money is the change that it makes
    to the rounded total, so rounding loses nothing between parts.
    """
    for part in parts.values():
        after = before + part.nanoseconds
        part.money = money(per_hour, after) - money(per_hour, before)
        before = after
