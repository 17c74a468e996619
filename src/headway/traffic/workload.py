"""Workloads: requests from recorded and synthetic arrivals, with seeded prompts."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from random import Random

from headway.core.request import Request
from headway.costing.request_spec import RequestSpec, Truncation, truncation
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.traffic.endpoint import COMPLETION, LABELLING, SUPPORT, VOICE
from headway.traffic.trace import PREFIX_TOKENS, Arrival

TOKEN_SCALE = 8  # recorded token counts are divided by this
# Device-seconds per second, so that the demo weighs the same on any machine. Together about what
# static batching can just sustain: padding and held slots take two thirds of what it computes.
TRACE_LOAD, VOICE_LOAD, BACKLOG_LOAD = 0.24, 0.03, 0.03
DEMO_LOAD = TRACE_LOAD + VOICE_LOAD + BACKLOG_LOAD
VOICE_PROMPT, VOICE_ANSWER = (16, 48), (8, 24)  # tokens: least and most, uniformly
VOICE_SAMPLE = 200  # of its requests, that its shape is taken from
MAX_BACKLOG = 2_000  # requests
WARM_UP = 0.1  # of a comparison's window


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests that every strategy is offered, at the same moments."""

    requests: tuple[Request, ...]  # by arrival, nanoseconds from the beginning of the run
    window: int  # nanoseconds in which all requests arrive
    time_scale: float  # seconds of the trace per second of the run
    load: float  # predicted device-seconds per second, at full batches
    trace_ends: bool  # a trace was used to its end
    cut: Truncation = Truncation()

    @property
    def rate(self) -> float:
        """Requests per second, of all endpoints together."""
        return len(self.requests) * 1e9 / self.window

    @property
    def warm_up(self) -> int:
        """Nanoseconds at the beginning whose requests are excluded from the figures.

        0 where all requests arrive at the beginning.
        """
        return round(self.window * WARM_UP) if any(each.arrived for each in self.requests) else 0

    def count(self, lane: str) -> int:
        """How many requests this lane has."""
        return sum(request.lane == lane for request in self.requests)


