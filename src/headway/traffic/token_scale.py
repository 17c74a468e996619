"""Recorded requests with their token counts scaled down and cut to the context."""

from collections.abc import Iterable
from dataclasses import replace

from headway.costing.request_spec import RequestSpec
from headway.traffic.trace import PREFIX_TOKENS, Arrival

TOKEN_SCALE = 8  # recorded token counts are divided by this


def scale_trace(
    trace: Iterable[Arrival], lane: str, context: int, scale: float = TOKEN_SCALE
) -> list[RequestSpec]:
    """Recorded arrivals with their token counts divided by the scale and cut to the context."""
    return [scaled(arrival, lane, context, scale) for arrival in trace]


def scaled(arrival: Arrival, lane: str, context: int, scale: float) -> RequestSpec:
    """A recorded arrival with its token counts divided by the scale and cut to the context."""
    prompt, answer = (max(1, round(each / scale)) for each in (arrival.prompt, arrival.answer))
    block = max(1, round(PREFIX_TOKENS / scale))
    lengths = prompt, answer, arrival.blocks, block
    spec = RequestSpec(arrival.at, lane, *lengths, supersede=arrival.supersede)
    return fit_to_context(spec, context)


def fit_to_context(spec: RequestSpec, context: int) -> RequestSpec:
    """The request, cut to the context. The answer gets at most half of the context."""
    answer = min(spec.answer, context // 2)
    prompt = min(spec.prompt, context - answer)
    cut = spec.prompt + spec.answer - prompt - answer
    return replace(spec, prompt=prompt, answer=answer, cut=cut) if cut else spec


def count_raised_to_one(trace: Iterable[Arrival], scale: float = TOKEN_SCALE) -> int:
    """How many token counts scale to 0. scale_trace raises these to 1."""
    return sum(round(each / scale) < 1 for one in trace for each in (one.prompt, one.answer))
