"""The workload of the demo: two recorded services, and two synthetic ones."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from random import Random

from headway.costing.request_spec import RequestSpec, truncation
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.traffic.endpoint import COMPLETION, LABELLING, SUPPORT, VOICE
from headway.traffic.prompts import Prompts
from headway.traffic.token_scale import scale_trace
from headway.traffic.trace import Arrival
from headway.traffic.workload import Workload, with_prompts

# Loads in device-seconds per second, so that the demo is as heavy on any machine. Together they are
# about what static batching just sustains: two thirds of its work is padding and held slots.
TRACE_LOAD, VOICE_LOAD, BACKLOG_LOAD = 0.24, 0.03, 0.03
DEMO_LOAD = TRACE_LOAD + VOICE_LOAD + BACKLOG_LOAD
VOICE_PROMPT, VOICE_ANSWER = (16, 48), (8, 24)  # tokens: least and most, uniformly
VOICE_SAMPLE = 200  # voice requests that their typical shape is taken from
MAX_BACKLOG = 2_000  # requests


def voice_requests(gap: float, window: int, seed: int) -> list[RequestSpec]:
    """Synthetic requests: Poisson arrivals, short prompts and answers. gap: mean nanoseconds."""
    draw, at, specs = Random(f"{seed} voice"), 0.0, list[RequestSpec]()
    while (at := at + draw.expovariate(1 / gap)) < window:
        specs.append(
            RequestSpec(
                int(at), VOICE.name, draw.randint(*VOICE_PROMPT), draw.randint(*VOICE_ANSWER)
            )
        )
    return specs


def labelling_requests(seed: int) -> Iterator[RequestSpec]:
    """Endless synthetic requests: medium prompts, short answers, all there at the beginning."""
    draw = Random(f"{seed} labelling")
    while True:
        yield RequestSpec(0, LABELLING.name, draw.randint(64, 192), draw.randint(2, 8))


def merge_traces(traces: Mapping[str, Sequence[Arrival]], context: int) -> list[RequestSpec]:
    """The recorded requests of both services by arrival, as if both traces began together."""
    recorded = scale_trace(traces[COMPLETION.name], COMPLETION.name, context)
    recorded += scale_trace(traces[SUPPORT.name], SUPPORT.name, context)
    return sorted(recorded, key=lambda spec: spec.at)


def pace_trace(
    recorded: Sequence[RequestSpec], token_cost: TokenCost, window: int, load: float = TRACE_LOAD
) -> tuple[list[RequestSpec], int]:
    """Take as much of the trace as makes this load when it is replayed within the window.

    Takes the first requests whose work sums to load x window. Scales their times by one factor, so
    that they fill the window, and drops none between. Returns the requests at their new times, and
    the nanoseconds of the trace that they cover.
    """
    if not recorded:
        raise SettingError("the trace has no arrivals")
    spent = list(accumulate(token_cost.of([spec]) for spec in recorded))
    count = min(bisect_left(spent, load * window) + 1, len(recorded))
    span = recorded[count].at if count < len(recorded) else recorded[-1].at + 1
    return [replace(spec, at=spec.at * window // span) for spec in recorded[:count]], span


def labelling_backlog(
    token_cost: TokenCost, window: int, seed: int, load: float = BACKLOG_LOAD
) -> list[RequestSpec]:
    """As many labelling requests as make this load, at most MAX_BACKLOG."""
    budget, specs = load * window, list[RequestSpec]()
    for spec in islice(labelling_requests(seed), MAX_BACKLOG):
        specs.append(spec)
        if (budget := budget - token_cost.of([spec])) <= 0:
            break
    return specs


def build_demo_workload(
    recorded: Sequence[RequestSpec],
    prompts: Prompts,
    token_cost: TokenCost,
    window: int,
    load: float = DEMO_LOAD,
) -> Workload:
    """The demo's requests, with prompts. Same seed, token cost and window: the same requests.

    load: of all endpoints together. Their proportions stay the same.
    """
    times = load / DEMO_LOAD
    typical = RequestSpec(0, VOICE.name, sum(VOICE_PROMPT) // 2, sum(VOICE_ANSWER) // 2)
    spoken = voice_requests(token_cost.of([typical]) / (VOICE_LOAD * times), window, prompts.seed)
    chosen, span = pace_trace(recorded, token_cost, window, TRACE_LOAD * times)
    offline = labelling_backlog(token_cost, window, prompts.seed, BACKLOG_LOAD * times)
    specs = sorted([*offline, *spoken, *chosen], key=lambda spec: spec.at)
    return Workload(
        requests=with_prompts(specs, prompts),
        window=window,
        time_scale=span / window,
        load=token_cost.of(specs) / window,
        trace_ends=len(chosen) == len(recorded),
        cut=truncation(specs),
    )