class Prompts:
    """Prompts cut from a text at seeded places. No two begin with the same block.

    So the prefix cache gains nothing by accident, because prompts share a prefix only from their
    first block on.
    """

    def __init__(self, text: Sequence[int], block_size: int, seed: int) -> None:
        self.text, self.block_size, self.seed = text, block_size, seed
        self._seen: set[tuple[int, ...]] = set()
        self._draws: dict[str, Random] = {}

    def draw(self, lane: str, length: int) -> tuple[int, ...]:
        """Draw a prompt of so many tokens whose first block no other prompt has.

        Raises SettingError if the text is too short for that.
        """
        last = len(self.text) - max(length, self.block_size)
        draw = self._draws.setdefault(lane, Random(f"{self.seed} prompts {lane}"))
        for _ in range(1_000 if last >= 0 else 0):
            at = draw.randint(0, last)
            first = tuple(self.text[at : at + self.block_size])
            if first not in self._seen:
                self._seen.add(first)
                return tuple(self.text[at : at + length])
        raise self._too_short(length)

    def shared(self, spec: RequestSpec) -> tuple[int, ...]:
        """A prompt made of its block ids. The same id gives the same tokens."""
        words = list[int]()
        for block in spec.blocks[: -(-spec.prompt // spec.block)]:
            last = len(self.text) - spec.block
            if last < 0:
                raise self._too_short(spec.block)
            at = Random(f"{self.seed} block {block}").randint(0, last)
            words += self.text[at : at + spec.block]
        short = spec.prompt - len(words)
        rest = self.draw(spec.lane, short) if short > 0 else ()
        return (*words[: spec.prompt], *rest)

    def _too_short(self, length: int) -> SettingError:
        return SettingError(
            f"a text of {len(self.text)} tokens is too short for {len(self._seen) + 1} prompts "
            f"of up to {length} tokens that do not begin alike"
        )


def scale_trace(
    trace: Iterable[Arrival], lane: str, context: int, scale: float = TOKEN_SCALE
) -> list[RequestSpec]:
    """Recorded arrivals with their token counts divided by the scale and cut to the context."""
    specs, block = [], max(1, round(PREFIX_TOKENS / scale))
    for arrival in trace:
        prompt, answer = (max(1, round(each / scale)) for each in (arrival.prompt, arrival.answer))
        specs.append(
            fit_to_context(
                RequestSpec(arrival.at, lane, prompt, answer, arrival.blocks, block), context
            )
        )
    return specs


def fit_to_context(spec: RequestSpec, context: int) -> RequestSpec:
    """The request, cut to the context. Its answer gets at most half of that."""
    answer = min(spec.answer, context // 2)
    prompt = min(spec.prompt, context - answer)
    cut = spec.prompt + spec.answer - prompt - answer
    return replace(spec, prompt=prompt, answer=answer, cut=cut) if cut else spec


def count_raised_to_one(trace: Iterable[Arrival], scale: float = TOKEN_SCALE) -> int:
    """How many token counts come to 0 after scaling; scale_trace raises them to 1."""
    return sum(round(each / scale) < 1 for one in trace for each in (one.prompt, one.answer))


def voice_requests(gap: float, window: int, seed: int) -> list[RequestSpec]:
    """Synthetic: Poisson arrivals with this mean gap in nanoseconds, short prompts and answers."""
    draw, at, specs = Random(f"{seed} voice"), 0.0, list[RequestSpec]()
    while (at := at + draw.expovariate(1 / gap)) < window:
        specs.append(
            RequestSpec(
                int(at), VOICE.name, draw.randint(*VOICE_PROMPT), draw.randint(*VOICE_ANSWER)
            )
        )
    return specs


def labelling_requests(seed: int) -> Iterator[RequestSpec]:
    """Synthetic and endless: medium prompts, short answers, all there at the beginning."""
    draw = Random(f"{seed} labelling")
    while True:
        yield RequestSpec(0, LABELLING.name, draw.randint(64, 192), draw.randint(2, 8))


def merge_traces(traces: Mapping[str, Sequence[Arrival]], context: int) -> list[RequestSpec]:
    """The recorded arrivals of both services, in order, as if both traces began together."""
    recorded = scale_trace(traces[COMPLETION.name], COMPLETION.name, context)
    recorded += scale_trace(traces[SUPPORT.name], SUPPORT.name, context)
    return sorted(recorded, key=lambda spec: spec.at)


def pace_trace(
    recorded: Sequence[RequestSpec], token_cost: TokenCost, window: int, load: float = TRACE_LOAD
) -> tuple[list[RequestSpec], int]:
    """As much of the trace as makes this load when it is replayed within the window.

    It takes the first requests whose work sums to load x window, and scales their times by one
    factor to fill the window; none is dropped. Returns them at their new times, and how many
    nanoseconds of the trace they cover.
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
    """Requests with words. The same seed, token cost and window give the same requests.

    load: of all together; their proportions stay.
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


def with_prompts(specs: Iterable[RequestSpec], prompts: Prompts) -> tuple[Request, ...]:
    """Requests with prompts. They have no stop tokens: each answer is as long as its spec says."""
    numbers: dict[str, int] = {}
    requests = []
    for spec in specs:
        number = numbers[spec.lane] = numbers.get(spec.lane, 0) + 1
        prompt = prompts.shared(spec) if spec.blocks else prompts.draw(spec.lane, spec.prompt)
        requests.append(Request(f"{spec.lane}-{number}", prompt, spec.answer, spec.at, spec.lane))
    return tuple(requests)


def long_request(specs: Iterable[RequestSpec], lane: str, context: int) -> RequestSpec:
    """A long request of a lane: the p95 of its prompts, and its mean answer.

    Both together are cut to the context.
    """
    mine = [spec for spec in specs if spec.lane == lane]
    prompts = sorted(spec.prompt for spec in mine)
    answer = max(2, round(sum(spec.answer for spec in mine) / len(mine)))
    return RequestSpec(
        0, lane, min(prompts[-(-len(prompts) * 95 // 100) - 1], context - answer), answer
    )
