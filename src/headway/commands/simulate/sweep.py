"""`headway simulate --sweep` and `--capacity`: many simulations at once, and their sum."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headway.commands.compare.compare import Asked, Terminated, services_of
from headway.commands.simulate import capacity_text, sweep_report
from headway.commands.simulate.capacity_table import NOTE, capacity_table, has_number
from headway.commands.simulate.capacity_text import Found
from headway.commands.simulate.simulated_testbed import simulated_experiment
from headway.commands.simulate.sweep_page import page
from headway.commands.simulate.sweep_point import (
    Job,
    SweepPoint,
    attainment,
    simulate_point,
    tallies,
)
from headway.commands.simulate.sweep_range import SweepRange, sweep_range
from headway.commands.simulate.sweep_setting import (
    POLICY,
    Sweep,
    applies_to,
    asked_at,
    calibration_at,
    strategy_at,
)
from headway.commands.simulate.sweep_verdict import verdict
from headway.costing.calibration import Calibration
from headway.errors import SettingError
from headway.figures.capacity import REQUIRED_ATTAINMENT, TriedRate, search_capacity
from headway.figures.capacity_interval import capacity_interval
from headway.report.terminal_tables import print_notes
from headway.report.workload_summary import refuse_nobody, remarks, room, too_few
from headway.runs.experiment import Experiment
from headway.runs.process_pool import run_in_processes
from headway.strategies.from_yaml import read_strategies
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.selection import MAX_REQUESTS

INTERRUPTED, TERMINATED = 130, 143  # exit statuses, as of a comparison


@dataclass(frozen=True, slots=True)
class CapacitySearch:
    """For one strategy's capacity."""

    job: Job  # with its setting `rate` or `load`
    range: SweepRange
    known: tuple[SweepPoint, ...]  # that the sweep has simulated already


def find_capacity(search: CapacitySearch) -> tuple[str, Found]:
    """In a worker."""
    job, limits = search.job, search.range
    name = job.only
    tried = {each.value: tallies(each, name) for each in search.known}
    known = [TriedRate(each.value, attainment(each, name)) for each in search.known]

    def serve(value: float) -> dict[str, float]:
        point = simulate_point(replace(job, value=value))
        tried[value] = tallies(point, name)
        return attainment(point, name)

    found = search_capacity(serve, limits.low, limits.high, known=known)
    asked = job.asked
    return name, Found(found, capacity_interval(tried, found.rate, asked.repeat, asked.seed))


