"""A lane's share of a resource: `{least: 1, most: 8}`."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from headway.core.lane import ALL, Share
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.server.config.durations import NONE
from headway.server.config.sections.section import Number, Section

MOST_COUNT = 1 << 31  # requests, tokens or blocks; a larger number is surely a typo


def _counted(count: int) -> int:
    if MOST_COUNT < count != NEVER:
        raise SettingError(f"should be {NONE}, or {MOST_COUNT} at most, not {count}")
    return count


Bound = Annotated[  # a number of 1 or more, or none
    int,
    Number,
    BeforeValidator(lambda value: NEVER if value in (None, NONE) else value),
    Field(ge=1),
    AfterValidator(_counted),
    PlainSerializer(lambda count: NONE if count == NEVER else count),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MOST_COUNT},
                {"enum": [NONE, None]},
            ]
        }
    ),
]


Slots = Annotated[int, Number, Field(ge=1)]


Between = Annotated[
    tuple[Slots, Slots] | None,
    Field(description="In place of most: the most follows the load, between these two."),
]


class ShareSettings(Section):
    """What a lane may have, and what others cannot take from it."""

    most: Annotated[Bound, Field(description="At most.")] = NEVER
    least: Annotated[
        int,
        Number,
        Field(
            ge=0,
            description="What others cannot take from the lane. Only with a strategy by budgets.",
        ),
    ] = 0

    def check(self) -> None:
        if self.least > self.most:
            raise SettingError(f"least {self.least} is more than most {self.most}")

    def to_share(self) -> Share:
        """The share as a value of the core."""
        return Share(self.least, self.most) if self.least or self.most != NEVER else ALL


class StepTokenSettings(ShareSettings):
    """A share of the tokens of a step."""

    least: Annotated[
        int,
        Number,
        Field(
            ge=0,
            description="What the lane has of each step before others have more than a token each, "
            "whatever time the step may take. Only with join continuous, mix mixed and chunks.",
        ),
    ] = 0


class SlotSettings(ShareSettings):
    """A share of the slots, which may follow the load."""

    between: Between = None

    def check(self) -> None:
        super().check()
        if self.between and self.most != NEVER:
            raise SettingError(
                f"say either most or between: a most of {self.most} does not follow the load"
            )
        self.to_share()

    def to_share(self) -> Share:
        if not self.between:
            return super().to_share()
        low, high = self.between
        return Share(self.least, high, low)
