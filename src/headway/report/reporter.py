"""What is said about a comparison: to people before and after it, and to its two reports."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from headway import __version__
from headway.costing.machine import cores, machine
from headway.report import report_json, terminal_tables, workload_summary
from headway.report.analysis import Analysis
from headway.report.formatting import pressed
from headway.report.metadata import of_endpoints, of_model
from headway.report.page import page
from headway.report.show import BUSY, DRAIN, MEASURING
from headway.runs.experiment import Setting
from headway.runs.machine_speed import ALONE
from headway.runs.provenance import Origin
from headway.runs.run import Outcome
from headway.strategies.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Reporter:
    setting: Setting
    strategies: tuple[Strategy, ...]
    baseline: str
    price_per_hour: float
    console: Console
    origin: Origin = field(default_factory=dict)  # of simulated times

    def opening(self) -> None:
        setting, work = self.setting, self.setting.work
        self.console.print(Text(workload_summary.first_line(setting)))
        for remark in workload_summary.remarks(setting):
            self.console.print(Text(remark))
        if few := workload_summary.too_few(setting):
            self.console.print(Text(few, style="yellow"))
        lanes = {lane.name: lane for lane in setting.lanes}
        offered = {each.name: work.count(each.name) for each in setting.endpoints}
        unloaded = setting.yardstick.unloaded
        budgets = terminal_tables.endpoints_table(setting.endpoints, lanes, unloaded, offered)
        self.console.print(budgets)
        lines = [
            f"Unloaded: the median of {ALONE} requests alone. The budgets are the same under "
            "every strategy:",
            *[f"- {each.name}: {each.rule}" for each in self.strategies],
            f"{self._where()}, seed {setting.seed}.",
        ]
        terminal_tables.print_notes(self.console, lines)
        if not self.origin:
            self._complain({MEASURING: setting.spoilt})

    def _where(self) -> str:
        """The model and what it runs on, or would."""
        rig, about = self.setting.rig, machine()
        if self.origin:
            said = f"{rig.model}, {rig.dtype}, {rig.threads} threads, simulated"
            return f"{said}: {workload_summary.room(rig)}"
        return (
            f"{rig.model}, {rig.dtype}, {self.setting.yardstick.threads} of {rig.threads} threads "
            f"(as measured: decision 0006), on {about['cores']} x {about['processor']}"
        )

    def keep(
        self,
        runs: Mapping[str, tuple[Outcome, ...]],
        others: Mapping[str, float],
        folder: Path,
        complete: bool,
    ) -> report_json.Report:
        """report.json, whole or not at all; not complete: more runs were planned."""
        lanes = {lane.name: lane for lane in self.setting.lanes}
        kept = report_json.Report(self._about(others, complete), lanes, runs)
        cards = {
            each.name: each.card
            for each in Analysis(kept).comparisons
            if each.other == self.baseline
        }
        report_json.write(kept, self.strategies, cards, folder / "report.json")
        return kept

    def closing(
        self,
        runs: Mapping[str, tuple[Outcome, ...]],
        others: Mapping[str, float],
        folder: Path,
        complete: bool,
    ) -> None:
        """Both reports, the second made of nothing but the first; and the tables."""
        self.keep(runs, others, folder, complete)
        found = Analysis(report_json.read(folder / "report.json"))
        (folder / "report.html").write_text(page(found), encoding="utf-8")
        self.console.print()
        first = {
            name: {lane: each[0] for lane, each in lanes.items()}
            for name, lanes in found.latency.items()
        }
        self.console.print(terminal_tables.latency_table(first))
        terminal_tables.print_notes(self.console, terminal_tables.latency_notes(first))
        engine = {name: each[0] for name, each in found.engine.items()}
        self.console.print()
        self.console.print(terminal_tables.engine_table(engine))
        terminal_tables.print_notes(self.console, [terminal_tables.ENGINE_NOTE])
        for each in found.comparisons:
            line = Text.assemble(
                (each.name, "bold"), f" against {each.other}: {pressed(each.card)}"
            )
            self.console.print(line)
        if not self.origin:
            self._complain(others)
        self.console.print(Text(f"The report is {folder / 'report.html'}; its rows, report.json."))

    def _complain(self, others: Mapping[str, float]) -> None:
        if spoilt := [f"{phase} {took:.1f}" for phase, took in others.items() if took > BUSY]:
            said = (
                f"Other processes were at work on these {cores()} cores (mean number of cores: "
                f"{', '.join(spoilt)}). Times taken meanwhile are too long, and not comparable."
            )
            self.console.print(Text(said, style="yellow"))

    def _about(self, others: Mapping[str, float], complete: bool) -> dict[str, Any]:
        setting, work = self.setting, self.setting.work
        where = {
            "machine": machine(),
            "cores_of_other_processes": {MEASURING: setting.spoilt, **others},
        }
        if self.origin:  # nothing of this machine, so that the same seed gives the same bytes
            where = {"simulated": self.origin, "machine": self.origin["machine"]}
        return {
            "headway": __version__,
            "command": "simulate" if self.origin else "compare",
            "all_runs": complete,
            "planned": [each.name for each in self.strategies],
            "rules": [
                {"name": each.name, "rule": each.rule, "policies": each.settings}
                for each in self.strategies
            ],
            "baseline": self.baseline,
            "price_per_hour": self.price_per_hour,
            "seed": setting.seed,
            **where,
            "model": of_model(setting.rig) | {"threads": setting.yardstick.threads},
            "workload": {
                **setting.about,
                "window_ns": work.window,
                "warm_up_ns": work.warm_up,
                "drain_ns": round(work.window * DRAIN),
                "offered_load": work.load,
                "price_ns": asdict(setting.yardstick.price),
                "answers": "as long as the trace or the process says: no stop tokens, greedy",
            },
            "endpoints": of_endpoints(setting.endpoints, work, setting.yardstick),
        }
