"""`lanes`: the waiting lines with their budgets, and the three that ship."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from headway.core.lane import Budget, Lane
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.server.config.durations import (
    SECOND,
    Between,
    Limit,
    Window,
    format_duration,
    shortest,
)
from headway.server.config.sections.section import Count, Number, Section
from headway.server.config.sections.shares import (
    MOST_COUNT,
    Bound,
    ShareSettings,
    SlotSettings,
    StepTokenSettings,
)

# Written as in a file. The numbers come from:
# interactive: a person watches the screen. Half a second is below the one second after which a
#   train of thought breaks (Nielsen 1993). 50 ms per token is 20 tokens a second, three to four
#   times as fast as people read. After 2 s of waiting, a retry elsewhere serves the client better.
# standard: 2 s and 200 ms are MLPerf's limits for a chat server with a 70B model: still as fast as
#   people read. 30 s is half of the minute after which proxies usually give up.
# offline: no budget, last in priority. A request starts when no other lane waits. With the strategy
#   priority it then keeps its slot until it ends; with budgets the lane keeps one slot and may have
#   to give up the rest.
# The bounds on waiting requests bound the memory. A waiting token takes about 36 bytes in each
# process, so the three lanes take 400 MB per process at worst. Texts that are being tokenized have
# a bound of their own, admission.MOST_HELD.
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
    "offline": {
        "priority": 2,
        "max_waiting": 10_000,
        "max_waiting_tokens": 8_388_608,
        "slots": {"least": 1},
    },
}
STANDARD = "standard"  # the default lane, if a lane has this name
OFFLINE = "offline"  # the lane of jobs, if a lane has this name
WINDOW_SHARE = 0.25  # a lane's default window, as a share of its limits

# Valid in headers, in `model@lane`, in metrics' labels and, without hyphens, in variables' names.
LaneName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


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
        Window,
        Field(
            description="How long dynamic batching may hold the lane's oldest request: a time, or "
            "between two, by the load. Default: the strategy's window, or a quarter of ttft, or "
            "1s without one, and at most a quarter of queue and e2e. Only with a dynamic strategy."
        ),
    ] = NEVER
    priority: Annotated[
        int, Number, Field(description="Lower goes first, if the order is by priority.")
    ] = 0
    max_waiting: Annotated[
        Count,
        Field(le=MOST_COUNT, description="Requests that may wait; the next one gets 429."),
    ] = 1_024
    max_waiting_tokens: Annotated[Bound, Field(description="Prompt tokens that may wait.")] = NEVER
    slots: Annotated[
        SlotSettings, Field(description="Sequences that run at once: least, most or between.")
    ] = SlotSettings()
    blocks: Annotated[
        ShareSettings,
        Field(description="KV blocks: least, most. One that sequences share counts for each."),
    ] = ShareSettings()
    step_tokens: Annotated[
        StepTokenSettings, Field(description="Tokens of a step: least, most.")
    ] = StepTokenSettings()
    chunk: Annotated[
        Bound, Field(description="Prompt tokens of a step, at most. Default: the strategy's.")
    ] = NEVER
    late: Annotated[
        Literal["relegate", "refuse", "take"],
        Field(
            description="What becomes of a request whose first token cannot come within ttft, or "
            "its end within e2e: relegate serves it behind the others; refuse answers with 429, "
            "already if its first token is promised to be late when it comes; take leaves it in "
            "its place. Only with a strategy by budgets."
        ),
    ] = "relegate"

    def check(self) -> None:
        if self.late != "relegate" and self.ttft == self.e2e == NEVER:
            raise SettingError(
                f"late {self.late} is for lanes with a ttft or an e2e: nothing is late without one"
            )
        for name in ("ttft", "tpot", "queue"):
            if (limit := getattr(self, name)) != NEVER and limit > self.e2e:
                raise SettingError(
                    f"{name} {format_duration(limit)} can never be used up, because e2e is "
                    f"{format_duration(self.e2e)}"
                )
        self.check_window(self.window)

    def check_window(self, window: int | Between, prefix: str = "") -> None:
        """Raise SettingError if a lone request that is held for the window would be dropped. Beyond
        ttft it would only be late, which `headway diagnose` tells. A window that follows the load
        starts with the shorter time. prefix: begins the message."""
        if (held := shortest(window)) == NEVER:
            return
        for name in ("queue", "e2e"):
            if held >= (limit := getattr(self, name)):
                raise SettingError(
                    f"{prefix}window {format_duration(held)} is not shorter than {name} "
                    f"{format_duration(limit)}, so a lone request would always be dropped"
                )

    def window_in_force(self, shared: int | Between) -> int | Between:
        """The lane's own window, else the one that the lanes share, else a default."""
        for given in (self.window, shared):
            if given != NEVER:
                return given
        default = SECOND if self.ttft == NEVER else round(WINDOW_SHARE * self.ttft)
        return min(default, round(WINDOW_SHARE * min(self.queue, self.e2e)))

    def to_lane(self, name: str) -> Lane:
        """The lane as a value of the core."""
        return Lane(
            name,
            Budget(self.ttft, self.tpot, self.e2e, self.queue),
            self.priority,
            self.max_waiting,
            self.max_waiting_tokens,
            slots=self.slots.to_share(),
            blocks=self.blocks.to_share(),
            step_tokens=self.step_tokens.to_share(),
            chunk=self.chunk,
            late=self.late,
        )


def shipped_lanes() -> dict[str, LaneSettings]:
    """The default lanes, for a configuration without lanes."""
    return {name: LaneSettings.model_validate(fields) for name, fields in SHIPPED.items()}
