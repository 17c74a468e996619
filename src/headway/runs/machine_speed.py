"""What the machine can do, measured before the comparison and the same for every strategy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Static
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.costing.token_cost import Ask, Price
from headway.errors import HeadwayError
from headway.runs.run import Outcome, Run
from headway.runs.testbed import Rig
from headway.strategies.strategy import SLOTS
from headway.traffic.endpoint import Endpoint, Unloaded
from headway.traffic.workload import Prompts, shape, worded

ALONE = 5  # requests per endpoint, one after the other; the median counts
SAMPLE = 96  # prompts whose price is taken
DECODED = 48  # tokens that each of a full batch says while their price is taken
STEP = 512  # tokens of a step full of prompts
TRIALS = 3  # of each number of threads, in turn
WORTH = 2 / 3  # of one thread's time: what all of them must stay below to be chosen
PATIENCE = 4_000_000_000  # nanoseconds that a request alone may take


@dataclass(frozen=True, slots=True)
class Yardstick:
    unloaded: Mapping[str, Unloaded]  # by lane; lanes with a budget only
    shapes: Mapping[str, Ask]  # the requests by which it was measured
    price: Price
    threads: int = 1  # that the executor was left with
    full: int = SLOTS  # rows of a full batch: slots, or as many as the memory holds


def measure(
    rig: Rig,
    endpoints: Iterable[Endpoint],
    recorded: Sequence[Ask],
    seed: int,
    others: Sequence[Ask] = (),
) -> Yardstick:
    """Unloaded latency per endpoint, and the price of a token at full batches.

    recorded: the requests that the price is taken from; others: of endpoints too sparse for it.
    Its prompts may begin like the workload's: every run has its own, empty prefix cache.

    Raises HeadwayError where the machine is too slow for a single step in PATIENCE.
    """
    prompts = Prompts(rig.text, rig.block_size, seed)
    threads = rig.threads
    if not rig.simulated:
        warm_up(rig, recorded, prompts)
        threads = steadiest(rig, recorded, prompts)
    limited = [endpoint.name for endpoint in endpoints if not endpoint.is_offline]
    typical = [*recorded, *others]
    shapes = {name: shape(typical, name, rig.context) for name in limited}
    unloaded = {name: alone(rig, shapes[name], prompts) for name in limited}
    price, (_, full) = priced(rig, recorded, prompts), full_batch(rig, recorded)
    return Yardstick(unloaded, shapes, price, threads, full)


def steadiest(rig: Rig, recorded: Sequence[Ask], prompts: Prompts) -> int:
    """How many threads the executor is to have: one, unless all are much quicker here and now.

    More threads help large products and hinder small ones; and where another process takes a
    core, every operation waits until the thread that has none gets one. A comparison that takes
    minutes will meet such a process, so a little speed is no reason to be at its mercy.
    """
    counts = sorted({1, rig.threads})
    most = rig.context - DECODED // 2
    few = [Ask(0, a.lane, min(a.prompt, most), DECODED // 2) for a in recorded[:SLOTS]]
    policies = Policies(Continuous(SLOTS), chunk=Fixed(STEP // 4), step_tokens=STEP)
    spent = dict.fromkeys(counts, 0)
    for _ in range(TRIALS if len(counts) > 1 else 0):
        for count in counts:
            rig.use_threads(count)
            steps = _served(rig, policies, few, prompts).steps
            spent[count] += sum(row.nanoseconds for row in steps)
    chosen = counts[-1] if spent[counts[-1]] < WORTH * spent[1] else 1
    rig.use_threads(chosen)
    return chosen


def warm_up(rig: Rig, recorded: Sequence[Ask], prompts: Prompts) -> None:
    """First steps are slow: memory is fetched, kernels are chosen. Both kinds of batch."""
    few = [Ask(0, ask.lane, ask.prompt, min(ask.answer, 4)) for ask in recorded[:SLOTS]]
    for policies in (
        Policies(join=Static(SLOTS), chunk=Whole(), step_tokens=SLOTS * rig.context),
        Policies(join=Continuous(SLOTS), chunk=Whole(), step_tokens=STEP),
    ):
        _served(rig, policies, few, prompts)


def alone(rig: Rig, ask: Ask, prompts: Prompts) -> Unloaded:
    """Medians of a few requests of one shape, each the only one on the engine."""
    policies = Policies(join=Continuous(1), chunk=Whole(), step_tokens=rig.context)
    rows = [_served(rig, policies, [ask], prompts).requests[0] for _ in range(ALONE)]
    if any(row.finish is Finish.REFUSED for row in rows):
        raise HeadwayError(
            f"the engine refused a request of {ask.prompt} + {ask.answer} tokens, by which this "
            f"machine was to be measured: it holds {rig.context} tokens of a request"
        )
    if any(row.first_token == NEVER for row in rows):
        raise HeadwayError(
            f"one request of {ask.prompt} tokens got no answer in {PATIENCE // 10**9} s: "
            "this model is too slow on this machine"
        )
    return Unloaded(
        ttft=round(median(row.ttft for row in rows)),
        tpot=round(median(row.tpot for row in rows)),
        e2e=round(median(row.e2e for row in rows)),
    )


def priced(rig: Rig, recorded: Sequence[Ask], prompts: Prompts) -> Price:
    """Nanoseconds per prompt token in steps full of prompts, per answered token in full batches.

    The decoding sequences have prompts of the mean length, so their price has the mean's
    attention in it.
    """
    sample = [Ask(0, ask.lane, ask.prompt, 1) for ask in recorded[:SAMPLE]]
    policies = Policies(join=Continuous(rig.slots), chunk=Whole(), step_tokens=STEP)
    steps = _served(rig, policies, sample, prompts).steps
    prompt = sum(row.nanoseconds for row in steps) / max(1, sum(row.tokens for row in steps))
    mean, many = full_batch(rig, recorded)
    full = [Ask(0, recorded[0].lane, mean, DECODED)] * many
    group = Policies(
        join=Continuous(rig.slots),
        mix=PrefillFirst(),
        chunk=Whole(),
        step_tokens=rig.slots * rig.context,
    )
    patience = many * PATIENCE  # one request has proved that it ends: the others get as long
    steps = _served(rig, group, full, prompts, patience).steps
    decoding = [row.nanoseconds / many for row in steps if row.rows == row.tokens == many]
    if not decoding:
        raise HeadwayError(
            f"{many} prompts of {mean} tokens took more than {patience // 10**9} s: "
            "this model is too slow on this machine"
        )
    return Price(prompt, median(decoding))


def full_batch(rig: Rig, recorded: Sequence[Ask]) -> tuple[int, int]:
    """Tokens of a mean prompt, and how many such requests decode at once."""
    mean = round(sum(ask.prompt for ask in recorded) / len(recorded))
    mean = min(mean, rig.context - DECODED)  # so that its answer has room
    held = rig.num_blocks // -(-(mean + DECODED) // rig.block_size)
    return mean, max(1, min(rig.slots, held))


def _served(
    rig: Rig,
    policies: Policies,
    asks: Sequence[Ask],
    prompts: Prompts,
    patience: int = PATIENCE,
) -> Outcome:
    lanes = [Lane(name) for name in sorted({ask.lane for ask in asks})]
    return Run(rig, policies, lanes, worded(asks, prompts), patience).serve()
