"""`lanes`: the waiting lines with their budgets, and the three that ship."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints, WithJsonSchema

from headway.core.lane import Budget, Lane
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.server.config.sections.durations import NONE, Duration, Limit, format_duration
from headway.server.config.sections.section import Count, Number, Section

# Written as in a file. Where the numbers come from:
# interactive: somebody looks at the screen. Half a second is below the one second after which a
#   train of thought breaks (Nielsen 1993). 50 ms per token is 20 tokens a second, three to four
#   times as fast as people read. After 2 s of waiting, a retry elsewhere serves the client better.
# standard: 2 s and 200 ms are MLPerf's limits for a chat server with a 70B model: still as fast as
#   people read. 30 s is half of the minute after which proxies usually give up.
# offline: no budget, last in priority. A request starts when no other lane waits, and then keeps
#   its slot until it ends.
# The bounds on waiting requests bound the memory. A waiting token takes about 36 bytes in each
# process, so the three lanes take 400 MB there at worst. Texts that are being tokenized have their
# own bound, admission.MOST_HELD.
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
STANDARD = "standard"  # the default lane, if there is one of that name

# Valid in headers, in `model@lane`, in metrics' labels and, without hyphens, in variables' names.
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
    """A lane: the latency budget of its requests, and how many may wait."""

    ttft: Annotated[Limit, Field(description="Budget from arrival to the first token.")] = NEVER
    tpot: Annotated[
        Limit, Field(description="Budget of the mean time per token after the first.")
    ] = NEVER
    e2e: Annotated[
        Limit,
        Field(
            description="Time from arrival to the last token; a request that has not ended "
            "by then gets 408."
        ),
    ] = NEVER
    queue: Annotated[
        Limit, Field(description="Longest wait; a request that has not started by then gets 408.")
    ] = NEVER
    window: Annotated[
        Duration,
        Field(
            description="How long dynamic batching may hold the lane's oldest request. "
            "Default: the strategy's window, or a quarter of ttft, or 1s. Only "
            "with a dynamic strategy."
        ),
    ] = NEVER
    priority: Annotated[
        int, Number, Field(description="Lower goes first, if the order is by priority.")
    ] = 0
    max_waiting: Annotated[
        Count, Field(description="Requests that may wait; the next one gets 429.")
    ] = 1_024
    max_waiting_tokens: Annotated[Tokens, Field(description="Prompt tokens that may wait.")] = NEVER

    def check(self) -> None:
        for name in ("ttft", "tpot", "queue"):
            if (limit := getattr(self, name)) != NEVER and limit > self.e2e:
                raise SettingError(
                    f"{name} {format_duration(limit)} can never be used up, because e2e is "
                    f"{format_duration(self.e2e)}"
                )

    def to_lane(self, name: str) -> Lane:
        """The lane as the scheduler knows it."""
        budget = Budget(self.ttft, self.tpot, self.e2e, self.queue)
        return Lane(name, budget, self.priority, self.max_waiting, self.max_waiting_tokens)


def shipped_lanes() -> dict[str, LaneSettings]:
    """The lanes of a configuration that names none."""
    return {name: LaneSettings.model_validate(fields) for name, fields in SHIPPED.items()}
