"""What a route has decided: a DecisionRow for each request, with an AttemptRow for each attempt.

Every metric is a property of a row (docs/metrics.md).
"""

from dataclasses import dataclass
from enum import StrEnum

from headway.core.request import NEVER


class Why(StrEnum):
    """Why a target was asked, or why not."""

    RULE = "rule"  # the first matching rule names it
    LEAST_LOADED = "least_loaded"
    CHEAPEST = "cheapest"  # of the targets predicted to keep the budget; or not yet predictable
    SOONEST = "soonest"  # no target was predicted to be in time; this one is predicted first
    FIRST = "first"  # the first of a cascade or fallback
    SAMPLE = "sample"  # another answer of the same target, to compare
    MEMBER = "member"  # of an ensemble
    ESCALATED = "escalated"  # the previous target's answer was not good enough, or did not come
    SPECULATIVE = "speculative"  # no time was left to wait for the previous target's answer
    AFTER_REFUSAL = "after_refusal"
    AFTER_ERROR = "after_error"
    AFTER_LATENESS = "after_lateness"  # the previous target did not answer within its timeout
    AFTER_SKIP = "after_skip"  # the targets before it were not asked
    PROBE = "probe"  # its circuit is half open, or its prediction is old: this request probes it
    # Why it was not asked:
    NO_TIME = "no_time"  # it is predicted to miss the deadline
    CIRCUIT_OPEN = "circuit_open"  # it has failed repeatedly
    RETRY_LATER = "retry_later"  # it has refused before, and said when to retry


class Outcome(StrEnum):
    """What became of an attempt."""

    WON = "won"  # its answer was given to the caller
    REJECTED = "rejected"  # its answer was judged not good enough
    LOST = "lost"  # another answer was taken: cancelled, unless it had already answered
    LATE = "late"  # cancelled at its timeout or the deadline
    REFUSED = "refused"
    FAILED = "failed"
    CANCELLED = "cancelled"  # the caller left
    SKIPPED = "skipped"  # the target was not asked


class Basis(StrEnum):
    """Where the cost of the last target alone comes from."""

    MEASURED = "measured"  # the last target answered this request, and its bill is measured
    ESTIMATED = "estimated"  # learned from its earlier answers, or from a bill that is an estimate
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt: one request as sent to one target. Times in nanoseconds."""

    id: str  # the request's id and a number; a nested route's DecisionRow has the same id
    target: str
    why: Why
    words: str  # the reason in words, with figures
    outcome: Outcome
    began: int  # NEVER: the target was not asked
    ended: int  # when it answered, failed or was cancelled; NEVER: the target was not asked
    nanoseconds: int  # device time
    cost: int  # billionths of the unit of price
    is_measured: bool  # False: the device time is estimated, or unknown and 0
    error: str = ""  # why it gave no answer
    answered: bool = False  # it gave an answer, used or not
    verdict: str = ""  # what the route made of the answer, in words

    @property
    def span(self) -> int:
        """Nanoseconds from begin to end; 0 if the target was not asked."""
        return 0 if self.began == NEVER else self.ended - self.began


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the last target alone would have cost. A route's largest target is its last."""

    target: str = ""
    nanoseconds: int = 0  # device time
    cost: int = 0  # billionths of the unit of price
    span: int = 0  # until its answer
    basis: Basis = Basis.UNKNOWN


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One request of a route, once it has ended and the cost of every attempt is known."""

    id: str
    route: str  # its name
    kind: str  # Rules, LeastLoaded, Cheapest, Cascade, Ensemble, Fallback, or a class of your own
    lane: str
    tenant: str
    arrived: int
    finished: int  # when the caller had its answer or its error; losers may end a little later
    deadline: int  # NEVER: none
    attempts: tuple[AttemptRow, ...]  # in the order in which they were begun or skipped
    # Index of the attempt whose answer or stream was given, even if not to its end; -1: none.
    winner: int
    error: str  # what the caller was told instead of a whole answer; empty: it got one
    accepted: bool  # False: judged not good enough but given anyway, or there is no answer
    baseline: Baseline

    @property
    def nanoseconds(self) -> int:
        """Device time of all attempts."""
        return sum([each.nanoseconds for each in self.attempts])

    @property
    def cost(self) -> int:
        """Billionths of the unit of price, of all attempts."""
        return sum([each.cost for each in self.attempts])

    @property
    def wasted(self) -> int:
        """Device time of the attempts whose answer was not given."""
        return sum([each.nanoseconds for at, each in enumerate(self.attempts) if at != self.winner])

    @property
    def is_measured(self) -> bool:
        """Whether the device time of every attempt is measured."""
        return all(each.is_measured or each.began == NEVER for each in self.attempts)

    @property
    def saved(self) -> int:
        """How much more the last target alone would have cost, in billionths of the unit of price.
        Negative: the route cost more. 0 if the baseline's basis is unknown."""
        return self.baseline.cost - self.cost if self.baseline.basis != Basis.UNKNOWN else 0

    @property
    def saved_nanoseconds(self) -> int:
        """How much more device time the last target alone would have taken; else as `saved`."""
        known = self.baseline.basis != Basis.UNKNOWN
        return self.baseline.nanoseconds - self.nanoseconds if known else 0

    @property
    def e2e(self) -> int:
        return self.finished - self.arrived

    @property
    def good(self) -> bool:
        """Whether the caller got a whole answer within the deadline."""
        return not self.error and self.finished <= self.deadline
