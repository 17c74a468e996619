"""How fast the machine is: unloaded latency and token cost, measured before a comparison."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Static
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.costing.request_spec import RequestSpec
from headway.costing.token_cost import TokenCost
from headway.errors import HeadwayError
from headway.runs.outcome import Outcome
from headway.runs.run import Run
from headway.runs.testbed import Testbed
from headway.strategies.strategy import SLOTS
from headway.traffic.endpoint import Endpoint, UnloadedLatency
from headway.traffic.prompts import Prompts
from headway.traffic.workload import with_prompts

UNLOADED_REPEATS = 5  # requests per endpoint, one after another; the median counts
PROMPTS_MEASURED = 96  # prompts that the cost of a prompt token is measured with
TOKENS_DECODED = 48  # tokens that each sequence of a full batch decodes during the measurement
STEP_TOKENS = 512  # token budget of a step full of prompts
THREAD_TRIALS = 3  # of each number of threads, taking turns
MULTITHREADED_BELOW = 2 / 3  # of one thread's time; all threads are used only if they take less
PATIENCE = 4_000_000_000  # nanoseconds that one request alone may take


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """What was measured of the machine before the runs: unloaded latency and cost per token."""

    unloaded: Mapping[str, UnloadedLatency]  # by lane; lanes with a budget only
    shapes: Mapping[str, RequestSpec]  # the requests that `unloaded` was measured with, by lane
    token_cost: TokenCost
    threads: int = 1  # threads that the executor now uses
    full: int = SLOTS  # rows of a full batch: the slots, or fewer if the memory holds fewer


def measure_speed(
    testbed: Testbed,
    endpoints: Iterable[Endpoint],
    recorded: Sequence[RequestSpec],
    seed: int,
    others: Sequence[RequestSpec] = (),
) -> MachineSpeed:
    """Measure the unloaded latency per endpoint, and the cost of a token at full batches.

    recorded: requests to measure the cost with. others: requests of endpoints too sparse for that.
    The prompts may begin like the workload's, because every run starts with an empty prefix cache.

    Raises HeadwayError as measure_unloaded and measure_token_cost do.
    """
    prompts = Prompts(testbed.text, testbed.block_size, seed)
    threads = testbed.threads
    if not testbed.simulated:
        warm_up(testbed, recorded, prompts)
        threads = choose_threads(testbed, recorded, prompts)
    limited = [endpoint.name for endpoint in endpoints if not endpoint.is_offline]
    typical = [*recorded, *others]
    shapes = {name: long_request(typical, name, testbed.context) for name in limited}
    unloaded = {name: measure_unloaded(testbed, shapes[name], prompts) for name in limited}
    token_cost, (_, full) = (
        measure_token_cost(testbed, recorded, prompts),
        full_batch(testbed, recorded),
    )
    return MachineSpeed(unloaded, shapes, token_cost, threads, full)


def choose_threads(testbed: Testbed, recorded: Sequence[RequestSpec], prompts: Prompts) -> int:
    """Choose one thread, or all of them if that is much faster now, and set the executor to it.

    More threads make large matrix products faster and small ones slower. If another process takes a
    core, every operation waits for the thread that lost it. That will happen in a comparison of
    several minutes, so a small gain is not worth it.
    """
    counts = testbed.thread_choices
    most = testbed.context - TOKENS_DECODED // 2
    few = [
        RequestSpec(0, a.lane, min(a.prompt, most), TOKENS_DECODED // 2) for a in recorded[:SLOTS]
    ]
    policies = Policies(Continuous(SLOTS), chunk=Fixed(STEP_TOKENS // 4), step_tokens=STEP_TOKENS)
    spent = dict.fromkeys(counts, 0)
    for _ in range(THREAD_TRIALS if len(counts) > 1 else 0):
        for count in counts:
            testbed.use_threads(count)
            steps = _served(testbed, policies, few, prompts).steps
            spent[count] += sum(row.nanoseconds for row in steps)
    faster = spent[counts[-1]] < MULTITHREADED_BELOW * spent[counts[0]]
    chosen = counts[-1] if faster else counts[0]
    testbed.use_threads(chosen)
    return chosen


def warm_up(testbed: Testbed, recorded: Sequence[RequestSpec], prompts: Prompts) -> None:
    """Run each kind of batch once. First steps are slow: they set up memory and kernels."""
    few = [RequestSpec(0, spec.lane, spec.prompt, min(spec.answer, 4)) for spec in recorded[:SLOTS]]
    kinds = [Policies(join=Continuous(SLOTS), chunk=Whole(), step_tokens=STEP_TOKENS)]
    if testbed.executor.traits.exclusive_groups:
        group = Policies(join=Static(SLOTS), chunk=Whole(), step_tokens=SLOTS * testbed.context)
        kinds.insert(0, group)
    for policies in kinds:
        _served(testbed, policies, few, prompts)


def measure_unloaded(testbed: Testbed, spec: RequestSpec, prompts: Prompts) -> UnloadedLatency:
    """Measure the unloaded latency: the medians of a few like requests, each alone on the engine.

    Raises HeadwayError if a request is refused, or gets no first token within PATIENCE.
    """
    policies = Policies(join=Continuous(1), chunk=Whole(), step_tokens=testbed.context)
    rows = [
        _served(testbed, policies, [spec], prompts).requests[0] for _ in range(UNLOADED_REPEATS)
    ]
    if any(row.finish is Finish.REFUSED for row in rows):
        raise HeadwayError(
            f"the engine refused a request of {spec.prompt} + {spec.answer} tokens, by which this "
            f"machine was to be measured: it holds {testbed.context} tokens of a request"
        )
    if any(row.first_token == NEVER for row in rows):
        raise HeadwayError(
            f"one request of {spec.prompt} tokens got no answer in {PATIENCE // 10**9} s: "
            "this model is too slow on this machine"
        )
    return UnloadedLatency(
        ttft=round(median(row.ttft for row in rows)),
        tpot=round(median(row.tpot for row in rows)),
        e2e=round(median(row.e2e for row in rows)),
    )


def measure_token_cost(
    testbed: Testbed, recorded: Sequence[RequestSpec], prompts: Prompts
) -> TokenCost:
    """Measure nanoseconds per prompt token in full prefill steps, and per token in full batches.

    The decoding sequences have prompts of the mean length, so the cost of a decoded token includes
    attention over a mean prompt. Raises HeadwayError if no full batch decodes in time.
    """
    sample = [RequestSpec(0, spec.lane, spec.prompt, 1) for spec in recorded[:PROMPTS_MEASURED]]
    most = min(testbed.slots, STEP_TOKENS)  # a prompt has a token or more
    policies = Policies(join=Continuous(most), chunk=Whole(), step_tokens=STEP_TOKENS)
    steps = _served(testbed, policies, sample, prompts).steps
    prompt = sum(row.nanoseconds for row in steps) / max(1, sum(row.tokens for row in steps))
    mean, many = full_batch(testbed, recorded)
    full = [RequestSpec(0, recorded[0].lane, mean, TOKENS_DECODED)] * many
    group = Policies(
        join=Continuous(testbed.slots),
        mix=PrefillFirst(),
        chunk=Whole(),
        step_tokens=testbed.slots * testbed.context,
    )
    patience = many * PATIENCE  # PATIENCE for each request
    steps = _served(testbed, group, full, prompts, patience).steps
    decoding = [row.nanoseconds / many for row in steps if row.rows == row.tokens == many]
    if not decoding:
        raise HeadwayError(
            f"{many} prompts of {mean} tokens took more than {patience // 10**9} s: "
            "this model is too slow on this machine"
        )
    return TokenCost(prompt, median(decoding))


def full_batch(testbed: Testbed, recorded: Sequence[RequestSpec]) -> tuple[int, int]:
    """The tokens of a mean prompt, and how many such requests can decode at once."""
    mean = round(sum(spec.prompt for spec in recorded) / len(recorded))
    mean = min(mean, testbed.context - TOKENS_DECODED)  # leave room for the answer
    held = testbed.num_blocks // -(-(mean + TOKENS_DECODED) // testbed.block_size)
    return mean, max(1, min(testbed.slots, held))


def _served(
    testbed: Testbed,
    policies: Policies,
    specs: Sequence[RequestSpec],
    prompts: Prompts,
    patience: int = PATIENCE,
) -> Outcome:
    lanes = [Lane(name) for name in sorted({spec.lane for spec in specs})]
    return Run(testbed, policies, lanes, with_prompts(specs, prompts), patience).serve()


def long_request(specs: Iterable[RequestSpec], lane: str, context: int) -> RequestSpec:
    """A long request of a lane: its p95 prompt length, and its mean answer length.

    The prompt is cut so that both fit into the context.
    """
    mine = [spec for spec in specs if spec.lane == lane]
    prompts = sorted(spec.prompt for spec in mine)
    answer = max(2, round(sum(spec.answer for spec in mine) / len(mine)))
    return RequestSpec(
        0, lane, min(prompts[-(-len(prompts) * 95 // 100) - 1], context - answer), answer
    )