@dataclass
class SweepRun:
    """Everything is checked before the first simulation; each is a process's work."""

    asked: Asked
    calibration: Calibration
    sweep: Sweep  # without values: the capacity alone is wanted
    workers: int
    folder: Path
    console: Console
    points: list[SweepPoint] = field(default_factory=list)
    capacities: dict[str, Found] = field(default_factory=dict)
    trace_ends: bool = False  # all of one is offered, at every rate
    range: SweepRange | None = None  # where capacities are looked for; None: they are not

    def check(self) -> None:
        """SettingError, with the remedy, for what no worker could do."""
        services = services_of(self.asked_first)
        for value in self.sweep.values:
            calibration_at(self.calibration, self.sweep.setting, value)
            asked = asked_at(self.asked, self.sweep.setting, value)
            is_drawn = not any(each.is_recorded for each in services)
            if is_drawn and asked.rate * asked.seconds > MAX_REQUESTS:
                raise SettingError(
                    f"{asked.rate:g} requests / s in {asked.seconds:g} s are more than "
                    f"{MAX_REQUESTS:,}: lower the rate, or the seconds"
                )
        if self.sweep.setting in POLICY:
            self._check_policies(services)
        if self.sweep.setting in ("rate", "load"):
            self.range = sweep_range(self.job(0.0), services)
            first = self.sweep.values[0] if self.sweep.values else self.range.low
            asked = asked_at(self.asked, self.sweep.setting, first)
            self._check_amount(simulated_experiment(asked, self.calibration, services))

    @property
    def asked_first(self) -> Asked:
        """The wishes of the first point."""
        if not self.sweep.values:
            return self.asked
        return asked_at(self.asked, self.sweep.setting, self.sweep.values[0])

    def _check_amount(self, setting: Experiment) -> None:
        """Of recorded requests there are as many at every rate."""
        refuse_nobody(setting)
        self.trace_ends = setting.work.trace_ends
        self.console.print(Text(f"Every rate has {room(setting.testbed)}."))
        for said in (*remarks(setting), too_few(setting)):
            if said:
                self.console.print(Text(said, style="yellow"))

    def _check_policies(self, services: Sequence[EndpointTraffic]) -> None:
        """That the setting means something to one of the strategies at least."""
        setting, name = (
            simulated_experiment(self.asked, self.calibration, services),
            self.sweep.setting,
        )
        makes = read_strategies(self.asked.strategies)
        strategies = [make(setting.strategy_inputs) for make in makes.values()]
        if not any(applies_to(each, name) for each in strategies):
            raise SettingError(f"{name} means nothing to {', '.join(makes)}")
        for strategy in strategies:
            for value in self.sweep.values:
                strategy_at(strategy, name, value)

    def job(self, value: float) -> Job:
        return Job(self.asked, self.calibration, self.sweep.setting, value)

    def run(self) -> int:
        """The exit status. What is done when it is broken off is in both files."""
        try:
            self._points()
            if self.range:
                self._capacities(self.range)
        except (KeyboardInterrupt, Terminated) as end:
            if self.points or self.capacities:
                self.keep(complete=False)
                self._page()
            left = f"{len(self.points)} of {len(self.sweep.values)} points"
            where = f" What is done is in {self.folder / 'sweep.html'}." if self.points else ""
            self.console.print(Text(f"Broken off after {left}.{where}", style="yellow"))
            return TERMINATED if isinstance(end, Terminated) else INTERRUPTED
        self.keep(complete=True)
        for line in self._page():
            self.console.print(Text(line, style="bold"))
        self._print_capacities()
        said = f"The curves are in {self.folder / 'sweep.html'}; their values, sweep.json."
        self.console.print(Text(said))
        return 0

    def _print_capacities(self) -> None:
        """A table of those with a number, and a line for each of the others."""
        numbered = {name: each for name, each in self.capacities.items() if has_number(each)}
        if numbered:
            self.console.print(capacity_table(numbered, REQUIRED_ATTAINMENT, self.sweep.unit))
            print_notes(self.console, [NOTE])
        for name, each in self.capacities.items():
            told = capacity_text.said(each, self._scope)
            if name in numbered:
                told = capacity_text.missed_below(each)
            if told:
                self.console.print(Text.assemble((name, "bold"), f": {told}"))

    @property
    def _scope(self) -> capacity_text.Scope:
        end = self.range.end if self.range else ""
        return capacity_text.Scope(self.sweep.unit, self.asked.seconds, end, self.trace_ends)

    def _points(self) -> None:
        if not self.sweep.values:
            return
        name = self.sweep.setting
        jobs = [(f"{name} {value:g}", self.job(value)) for value in self.sweep.values]
        run_in_processes(simulate_point, jobs, self.workers, "Points", self.console, self._add)

    def _add(self, point: SweepPoint) -> None:
        self.points = sorted([*self.points, point], key=lambda each: each.value)
        self.keep(complete=False)

    def _capacities(self, limits: SweepRange) -> None:
        jobs = []
        for name in read_strategies(self.asked.strategies):
            once = replace(self.job(0.0), only=name)
            jobs.append((name, CapacitySearch(once, limits, tuple(self.points))))
        run_in_processes(find_capacity, jobs, self.workers, "Capacity", self.console, self._found)

    def _found(self, found: tuple[str, Found]) -> None:
        made = self.capacities | dict([found])
        self.capacities = {n: made[n] for n in read_strategies(self.asked.strategies) if n in made}
        self.keep(complete=False)

    def keep(self, complete: bool) -> None:
        """sweep.json, whole or not at all."""
        about = sweep_report.header_of(self.asked, self.calibration, self.sweep, complete)
        plain = sweep_report.sweep_json(about, self.points, self.capacities, self._scope)
        sweep_report.write(plain, self.folder / "sweep.json")

    def _page(self) -> list[str]:
        """Write sweep.html from sweep.json alone, and return its verdict."""
        kept = sweep_report.read(self.folder / "sweep.json")
        (self.folder / "sweep.html").write_text(page(kept), encoding="utf-8")
        return verdict(kept)
