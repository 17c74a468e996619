"""What the machine and its tokens cost, in whatever money the operator counts."""

from typing import Annotated

from pydantic import Field

from headway.server.config.sections.section import Number, Section

MILLION = 1_000_000
HOUR = 3_600_000_000_000  # nanoseconds
DIGITS = 12  # after the point: a single token is a millionth of a price

Price = Annotated[float, Field(ge=0, allow_inf_nan=False), Number]


class PriceSettings(Section):
    """Two views of one bill: what the machine costs, and what its callers are charged."""

    per_hour: Annotated[Price, Field(description="Of the machine.")] = 0
    per_million_prompt: Annotated[Price, Field(description="Prompt tokens that are computed.")] = 0
    per_million_cached: Annotated[
        Price | None,
        Field(description="Prompt tokens found in the prefix cache. Default: as computed ones."),
    ] = None
    per_million_answer: Annotated[Price, Field(description="Generated tokens.")] = 0

    def of_time(self, nanoseconds: int) -> float:
        """What the machine costs for so long."""
        return self.per_hour * nanoseconds / HOUR

    def of_tokens(self, prompt: int, cached: int, answer: int) -> float:
        """What a request costs its caller; `cached` of the prompt's tokens were not computed."""
        again = self.per_million_cached
        again = self.per_million_prompt if again is None else again
        computed = self.per_million_prompt * (prompt - cached) + again * cached
        return (computed + self.per_million_answer * answer) / MILLION

    def bill(self, prompt: int, cached: int, answer: int, nanoseconds: int) -> dict[str, float]:
        """By name, of a call's tokens and device time; without a price nothing is said of it."""
        said: dict[str, float] = {}
        if self.per_million_prompt or self.per_million_cached or self.per_million_answer:
            said["cost"] = round(self.of_tokens(prompt, cached, answer), DIGITS)
        if self.per_hour:
            said["machine_cost"] = round(self.of_time(nanoseconds), DIGITS)
        return said
