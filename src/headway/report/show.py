"""What is said about a comparison: to people before and after it, and to report.json."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from headway import __version__
from headway.core.lane import Lane
from headway.costing.machine import cores, machine
from headway.figures.lane_figures import engine_figures, lane_figures
from headway.figures.pressure import cards
from headway.report import report_json, terminal_tables
from headway.report.metadata import of_endpoints, of_model
from headway.runs.machine_speed import ALONE, Yardstick
from headway.runs.run import Outcome
from headway.runs.testbed import Rig
from headway.strategies.strategy import Strategy, strategies
from headway.traffic.endpoint import ENDPOINTS
from headway.traffic.workload import LOAD, TOKEN_SCALE, Workload

BUSY = 0.1  # of a core at work for others, mean over a run, that is worth a warning
MEASURING = "measuring"  # the phase before the strategies
DRAIN = 0.25  # of the window: after it the run goes on for so long, then it is cut off


@dataclass(frozen=True)
class Show:
    """What is said about one comparison, to people and to report.json."""

    rig: Rig
    path: Path
    seed: int
    yardstick: Yardstick
    work: Workload
    console: Console
    others: dict[str, float] = field(default_factory=dict)  # cores at work for them, by phase

    @property
    def lanes(self) -> dict[str, Lane]:
        return {each.name: each.lane(self.yardstick.unloaded) for each in ENDPOINTS}

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        return strategies(self.lanes.values(), self.yardstick.price, self.rig.context)

    @property
    def limit(self) -> int:
        """Nanoseconds after which a run is cut off."""
        return round(self.work.window * (1 + DRAIN))

    def opening(self) -> None:
        """What will be done, before it is."""
        work, rig, price, print_ = self.work, self.rig, self.yardstick.price, self.console.print
        about = machine()
        offered = {endpoint.name: work.count(endpoint.name) for endpoint in ENDPOINTS}
        unloaded = self.yardstick.unloaded
        print_(terminal_tables.endpoints_table(ENDPOINTS, self.lanes, unloaded, offered))
        lines = [
            f"Alone: the median of {ALONE} requests by themselves, with a prompt longer than 95 of "
            f"100 of their endpoint's. The budgets are the same under every strategy:",
            *[f"- {each.name}: {each.rule}" for each in self.strategies],
            f"{rig.model}, {rig.dtype}, {self.yardstick.threads} of {rig.threads} threads "
            f"(as measured: decision 0006), on {about['cores']} x {about['processor']}, seed "
            f"{self.seed}. Token counts are the traces' divided by {TOKEN_SCALE}; one second "
            f"here is {work.time_scale:.2f} s of the traces.",
            f"Offered load {work.load:.2f}: device-seconds per second of the {len(work.requests)} "
            f"requests at full batches ({price.prompt / 1e6:.3f} ms a prompt token, "
            f"{price.answer / 1e6:.3f} ms an answered one, as measured above). Voice and "
            f"labelling are synthetic. The order is the same for all, voice first and labelling "
            f"last; callers are answered as their own tokens come.",
        ]
        if work.trace_ends:
            lines.append(
                f"The shipped trace ends before it makes the load aimed at "
                f"({LOAD:g}): this machine is faster than it is long."
            )
        terminal_tables.print_notes(self.console, lines)
        self._complain(MEASURING)
        print_()

    def closing(self, outcomes: Mapping[str, Outcome]) -> None:
        """What came of it, and the report."""
        latency = {
            name: {lane: lane_figures(outcome, lane) for lane in outcome.offered}
            for name, outcome in outcomes.items()
        }
        engine = {name: engine_figures(outcome) for name, outcome in outcomes.items()}
        whole = {name: outcome for name, outcome in outcomes.items() if outcome.complete}
        pressure = cards(whole, ENDPOINTS)
        found = report_json.Report(
            self._about(), self.lanes, {name: (each,) for name, each in outcomes.items()}
        )
        report_json.write(found, self.strategies, pressure, self.path)
        self.console.print()
        self.console.print(terminal_tables.latency_table(latency))
        terminal_tables.print_notes(self.console, terminal_tables.latency_notes(latency))
        self.console.print()
        self.console.print(terminal_tables.engine_table(engine))
        terminal_tables.print_notes(self.console, [terminal_tables.ENGINE_NOTE])
        if pressure:
            self.console.print()
            terminal_tables.print_cards(self.console, pressure)
        self._complain(*outcomes)
        self.console.print()

    def _complain(self, *phases: str) -> None:
        """Where other processes have spoilt the times: threads that wait for each other stall."""
        found = {phase: self.others.get(phase, 0.0) for phase in phases}
        if spoilt := [f"{phase} {took:.1f}" for phase, took in found.items() if took > BUSY]:
            said = (
                f"Other processes were at work on these {cores()} cores (mean number of cores: "
                f"{', '.join(spoilt)}). Times taken meanwhile are too long, and not comparable."
            )
            self.console.print(Text(said, style="yellow"))

    def _about(self) -> dict[str, Any]:
        rig, work, yardstick = self.rig, self.work, self.yardstick
        return {
            "headway": __version__,
            "command": "demo",
            "seed": self.seed,
            "machine": machine(),
            "cores_of_other_processes": self.others,
            "model": of_model(rig) | {"threads": self.yardstick.threads},
            "workload": {
                "trace": "azure2023-code and azure2023-conv, from second 1080 of each file on",
                "trace_seconds_used": work.window * work.time_scale / 1e9,
                "token_scale": TOKEN_SCALE,
                "time_scale": work.time_scale,
                "window_ns": work.window,
                "drain_ns": round(work.window * DRAIN),
                "offered_load": work.load,
                "price_ns": asdict(yardstick.price),
                "answers": "as long as the trace says: no stop tokens, greedy",
            },
            "endpoints": of_endpoints(ENDPOINTS, work, yardstick),
        }
