"""What an answer used, in tokens and milliseconds, as its client is told."""

from collections.abc import Sequence
from typing import Any

from headway.core.ledger import RequestRow
from headway.core.request import NEVER


def usage(prompt: int, completion: int, cached: int | None) -> dict[str, Any]:
    """OpenAI's usage object, in tokens. cached: prompt tokens found in the prefix cache, or None if
    that is not known yet; then the object has no details."""
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return counts


def metrics(rows: Sequence[RequestRow]) -> dict[str, float | None]:
    """vLLM's metrics object, for all choices of a call together; null for what did not happen.

    Times are the engine's own, without the transfer to the client.
    """
    began = [row.queue for row in rows if row.queue != NEVER]
    spoken = [row for row in rows if row.first_token != NEVER]
    gaps = [row.tpot for row in spoken if row.generated > 1]
    first = min([row.first_token for row in spoken], default=0)
    last = max([row.last_token for row in spoken], default=0)
    tokens = sum([row.generated for row in spoken])
    return {
        "time_to_first_token_ms": _ms(min([row.ttft for row in spoken], default=NEVER)),
        "generation_time_ms": _ms(last - first if spoken else NEVER),
        "queue_time_ms": _ms(min(began, default=NEVER)),
        "mean_itl_ms": _ms(sum(gaps) // len(gaps) if gaps else NEVER),
        "tokens_per_second": round(tokens * 1e9 / (last - first), 3) if last > first else None,
    }


def _ms(nanoseconds: int) -> float | None:
    return None if nanoseconds == NEVER else round(nanoseconds / 1e6, 3)
