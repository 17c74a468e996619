"""How much service each tenant of a lane has had (TokenCounters)."""

from collections.abc import Iterable, Mapping
from math import lcm

from headway.core.sequence import Sequence

# What a token counts. One of an answer takes a step of its own, so it counts twice as much as one
# of a prompt. These are the weights of the VTC paper.
PROMPT, ANSWER = 1, 2


class TokenCounters:
    """Virtual token counters (VTC; Sheng et al., OSDI 2024), by tenant.

    A counter is the service that a tenant has had, over its weight: PROMPT for each token of a
    prompt that was computed, when its request joins, and ANSWER for each token generated. Prompt
    tokens found in the prefix cache are free, and so is what is computed again after a preemption.

    Counters are whole numbers, exact for all weights: one token of weight 1 is `unit`.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        """weights: by tenant; 1 for those it does not name."""
        self.unit = lcm(1, *weights.values())
        self._prices = {tenant: self.unit // weight for tenant, weight in weights.items()}
        self._of = dict[str, int]()

    def of(self, tenant: str) -> int:
        """The tenant's counter; 0 before its first request."""
        return self._of.get(tenant, 0)

    def lift(self, tenant: str, others: Iterable[str]) -> None:
        """Raise it to the least counter of the others: nobody saves up service while idle."""
        self._of[tenant] = max(self.of(tenant), min([self.of(each) for each in others]))

    def of_prompt(self, sequence: Sequence, cached: int = 0) -> int:
        """What joining adds to the counter of its tenant; 0 if it has joined before."""
        if sequence.counted:
            return 0
        return PROMPT * (len(sequence.request.prompt) - cached) * self._price(sequence)

    def join(self, sequence: Sequence) -> None:
        """It joins, with its blocks reserved: count what is to be computed of its prompt."""
        if price := self.of_prompt(sequence, sequence.scheduled):
            tenant = sequence.request.tenant
            self._of[tenant] = self.of(tenant) + price
            sequence.counted = len(sequence.request.prompt)

    def count(self, sequence: Sequence) -> None:
        """Count the tokens that it has generated since it was counted last; discarded ones too."""
        total = len(sequence.tokens) + sequence.discarded
        if new := total - sequence.counted:
            tenant = sequence.request.tenant
            self._of[tenant] = self.of(tenant) + ANSWER * new * self._price(sequence)
            sequence.counted = total

    def _price(self, sequence: Sequence) -> int:
        return self._prices.get(sequence.request.tenant, self.unit)
