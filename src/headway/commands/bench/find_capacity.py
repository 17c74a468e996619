"""`headway bench --find-capacity`: the highest rate at which a server keeps every lane's budget.

Every rate offers the same requests, faster or slower. The search is that of figures.capacity.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headway.commands.bench.bench_offers import offers_of
from headway.commands.bench.bench_report import VOID, BenchReport
from headway.commands.bench.bench_traffic import BenchLane, BenchWork, lanes_at_rate
from headway.commands.bench.options import BenchOptions
from headway.commands.interruption import exit_status
from headway.commands.simulate.capacity_table import NOTE, capacity_table, has_number
from headway.commands.simulate.capacity_text import Found, Scope, capacity_sentence, goal
from headway.core.lane import Budget
from headway.errors import SettingError
from headway.figures.capacity import Capacity, TriedRate, search_capacity
from headway.figures.capacity_interval import Tallies, capacity_interval, tally_blocks
from headway.figures.rate_point import RatePoint, rate_point
from headway.figures.warm_up import without_warm_up
from headway.report.formatting import tenths
from headway.report.remote.client_doubts import MOST_LAG, lag_of
from headway.report.report_json import plain_point, writable, write_whole
from headway.runs.outcome import Outcome
from headway.runs.progress import show_progress
from headway.runs.remote.client_row import OWN_FAULT
from headway.runs.remote.client_run import ClientLoad, ClientRun, Manner
from headway.runs.remote.first_contact import Contact
from headway.runs.remote.wording import Wording

FIRST, LAST = 1 / 4, 16.0  # times the offered rate: where the search begins and ends
TOLERANCE = 0.05  # of the rate; two runs at the same rate differ by about this much
UNIT = "requests / s"


class SearchEnd(Exception):
    """A run says nothing about the server's capacity, so the search ends. The message says why."""


class ServerGone(SearchEnd):
    """The server no longer answers."""


@dataclass(slots=True)
class CapacitySearch:
    """The search on one server."""

    options: BenchOptions
    wording: Wording
    lanes: Sequence[BenchLane]
    work: BenchWork  # at the offered rate
    console: Console
    tried: list[TriedRate] = field(default_factory=list)
    tallies: dict[float, Tallies] = field(default_factory=dict)
    points: dict[float, RatePoint] = field(default_factory=dict)
    # the run at the highest kept rate
    kept: dict[float, tuple[BenchWork, Outcome, ClientLoad]] = field(default_factory=dict)
    end: str = f"{LAST:g} times the offered rate"  # why the search ended, in words
    is_gone: bool = False  # whether the server stopped answering

    @property
    def share(self) -> float:
        return self.options.find_capacity / 100

    def search(self) -> None:
        """Try rates until the capacity is known. Rates tried are kept, however the search ends."""
        rate = self.work.rate
        try:
            search_capacity(
                self._attainment, FIRST * rate, LAST * rate, TOLERANCE, share=self.share
            )
        except SearchEnd as end:
            self.end, self.is_gone = str(end), isinstance(end, ServerGone)
            self.console.print(Text(f"The search ends: {self.end}.", style="yellow"))

    def _attainment(self, rate: float) -> dict[str, float]:
        work, options = self.work.at_rate(rate), self.options
        offers = offers_of(work, self.lanes, self.wording, options.seed)
        lanes = [lane.traffic.endpoint.lane({}) for lane in self.lanes]
        drain = round(options.drain * 1e9)
        manner = Manner(drain, work.window, options.retries, 0, options.seed)
        run = ClientRun(self.wording, offers, lanes, manner)
        with show_progress(self.console, f"{rate:.3g} / s", len(offers), work.window) as watch:
            outcome = run.serve(watch)
        if lag_of(outcome) > MOST_LAG:
            raise SearchEnd(f"at {rate:.3g} {UNIT} the client itself was late")
        if own := [row.error for row in outcome.client if row.is_clients_fault]:
            raise SearchEnd(
                f"at {rate:.3g} {UNIT} the client had too few descriptors or ports: "
                f"{own[0].removeprefix(OWN_FAULT)}"
            )
        if any(row.error and not row.status for row in outcome.client):
            self._check_server(rate)
        counted = without_warm_up(outcome, work.warm_up)
        self.tallies[rate] = tally_blocks(counted, work.warm_up, work.window)
        point = self.points[rate] = rate_point(rate, counted)
        found = {lane: each.attainment for lane, each in point.lanes.items() if each.offered}
        self.tried.append(TriedRate(rate, found, self.share))
        if self.tried[-1].kept and rate > max(self.kept, default=0.0):
            self.kept = {rate: (work, outcome, run.load)}
        worst = min(found, key=lambda lane: found[lane], default="")
        said = f"{worst} keeps {tenths(found[worst])}" if worst else "nobody counts"
        self.console.print(Text(f"{rate:.3g} {UNIT}: {said}", style="dim"))
        return found

    def _check_server(self, rate: float) -> None:
        """Raise ServerGone if the server is gone, and not just overloaded."""
        try:
            asyncio.run(Contact(self.wording.target, self.wording.headers).check())
        except SettingError as error:
            raise ServerGone(f"at {rate:.3g} {UNIT}, {error}") from error

    @property
    def found(self) -> Found:
        """The capacity, judged by all rates tried so far."""
        top = max((each.rate for each in self.tried if each.kept), default=0.0)
        above = [each.rate for each in self.tried if each.broken and each.rate > top]
        capacity = Capacity(top, (top, min(above, default=inf)), tuple(self.tried))
        sure = capacity_interval(self.tallies, top, 1, self.options.seed, self.share)
        return Found(capacity, sure)


