"""Lanes as an operator writes them, and the three that ship."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints, WithJsonSchema

from headway.core.lane import Budget, Lane
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.server.config.sections.durations import NONE, Duration, Limit, written
from headway.server.config.sections.section import Count, Number, Section

# As the file would say them. Where the numbers come from:
# interactive: somebody looks at the screen. Half a second is below the one after which a train of
#   thought breaks (Nielsen 1993); 50 ms a token is 20 tokens a second, three to four times as
#   fast as people read. Who has waited 2 s is better served by a retry elsewhere.
# standard: 2 s and 200 ms are MLPerf's limits for a chat server with a 70B model: still as fast as
#   people read. 30 s is half of the minute after which proxies usually give up.
# offline: no budget, last in priority. It starts while nobody else waits, and is not put aside for
#   who comes later: a slot that it has is its own until it ends.
# How many may wait bounds the memory: a waiting token takes about 36 bytes in each process, so
# the three lanes together take 400 MB there at worst; what is being tokenized, door.MOST_HELD.
SHIPPED: Mapping[str, Mapping[str, Any]] = {
    "interactive": {
        "ttft": "500ms",
        "tpot": "50ms",
        "queue": "2s",
        "priority": 0,
        "max_waiting": 64,
        "max_waiting_tokens": 262_144,
    },
    "standard": {
        "ttft": "2s",
        "tpot": "200ms",
        "queue": "30s",
        "priority": 1,
        "max_waiting": 1_024,
        "max_waiting_tokens": 2_097_152,
    },
    "offline": {"priority": 2, "max_waiting": 10_000, "max_waiting_tokens": 8_388_608},
}
STANDARD = "standard"  # the lane of those who name none, where there is one of that name

# In a header, in `model@lane`, in a metric's label and (but for the hyphen) in a variable's name.
LaneName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Tokens = Annotated[
    int,
    Number,
    BeforeValidator(lambda value: NEVER if value in (None, NONE) else value),
    Field(ge=1),
    PlainSerializer(lambda count: NONE if count == NEVER else count),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"enum": [NONE, None]}]}),
]


class LaneSettings(Section):
    """An endpoint's waiting line: what a request in it may take, and how many may wait."""

    ttft: Annotated[Limit, Field(description="Arrival to first token.")] = NEVER
    tpot: Annotated[Limit, Field(description="Mean time per token after the first.")] = NEVER
    e2e: Annotated[Limit, Field(description="Arrival to last token.")] = NEVER
    queue: Annotated[
        Limit, Field(description="Longest legal wait; who has not started by then is answered 408.")
    ] = NEVER
    window: Annotated[
        Duration,
        Field(
            description="How long dynamic batching may hold its oldest. None: the strategy's "
            "window, or a quarter of ttft, or a second. Only with a dynamic strategy."
        ),
    ] = NEVER
    priority: Annotated[
        int, Number, Field(description="Lower goes first, where the order is by priority.")
    ] = 0
    max_waiting: Annotated[
        Count, Field(description="Requests that may wait; the next is answered 429.")
    ] = 1_024
    max_waiting_tokens: Annotated[Tokens, Field(description="Prompt tokens that may wait.")] = NEVER

    def check(self) -> None:
        for name in ("ttft", "tpot", "queue"):
            if (limit := getattr(self, name)) != NEVER and limit > self.e2e:
                raise SettingError(
                    f"{name} {written(limit)} can never be used up, because e2e is "
                    f"{written(self.e2e)}"
                )

    def lane(self, name: str) -> Lane:
        """As the core knows it."""
        budget = Budget(self.ttft, self.tpot, self.e2e, self.queue)
        return Lane(name, budget, self.priority, self.max_waiting, self.max_waiting_tokens)


def shipped() -> dict[str, LaneSettings]:
    return {name: LaneSettings.model_validate(fields) for name, fields in SHIPPED.items()}
