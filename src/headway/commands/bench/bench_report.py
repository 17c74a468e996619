"""What a benchmark prints, and its two reports."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from headway import __version__
from headway.commands.bench.bench_traffic import BenchLane, BenchWork
from headway.commands.bench.options import BenchOptions
from headway.core.lane import Lane
from headway.costing.machine import describe_machine
from headway.figures.percentile import percentile
from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.formatting import figures
from headway.report.page.page import page
from headway.report.remote.client_description import asked_text, loop_text, server_text, time_text
from headway.report.remote.client_doubts import is_void
from headway.report.remote.client_terminal import print_results
from headway.report.run_description import cut_text
from headway.runs.outcome import Outcome
from headway.runs.remote.client_run import ClientLoad
from headway.runs.remote.wording import Wording

VOID = 1  # the exit status of a run that says nothing about a server


@dataclass(frozen=True, slots=True)
class Server:
    """A server, as report.json describes it."""

    name: str
    rule: str
    settings: Mapping[str, Any]


@dataclass(slots=True)
class BenchReport:
    """Prints the results to the console, and writes report.json and report.html."""

    options: BenchOptions
    wordings: Sequence[Wording]
    lanes: Sequence[BenchLane]
    work: BenchWork
    console: Console
    folder: Path
    runs: dict[str, tuple[Outcome, ...]] = field(default_factory=dict)
    loads: dict[str, list[ClientLoad]] = field(default_factory=dict)
    rates: list[dict[str, Any]] = field(default_factory=list)  # the figures of all rates tried

    @property
    def core_lanes(self) -> list[Lane]:
        """The lanes with their budgets."""
        return [lane.traffic.endpoint.lane({}) for lane in self.lanes]

    def opening(self) -> None:
        """Print what will be offered, before the runs."""
        work = self.work.about
        what, of_sessions = asked_text(work)
        first = (
            f"{figures(work['requests_per_second'])} {what} / s: {work['requests']:,} {what} in "
            f"{figures(self.work.window / 1e9)} s{of_sessions}, "
            f"to each of {len(self.wordings)} servers."
        )
        if len(self.wordings) == 1:
            first = first.replace(", to each of 1 servers", "")
        self.console.print(Text(first))
        if shorter := cut_text(work["cut_to_context"]):
            self.console.print(Text(f"Of these, {shorter}.", style="yellow"))
        for each in self._servers():
            self.console.print(Text(f"{server_text(each)}.", style="dim"))
        self.console.print(Text(f"Loop {loop_text(self._asked())}.", style="dim"))
        self.console.print(Text(f"{time_text(self._workload())}.", style="dim"))

    def add(self, name: str, outcome: Outcome, load: ClientLoad) -> None:
        """Keep a run, and write report.json with the runs so far."""
        self.runs[name] = (*self.runs.get(name, ()), outcome)
        self.loads.setdefault(name, []).append(load)
        self.keep(complete=False)

    def keep(self, complete: bool) -> Analysis:
        """Write report.json atomically. complete: whether all planned runs are in."""
        lanes = {lane.name: lane for lane in self.core_lanes}
        kept = report_json.Report(self._about(complete), lanes, self.runs)
        found = Analysis(kept)
        cards = {each.name: each.card for each in found.comparisons}
        servers = [Server(each["name"], server_text(each), each) for each in self._servers()]
        report_json.write(kept, servers, cards, self.folder / "report.json")
        return found

    def closing(self, complete: bool) -> int:
        """Write both reports, report.html from report.json alone, and print the tables.

        Returns the exit status: VOID if the client was at fault, or no request was served.
        """
        self.keep(complete)
        found = Analysis(report_json.read(self.folder / "report.json"))
        report_json.write_whole(self.folder / "report.html", page(found))
        print_results(found, self.console)
        text = f"The report is {self.folder / 'report.html'}; its rows, report.json."
        self.console.print(Text(text))
        return VOID if is_void(found) else 0

    def _servers(self) -> list[dict[str, Any]]:
        return [
            {
                "name": each.target.name,
                "url": each.target.url,
                "model": each.model,
                "prompts": "ids" if each.exact else "chat" if each.chat else "text",
                "extras": list(each.extras),
                "counts": each.counts,
                "words_per_token": each.words_per_token,
                "context": each.context,
            }
            for each in self.wordings
        ]

    def _asked(self) -> dict[str, Any]:
        options = self.options
        return {"callers": options.callers, "retries": options.retries}

    def _workload(self) -> dict[str, Any]:
        return {
            **self.work.about,
            "window_ns": self.work.window,
            "warm_up_ns": self.work.warm_up,
            "drain_ns": round(self.options.drain * 1e9),
        }

    def _about(self, complete: bool) -> dict[str, Any]:
        names = [each.target.name for each in self.wordings]
        return {
            "headway": __version__,
            "command": "bench",
            "all_runs": complete,
            "planned": names,
            "baseline": names[0],
            "seed": self.options.seed,
            "machine": describe_machine(),
            "model": {"name": ", ".join(dict.fromkeys(each.model for each in self.wordings))},
            "servers": self._servers(),
            "clients": {
                name: [_load(each) for each in loads] for name, loads in self.loads.items()
            },
            "asked": self._asked(),
            "workload": self._workload(),
            **({"rates": self.rates} if self.rates else {}),
            "endpoints": [self._endpoint(lane) for lane in self.lanes],
        }

    def _endpoint(self, lane: BenchLane) -> dict[str, Any]:
        """The endpoint, for report.json. Only its headers' names: a value may be a secret."""
        endpoint, calling = lane.traffic.endpoint, lane.calling
        return {
            **asdict(endpoint),
            "offered": self.work.count(endpoint.name),
            "headers": sorted(calling.headers),
            "cancel": calling.cancel,
        }


def _load(each: ClientLoad) -> dict[str, Any]:
    return {
        "cores": each.cores,
        "stall_p50_ns": percentile(each.stalls, 50) or 0,
        "stall_p99_ns": percentile(each.stalls, 99) or max(each.stalls, default=0),
        "stall_most_ns": max(each.stalls, default=0),
        "ran_out_ns": each.ran_out,
    }