def find_capacity(
    options: BenchOptions,
    wordings: Sequence[Wording],
    lanes: Sequence[BenchLane],
    work: BenchWork,
    console: Console,
) -> int:
    """Search on each server in turn, write the results after each, and return the exit status."""
    searches, folder = dict[str, CapacitySearch](), writable(options.out)
    status, is_broken_off = 0, False
    for wording in wordings:
        name = wording.target.name
        console.print(Text(f"{name}:", style="bold"))
        search = searches[name] = CapacitySearch(options, wording, lanes, work, console)
        try:
            search.search()
            status = VOID if search.is_gone else status
        except KeyboardInterrupt as end:
            status, search.end, is_broken_off = exit_status(end), "it was broken off", True
        _write(searches, folder / "capacity.json")
        if search.kept:
            inner = folder if len(wordings) == 1 else folder / name.replace(":", "-")
            _report(search, inner)
        if is_broken_off:
            break
    _print(searches, console, folder)
    return status


def check_budgets(lanes: Sequence[BenchLane], options: BenchOptions) -> None:
    """Raise SettingError if no lane has a budget, or if options contradict the search."""
    if all(lane.traffic.endpoint.fixed == Budget() for lane in lanes):
        raise SettingError("--find-capacity: no lane has a budget; for instance --ttft 500")
    if not 0 < options.find_capacity <= 100:
        raise SettingError(
            f"--find-capacity is a share in percent, such as 95, not {options.find_capacity:g}"
        )
    if not all(lane.calling.sessions.is_single for lane in lanes):
        raise SettingError("--find-capacity offers the same requests at each rate: no sessions")
    if options.callers or options.repeat > 1:
        raise SettingError("--find-capacity searches once, in an open loop: no --callers, --repeat")


def _write(searches: dict[str, CapacitySearch], path: Path) -> None:
    """Write each server's capacity and the figures of each rate."""
    plain = {
        name: {
            "capacity": search.found.capacity.rate if search.tried else None,
            "required": search.share,
            "interval": asdict(search.found.sure) if search.tried else None,
            "ended_by": search.end,
            "tried": [
                {"attainment": dict(each.attainment), **plain_point(search.points[each.rate])}
                for each in search.tried
            ],
        }
        for name, search in searches.items()
    }
    write_whole(path, json.dumps(plain, indent=1) + "\n")


def _report(search: CapacitySearch, folder: Path) -> None:
    """Write the report of the run at the highest kept rate."""
    ((rate, (work, outcome, load)),) = search.kept.items()
    lanes, quiet = lanes_at_rate(search.lanes, search.options, rate), Console(quiet=True)
    report = BenchReport(search.options, [search.wording], lanes, work, quiet, writable(folder))
    report.rates = [plain_point(point) for point in search.points.values()]
    report.add(search.wording.target.name, outcome, load)
    report.closing(complete=True)


def _print(searches: dict[str, CapacitySearch], console: Console, folder: Path) -> None:
    console.print()
    found = {name: search.found for name, search in searches.items() if search.tried}
    for name, each in found.items():
        search = searches[name]
        ends = any(each["trace_ends"] for each in search.work.about["lanes"].values())
        scope = Scope(UNIT, search.options.seconds, search.end, trace_ends=ends)
        said = capacity_sentence(each, scope)
        console.print(Text(f"{name}: capacity at {goal(search.share)} {said}.", style="bold"))
    numbered = {name: each for name, each in found.items() if has_number(each)}
    if len(numbered) > 1:
        console.print()
        console.print(capacity_table(numbered, next(iter(searches.values())).share, UNIT))
        console.print(Text(NOTE, style="dim"))
    where = f"{folder / 'capacity.json'} has what every rate did"
    if any(search.kept for search in searches.values()):
        where += "; report.html is of the run at the capacity"
    console.print(Text(f"{where}."))
