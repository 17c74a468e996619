"""What a comparison prints before and after its runs, and the two reports it writes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.text import Text

from headway import __version__
from headway.costing.machine import cores, describe_machine
from headway.figures.medians import median_figures
from headway.report import report_json, terminal_tables, workload_summary
from headway.report.analysis import Analysis
from headway.report.formatting import pressed, threads
from headway.report.metadata import of_endpoints, of_model
from headway.report.page.page import page
from headway.report.run_description import ENFORCED, beyond_model
from headway.report.verdict import caution, verdict
from headway.runs.experiment import Experiment
from headway.runs.outcome import Outcome
from headway.runs.provenance import Provenance
from headway.strategies.strategy import Strategy

BUSY = 0.1  # cores taken by other processes, mean over a run: more than this gives a warning
MEASURING = "measuring"  # the phase before the runs
DRAIN = 0.25  # of the window: how long after it unfinished requests may still run
BROKEN = "*"  # marks a strategy whose run was broken off
FEW = 3  # comparisons up to this many are all printed; of more, only the first


@dataclass(frozen=True, slots=True)
class Reporter:
    """Prints the results to the console, and writes report.json and report.html."""

    experiment: Experiment
    strategies: tuple[Strategy, ...]
    baseline: str
    price_per_hour: float
    console: Console
    origin: Provenance = field(default_factory=dict)  # of simulated times
    command: str = "compare"
    enforced: bool = False  # whether the endpoints' limits are enforced

    def opening(self) -> None:
        """Print what will be offered, before the runs."""
        experiment, work = self.experiment, self.experiment.work
        self.console.print(Text(workload_summary.first_line(experiment)))
        for remark in workload_summary.remarks(experiment):
            self.console.print(Text(remark))
        if self.command != "demo" and (few := workload_summary.too_few(experiment)):
            self.console.print(Text(few, style="yellow"))
        lanes = {lane.name: lane for lane in experiment.lanes}
        offered = {each.name: work.count(each.name) for each in experiment.endpoints}
        unloaded = experiment.speed.unloaded
        budgets = terminal_tables.endpoints_table(experiment.endpoints, lanes, unloaded, offered)
        self.console.print(budgets)
        self.console.print(Text(f"{self._where()}, seed {experiment.seed}.", style="dim"))
        if self.enforced:
            self.console.print(Text(f"Enforced: {ENFORCED}."))
        if not self.origin:
            self._complain({MEASURING: experiment.cores_taken})

    def _where(self) -> str:
        """The model and the hardware that runs it, or a note that the times are simulated."""
        testbed, about = self.experiment.testbed, describe_machine()
        if self.origin:
            text = f"{testbed.model}, {testbed.dtype}, {threads(testbed.threads)}, simulated"
            return f"{text}: {workload_summary.room(testbed)}"
        return (
            f"{testbed.model}, {testbed.dtype}, "
            f"{self.experiment.speed.threads} of {testbed.threads} threads "
            f"on {about['cores']} x {about['processor']}"
        )

    def keep(
        self,
        runs: Mapping[str, tuple[Outcome, ...]],
        others: Mapping[str, float],
        folder: Path,
        complete: bool,
    ) -> report_json.Report:
        """Write report.json atomically. complete: whether all planned runs are in."""
        lanes = {lane.name: lane for lane in self.experiment.lanes}
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
        """Write both reports, report.html from report.json alone, and print the tables."""
        self.keep(runs, others, folder, complete)
        found = Analysis(report_json.read(folder / "report.json"))
        report_json.write_whole(folder / "report.html", page(found))
        self._print(found, folder)
        if not self.origin:
            self._complain(others)

    def _print(self, found: Analysis, folder: Path) -> None:
        """Print the verdict, the latency and throughput tables, and where the report is. With
        several repeats the tables give medians; the page has the range, too."""
        print_, tail = self.console.print, found.tail
        names = {each: each if found.is_whole(each) else each + BROKEN for each in found.strategies}
        first = {
            names[name]: {lane: median_figures(each) for lane, each in lanes.items()}
            for name, lanes in found.latency.items()
        }
        print_()
        print_(Text(verdict(found), style="bold"))
        if doubt := caution(found):
            print_(Text(doubt, style="yellow"))
        if beyond := beyond_model(found):
            print_(Text(beyond, style="yellow"))
        print_()
        latency = terminal_tables.latency_table(first, tail)
        engine = {names[name]: median_figures(each) for name, each in found.engine.items()}
        tables = [latency] if latency.row_count else []
        if any(found.tenants.values()):
            tables.append(terminal_tables.tenants_table(_named(found.tenants, names)))
        tables.append(terminal_tables.engine_table(engine))
        if promised := found.promised:
            tables.append(terminal_tables.promises_table(_named(promised, names)))
        if any(found.changes.values()):
            tables.append(terminal_tables.sizes_table(_named(found.changes, names)))
        for table in tables:
            print_(table)
            print_()
        shown = found.comparisons[: None if len(found.comparisons) <= FEW else 1]
        for each in shown:
            compared = f" against {each.other}: {pressed(each.card)}."
            print_(Text.assemble((each.name, "bold"), compared))
        notes = [*terminal_tables.latency_notes(first, tail), terminal_tables.ENGINE_NOTE]
        if not all(map(found.is_whole, found.strategies)):
            notes.append(f"{BROKEN}: broken off; its missing requests count as not served.")
        if (repeats := len(next(iter(found.engine.values()), ()))) > 1:
            notes.append(
                f"Latency and throughput: medians of {repeats} repeats; else the first one."
            )
        terminal_tables.print_notes(self.console, notes)
        print_(Text(f"The report is {folder / 'report.html'}; its rows, report.json."))

    def _complain(self, others: Mapping[str, float]) -> None:
        if spoilt := [f"{phase} {took:.1f}" for phase, took in others.items() if took > BUSY]:
            text = (
                f"Other processes were at work on these {cores()} cores (mean number of cores: "
                f"{', '.join(spoilt)}). Times taken meanwhile are too long, and not comparable."
            )
            self.console.print(Text(text, style="yellow"))

    def _about(self, others: Mapping[str, float], complete: bool) -> dict[str, Any]:
        experiment, work = self.experiment, self.experiment.work
        where = {
            "machine": describe_machine(),
            "cores_of_other_processes": {MEASURING: experiment.cores_taken, **others},
        }
        if self.origin:  # nothing about this machine: the same seed gives the same bytes
            where = {"simulated": self.origin, "machine": self.origin["machine"]}
        return {
            "headway": __version__,
            "command": self.command,
            "all_runs": complete,
            **({"enforced": True} if self.enforced else {}),
            "planned": [each.name for each in self.strategies],
            "rules": [
                {"name": each.name, "rule": each.rule, "policies": each.settings}
                for each in self.strategies
            ],
            "baseline": self.baseline,
            "price_per_hour": self.price_per_hour,
            "seed": experiment.seed,
            **where,
            "model": of_model(experiment.testbed) | {"threads": experiment.speed.threads},
            "workload": {
                **experiment.about,
                "window_ns": work.window,
                "warm_up_ns": work.warm_up,
                "drain_ns": round(work.window * DRAIN),
                "offered_load": work.load,
                "price_ns": asdict(experiment.speed.token_cost),
                "answers": "as long as the trace or the process says: no stop tokens, greedy",
            },
            "endpoints": of_endpoints(experiment.endpoints, work, experiment.speed),
        }


Figures = TypeVar("Figures")


def _named(figures: Mapping[str, Figures], names: Mapping[str, str]) -> dict[str, Figures]:
    """The figures of each strategy, under the name that is printed."""
    return {names[name]: each for name, each in figures.items()}
