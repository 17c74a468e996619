"""`caps` of a key: limits on one request, and on what the key may spend in a day."""

from typing import Annotated

from pydantic import Field

from headway.core.request import NEVER
from headway.server.config.sections.lanes import LaneName
from headway.server.config.sections.prices import BILLION
from headway.server.config.sections.section import Number, Section

Cap = Annotated[int, Field(ge=0), Number]
Money = Annotated[float, Field(ge=0, le=BILLION, allow_inf_nan=False), Number]


class LaneCapSettings(Section):
    """Caps in one lane."""

    max_tokens: Annotated[
        Cap,
        Field(
            description="max_tokens of a request, at most, and in force where it gives none. "
            "0: no cap."
        ),
    ] = 0
    n: Annotated[Cap, Field(description="n of a request, at most. 0: no cap.")] = 0
    money_per_day: Annotated[
        Money,
        Field(
            description="What the key may be charged in a day, which begins at 00:00 UTC, by the "
            "prices of tokens. Needs ledger.url. 0: no cap."
        ),
    ] = 0

    @property
    def most_tokens(self) -> int:
        """The cap on max_tokens; NEVER: no cap."""
        return self.max_tokens or NEVER

    @property
    def most_choices(self) -> int:
        """The cap on n; NEVER: no cap."""
        return self.n or NEVER


class CapSettings(LaneCapSettings):
    """Caps of one key, in all lanes together and in some of them."""

    lanes: Annotated[
        dict[LaneName, LaneCapSettings],
        Field(description="Further caps in single lanes; they hold beside those of the key."),
    ] = Field(default_factory=dict)

    def of_lane(self, lane: str) -> tuple[LaneCapSettings, ...]:
        """All caps that apply to a request in this lane."""
        own = self.lanes.get(lane)
        return (self,) if own is None else (self, own)

    @property
    def cap_money(self) -> bool:
        """Whether any of the caps is on money."""
        return any(each.money_per_day for each in (self, *self.lanes.values()))
