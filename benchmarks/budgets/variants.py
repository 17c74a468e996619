"""What is compared: first come in several forms, and the parts of `budgets`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.budgets.mixes import Mix
from benchmarks.budgets.sliding import BySlidingDeadline
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.chunk import Fixed
from headway.core.policies.defer import Nobody, WithoutDeadline
from headway.core.policies.join import Continuous
from headway.core.policies.memory import Ahead, Now
from headway.core.policies.order import FirstCome, Priority
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane, Youngest
from headway.core.policies.relegate import Hopeless, Keep
from headway.strategies.registry import by_budgets

CHUNKS = (256, 512, 1_024, 2_048, 4_096)  # tokens
SMALLER = 4  # times smaller on the embedded model, whose steps take equally long
SHARES = (0.3, 0.5, 0.7, 0.9)  # of the TTFT budget, that a request may queue before it is dropped
GAINS = (10.0, 100.0, 1_000.0)
FIRST_COME, TIMEOUT, SLIDING = "first come", "queue timeout", "sliding alpha"
# In the order in which the parts are added, then each alone, then all without one
SLACK, RELEGATION, FILLER, AHEAD = "+ slack steps", "+ relegation", "+ filler", "+ memory ahead"
LADDER = ("priority", "deadline order", SLACK, RELEGATION, FILLER, AHEAD, "budgets")
ALONE = ("slack steps alone", "relegation alone", "filler alone")
WITHOUT = (
    "without the order",
    "without slack steps",
    "without relegation",
    "without memory ahead",
)
MORE = ("budgets, memory ahead for all",)
SLOWNESS = 1_300
SLOW = ("first come, 1.3 x slower than foretold", "budgets, 1.3 x slower than foretold")
ORDERS = ("earliest deadline", SLIDING)
IMPATIENT = "priority, queue timeout"


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to serve, and when it gives up on a request that waits."""

    name: str
    policies: Policies
    timeout: float = 0.0  # share of the TTFT budget; 0: never
    slowness: int = 1_000  # thousandths: the time of a step over what the cost model says


def first_come(slots: int, chunk: int, timeout: float = 0.0) -> Variant:
    """In chunks of one size, with or without a queue timeout."""
    policies = Policies(Continuous(slots), chunk=Fixed(chunk), step_tokens=slots + chunk)
    name = f"{TIMEOUT} {timeout:g} chunk {chunk}" if timeout else f"{FIRST_COME} chunk {chunk}"
    return Variant(name, policies, timeout)


def parts(slots: int, chunk: int) -> list[Variant]:
    """The ladder, each part alone, and everything without one part.

    chunk: of those without slack steps: the best for first come."""
    plain, whole = first_come(slots, chunk).policies, by_budgets(slots)
    filler = replace(whole, defer=WithoutDeadline())
    unrelegated = replace(whole, preempt=Youngest(), defer=Nobody(), relegate=Keep(), memory=Now())
    policies: Mapping[str, Policies] = {
        "priority": replace(plain, order=Priority()),
        "deadline order": replace(plain, order=ByDeadline()),
        SLACK: unrelegated,
        RELEGATION: replace(unrelegated, relegate=Hopeless()),
        FILLER: replace(filler, memory=Now()),
        AHEAD: filler,
        "budgets": whole,
        "slack steps alone": replace(unrelegated, order=FirstCome()),
        "relegation alone": replace(plain, relegate=Hopeless()),
        "filler alone": replace(plain, order=Priority(), preempt=ByLane(), defer=WithoutDeadline()),
        "without the order": replace(whole, order=FirstCome()),
        "without slack steps": replace(whole, chunk=plain.chunk, step_tokens=plain.step_tokens),
        "without relegation": replace(whole, relegate=Keep()),
        "without memory ahead": replace(whole, memory=Now()),
        "earliest deadline": replace(whole, order=ByDeadline(most_in_time=False)),
        MORE[0]: replace(whole, memory=Ahead()),
    }
    made = [Variant(name, each) for name, each in policies.items()]
    made.append(Variant(SLOW[0], plain, slowness=SLOWNESS))
    return [*made, Variant(SLOW[1], whole, slowness=SLOWNESS)]


def ladder(slots: int, chunk: int) -> list[Variant]:
    """Of the parts, those that are added one by one."""
    return [each for each in parts(slots, chunk) if each.name in LADDER]


def impatient(slots: int, chunk: int) -> list[Variant]:
    """Priority with each of the queue timeouts: the strongest that needs no cost model."""
    policies = replace(first_come(slots, chunk).policies, order=Priority())
    return [Variant(f"{IMPATIENT} {share:g}", policies, share) for share in SHARES]


def sliding(slots: int) -> list[Variant]:
    """Budgets with an order that slides by a weight, for each of a few slopes."""
    whole = by_budgets(slots)
    return [
        Variant(f"{SLIDING} {gain:g}", replace(whole, order=BySlidingDeadline(gain)))
        for gain in GAINS
    ]


def chunks_of(mix: Mix) -> Sequence[int]:
    """The chunks that first come is tried with."""
    return [chunk // SMALLER for chunk in CHUNKS] if mix.place else CHUNKS


def around(chunk: int, chunks: Sequence[int]) -> Sequence[int]:
    """The next smaller and larger one of these chunks."""
    at = chunks.index(chunk)
    return [chunks[near] for near in (at - 1, at + 1) if 0 <= near < len(chunks)]
