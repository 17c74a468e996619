"""`prices`: the cost of the machine and of tokens, in any currency."""

from typing import Annotated

from pydantic import Field

from headway.server.config.sections.section import Number, Section

MILLION = 1_000_000
BILLION = 1_000_000_000
HOUR = 3_600_000_000_000  # nanoseconds
DIGITS = 12  # decimals of a cost: one token costs a millionth of a price

# A year of a machine at the highest price, in billionths, fits into the ledger's 63 bits.
Price = Annotated[float, Field(ge=0, le=MILLION, allow_inf_nan=False), Number]


class PriceSettings(Section):
    """What the machine costs its operator, and what callers are charged."""

    per_hour: Annotated[Price, Field(description="What the machine costs per hour.")] = 0
    per_million_prompt: Annotated[
        Price, Field(description="Price of a million computed prompt tokens.")
    ] = 0
    per_million_cached: Annotated[
        Price | None,
        Field(
            description="Price of a million prompt tokens found in the prefix cache. "
            "Default: as for computed ones."
        ),
    ] = None
    per_million_answer: Annotated[
        Price, Field(description="Price of a million generated tokens.")
    ] = 0

    @property
    def hour_billionths(self) -> int:
        """What the machine costs per hour, in billionths."""
        return round(self.per_hour * BILLION)

    def charge(self, fresh: int, cached: int, answer: int) -> int:
        """The charge for these tokens, in billionths, rounded down. fresh: prompt tokens that are
        computed. cached: prompt tokens from the prefix cache."""
        again = (
            self.per_million_prompt
            if self.per_million_cached is None
            else (self.per_million_cached)
        )
        prices = self.per_million_prompt, again, self.per_million_answer
        counts = fresh, cached, answer
        total = sum([round(p * BILLION) * n for p, n in zip(prices, counts, strict=True)])
        return total // MILLION

    @property
    def charges_tokens(self) -> bool:
        """Whether any token has a price."""
        return any((self.per_million_prompt, self.per_million_cached, self.per_million_answer))

    def machine_cost(self, nanoseconds: int) -> float:
        """The machine's cost for this time."""
        return self.per_hour * nanoseconds / HOUR

    def token_cost(self, prompt: int, cached: int, answer: int) -> float:
        """The cost of a request for its caller. cached: prompt tokens that were not computed."""
        again = self.per_million_cached
        again = self.per_million_prompt if again is None else again
        computed = self.per_million_prompt * (prompt - cached) + again * cached
        return (computed + self.per_million_answer * answer) / MILLION

    def bill(self, prompt: int, cached: int, answer: int, nanoseconds: int) -> dict[str, float]:
        """`cost` and `machine_cost` of a call, each included only if its prices are set."""
        costs: dict[str, float] = {}
        if self.charges_tokens:
            costs["cost"] = round(self.token_cost(prompt, cached, answer), DIGITS)
        if self.per_hour:
            costs["machine_cost"] = round(self.machine_cost(nanoseconds), DIGITS)
        return costs
