"""How much service each tenant of a lane has had (TokenCounters)."""

from collections.abc import Iterable, Mapping
from math import lcm

from headway.core.sequences.sequence import Sequence

# The weight of a token. A token of an answer takes a step of its own, so it counts twice as much as
# a token of a prompt. These are the weights of the VTC paper.
PROMPT, ANSWER = 1, 2


class TokenCounters:
    """Virtual token counters (VTC; Sheng et al., OSDI 2024), by tenant.

    A counter is the service that a tenant has had, divided by its weight: PROMPT for each computed
    prompt token, counted when the request joins, and ANSWER for each generated token. Tokens found
    in the prefix cache are free, and so are tokens computed again after a preemption.

    Counters are whole numbers, exact for all weights: one token of weight 1 is `unit`.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        """weights: by tenant; 1 for tenants it does not name."""
        self.unit = lcm(1, *weights.values())
        self._prices = {tenant: self.unit // weight for tenant, weight in weights.items()}
        self._of = dict[str, int]()

    def of(self, tenant: str) -> int:
        """The tenant's counter; 0 before its first request."""
        return self._of.get(tenant, 0)

    def lift(self, tenant: str, others: Iterable[str]) -> None:
        """Raise the tenant's counter to the least of the others: idling saves up no service."""
        self._of[tenant] = max(self.of(tenant), min([self.of(each) for each in others]))

    def of_prompt(self, sequence: Sequence, cached: int = 0) -> int:
        """What a sequence adds to its tenant's counter when it joins; 0 if it has joined before."""
        if sequence.counted:
            return 0
        return PROMPT * (len(sequence.request.prompt) - cached) * self._price(sequence)

    def join(self, sequence: Sequence) -> None:
        """Count the prompt tokens to compute for a sequence that joins, with blocks reserved."""
        if price := self.of_prompt(sequence, sequence.scheduled):
            tenant = sequence.request.tenant
            self._of[tenant] = self.of(tenant) + price
            sequence.counted = len(sequence.request.prompt)

    def count(self, sequence: Sequence) -> None:
        """Count the tokens generated since the sequence was counted last, discarded ones too."""
        total = len(sequence.tokens) + sequence.discarded
        if new := total - sequence.counted:
            tenant = sequence.request.tenant
            self._of[tenant] = self.of(tenant) + ANSWER * new * self._price(sequence)
            sequence.counted = total

    def _price(self, sequence: Sequence) -> int:
        return self._prices.get(sequence.request.tenant, self.unit)
