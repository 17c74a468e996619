"""What a route has decided: a DecisionRow for each request, with an AttemptRow for each target.

Every metric is a property of a row (docs/metrics.md).
"""

from dataclasses import dataclass
from enum import StrEnum

from headway.core.request import NEVER


class Why(StrEnum):
    """Why a target was asked, or not."""

    RULE = "rule"  # the first rule that matches
    LEAST_LOADED = "least_loaded"
    CHEAPEST = "cheapest"  # of those that are predicted to keep the deadline
    SOONEST = "soonest"  # nobody was predicted to keep the deadline
    FIRST = "first"  # the first of a cascade or fallback
    SAMPLE = "sample"  # another answer of the same target, to compare
    MEMBER = "member"  # of an ensemble
    ESCALATED = "escalated"  # the answer before it was not good enough, or did not come
    SPECULATIVE = "speculative"  # the deadline left no more time to wait for the answer before it
    AFTER_REFUSAL = "after_refusal"
    AFTER_ERROR = "after_error"
    AFTER_LATENESS = "after_lateness"  # the one before it did not answer within its timeout
    AFTER_SKIP = "after_skip"  # those before it were not asked
    PROBE = "probe"  # its circuit is half open: does it answer again?
    # Why it was not asked:
    NO_TIME = "no_time"  # it is predicted to miss the deadline
    CIRCUIT_OPEN = "circuit_open"  # it has failed repeatedly
    RETRY_LATER = "retry_later"  # it has refused before, and said when to come back


class Outcome(StrEnum):
    """What became of an attempt."""

    WON = "won"  # its answer was given to the caller
    REJECTED = "rejected"  # it answered, and was judged not good enough
    LOST = "lost"  # another answer was taken: it was cancelled, unless it had answered
    LATE = "late"  # cancelled at its timeout or the deadline
    REFUSED = "refused"
    FAILED = "failed"
    CANCELLED = "cancelled"  # the caller left
    SKIPPED = "skipped"  # it was not asked


class Basis(StrEnum):
    """Where the cost of the last target alone is from."""

    MEASURED = "measured"  # it has answered this request
    ESTIMATED = "estimated"  # learned from its earlier answers
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One target, and this request. Times in nanoseconds."""

    id: str  # the request's, and a number; a nested route's DecisionRow has it
    target: str
    why: Why
    words: str  # the same in words, with figures
    outcome: Outcome
    began: int  # NEVER: it was not asked
    ended: int  # when it answered, failed or was cancelled; NEVER: it was not asked
    nanoseconds: int  # device time
    cost: int  # billionths of the unit of price
    is_measured: bool  # else its device time is estimated, or unknown and 0
    error: str = ""  # why it gave no answer
    answered: bool = False  # it gave an answer, whatever became of it
    verdict: str = ""  # what the route made of the answer, in words

    @property
    def span(self) -> int:
        """Nanoseconds that it took; 0 if it was not asked."""
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
    """One request of a route, once it has ended and all its attempts are accounted for."""

    id: str
    route: str  # its name
    kind: str  # Rules, LeastLoaded, Cheapest, Cascade, Ensemble, Fallback, or a class of your own
    lane: str
    tenant: str
    arrived: int
    finished: int  # when the caller had its answer or its error; losers may end a little later
    deadline: int  # NEVER: none
    attempts: tuple[AttemptRow, ...]  # in the order in which they were begun or skipped
    # Index of the attempt whose answer was given, or whose stream was, to its end or not; -1: none.
    winner: int
    error: str  # what the caller was told instead of a whole answer; empty: it has one
    accepted: bool  # False: the answer was judged not good enough, and given all the same
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
        """What asking the last target alone would have cost more, in billionths of the unit of
        price. Negative: the route cost more. 0 where the baseline's basis is unknown."""
        return self.baseline.cost - self.cost if self.baseline.basis != Basis.UNKNOWN else 0

    @property
    def saved_nanoseconds(self) -> int:
        """Device time that was saved likewise."""
        known = self.baseline.basis != Basis.UNKNOWN
        return self.baseline.nanoseconds - self.nanoseconds if known else 0

    @property
    def e2e(self) -> int:
        return self.finished - self.arrived

    @property
    def good(self) -> bool:
        """Whether it has an answer, which came within the deadline."""
        return not self.error and self.finished <= self.deadline
