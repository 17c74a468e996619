"""The device time that a token costs (TokenCost)."""

from collections.abc import Iterable
from dataclasses import dataclass

from headway.costing.request_spec import RequestSpec


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Nanoseconds of device time per token at full batches, as measured on this machine."""

    prompt: float  # per token
    answer: float  # per token

    def of(self, specs: Iterable[RequestSpec]) -> float:
        """The device time of these requests together, in nanoseconds."""
        return sum(self.prompt * spec.prompt + self.answer * spec.answer for spec in specs)
