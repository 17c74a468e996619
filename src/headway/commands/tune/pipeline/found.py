"""What `headway tune --pipeline` has found (Found), in words and as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from headway.commands.simulate.capacity_text import INTERVAL
from headway.commands.tune.pipeline.sizing import Sizing, sizing_of
from headway.commands.tune.pipeline.trial import Rated
from headway.figures.capacity_interval import ENOUGH_REQUESTS
from headway.pipelines.simulated.plan import Plan

RECOMMENDED, GIVEN = "recommended", "as given"
UNIT = "workflows/s"
LASTS = 5  # deadlines that a window should last


@dataclass(frozen=True, slots=True)
class Found:
    """The stages that were found, and the evidence for them."""

    given: Plan
    plan: Plan  # with the recommended sizes
    best: Rated  # on the tuning windows, which the choice was made by
    traffic: str  # in words
    seed: int
    requests: int  # workflows per window
    processes: int  # of all stages together
    tried: int = 0  # trials that the search ran
    held: Mapping[str, Rated] = field(default_factory=dict)  # on held-out windows; empty: unchecked

    @property
    def is_kept(self) -> bool:
        """Whether it keeps some rate on the held-out windows."""
        return RECOMMENDED in self.held and self.held[RECOMMENDED].rate > 0

    @property
    def sizings(self) -> dict[str, Sizing]:
        return {RECOMMENDED: sizing_of(self.plan), GIVEN: sizing_of(self.given)}

    def headline(self) -> str:
        """The answer in one sentence."""
        if not self.held:
            return f"Tuning windows, not checked: {said(self.best)}."
        gain = ""
        if self.held[GIVEN].rate:
            times = self.held[RECOMMENDED].rate / self.held[GIVEN].rate
            gain = f", {times:.2f} times the rate of the stages as given"
        return f"Held-out windows: {said(self.held[RECOMMENDED])}{gain}."

    @property
    def doubts(self) -> list[str]:
        """Why the rate may be too high: a short window ends before a queue has grown."""
        rate = (self.held.get(RECOMMENDED) or self.best).rate
        deadlines = self.requests / rate / self.given.deadline if rate else LASTS
        if deadlines >= LASTS:
            return []
        more = ceil(LASTS * rate * self.given.deadline)
        return [
            f"At this rate a window lasts {deadlines:.1f} deadlines only, too short for lines to "
            f"grow: take --requests {more}."
        ]

    def about(self) -> list[str]:
        """What it was measured on."""
        deadline = f"{1e3 * self.given.deadline:g} ms"
        return [
            f"95 % of the workflows within {deadline}; {self.traffic}, four windows of "
            f"{self.requests} workflows; {self.processes} processes in all; "
            f"{self.tried} trials, seed {self.seed}.",
            *self.doubts,
            "Simulated: each stage has its processes for itself; calls cost what the file says.",
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything, for other programs. Rates are workflows per second, times seconds."""
        return {
            "headway_tune_pipeline": 1,
            "traffic": self.traffic,
            "seed": self.seed,
            "requests": self.requests,
            "processes": self.processes,
            "trials": self.tried,
            "doubts": self.doubts,
            "recommended": self.plan.plain,
            "given": self.given.plain,
            "tuning": _plain(self.best),
            "held_out": {name: _plain(each) for name, each in self.held.items()},
        }


def said(rated: Rated) -> str:
    """A capacity in words, with its interval and n."""
    sure = rated.sure
    if not rated.rate:
        return "no rate keeps 95 %"
    text = f"{rated.rate:.3g} {UNIT} ({INTERVAL} {sure.low:.3g} to {sure.high:.3g}, n "
    text += f"{sure.counted})"
    return text if sure.counted >= ENOUGH_REQUESTS else f"{text}, too few to be sure"


def _plain(rated: Rated) -> dict[str, Any]:
    return {
        "capacity": rated.rate,
        INTERVAL: [rated.sure.low, rated.sure.high],
        "n": rated.sure.counted,
        "attainment": rated.attainment,
        "tried": [
            {"rate": each.rate, "attainment": dict(each.attainment)}
            for each in rated.capacity.tried
        ],
    }
