"""`headway simulate --sweep` and `--capacity`: many simulations in parallel, and their report."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headway.commands.compare.compare import CompareOptions, services_of
from headway.commands.interruption import exit_status
from headway.commands.simulate import capacity_text, sweep_report
from headway.commands.simulate.capacity_table import NOTE, capacity_table, has_number
from headway.commands.simulate.capacity_text import Found
from headway.commands.simulate.simulated_experiment import simulated_experiment
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
    calibration_at,
    options_at,
    strategy_at,
)
from headway.commands.simulate.sweep_verdict import verdict
from headway.costing.calibration import Calibration
from headway.errors import SettingError, WorkerLostError
from headway.figures.capacity import REQUIRED_ATTAINMENT, TriedRate, search_capacity
from headway.figures.capacity_interval import capacity_interval
from headway.report.report_json import write_whole
from headway.report.terminal_tables import print_notes
from headway.report.workload_summary import refuse_nobody, remarks, room, too_few
from headway.runs.experiment import Experiment
from headway.runs.machine_speed import MachineSpeed
from headway.runs.process_pool import WorkerPool, worker_pool
from headway.strategies.from_yaml import read_strategies
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.selection import MAX_REQUESTS


@dataclass(frozen=True, slots=True)
class CapacitySearch:
    """What a worker needs to search for one strategy's capacity."""

    job: Job  # its setting is `rate` or `load`
    range: SweepRange
    known: tuple[SweepPoint, ...]  # points that the sweep has already simulated


def find_capacity(search: CapacitySearch) -> tuple[str, Found]:
    """Search for a strategy's capacity; return its name and what was found. Runs in a worker."""
    job, limits = search.job, search.range
    name = job.only
    tried = {each.value: tallies(each, name) for each in search.known}
    known = [TriedRate(each.value, attainment(each, name)) for each in search.known]

    def serve(value: float) -> dict[str, float]:
        point = simulate_point(replace(job, value=value))
        tried[value] = tallies(point, name)
        return attainment(point, name)

    found = search_capacity(serve, limits.low, limits.high, known=known)
    interval = capacity_interval(tried, found.rate, job.options.repeat, job.options.seed)
    return name, Found(found, interval)


@dataclass
class SweepRun:
    """Runs a sweep in worker processes, keeps its results, and writes its page.

    Call `check` before `run`, so that an impossible point is refused before the first simulation.
    """

    options: CompareOptions
    calibration: Calibration
    sweep: Sweep  # without values, only the capacity is searched for
    workers: int
    folder: Path
    console: Console
    points: list[SweepPoint] = field(default_factory=list)
    capacities: dict[str, Found] = field(default_factory=dict)
    trace_ends: bool = False  # whether every rate offers the whole trace
    range: SweepRange | None = None  # to search for capacities; None: no search
    services: tuple[EndpointTraffic, ...] | None = None  # of every point; None: they differ
    speed: MachineSpeed | None = None  # of every point; None: it differs

    def check(self) -> None:
        """Raise SettingError, with the remedy, for a point that cannot be simulated."""
        services = services_of(self.first_options)
        for value in self.sweep.values:
            calibration_at(self.calibration, self.sweep.setting, value)
            options = options_at(self.options, self.sweep.setting, value)
            is_drawn = not any(each.is_recorded for each in services)
            if is_drawn and options.rate * options.seconds > MAX_REQUESTS:
                raise SettingError(
                    f"{options.rate:g} requests / s in {options.seconds:g} s are more than "
                    f"{MAX_REQUESTS:,}: lower the rate or the seconds"
                )
        if self.sweep.setting == "token_scale":
            self._check_scales()
        options = self.options
        if self.sweep.setting in ("rate", "load"):
            self.range = sweep_range(self.job(0.0), services)
            first = self.sweep.values[0] if self.sweep.values else self.range.low
            options = options_at(self.options, self.sweep.setting, first)
        experiment = simulated_experiment(options, self.calibration, services)
        if self.sweep.setting != "token_scale":
            self.services, self.speed = tuple(services), experiment.speed
        if self.sweep.setting in POLICY:
            self._check_policies(experiment)
        if self.range:
            self._check_amount(experiment, services)
        else:
            self._remark(experiment, services)

    @property
    def first_options(self) -> CompareOptions:
        """The options of the first point."""
        if not self.sweep.values:
            return self.options
        return options_at(self.options, self.sweep.setting, self.sweep.values[0])

    def _check_amount(self, experiment: Experiment, services: Sequence[EndpointTraffic]) -> None:
        """Refuse traffic without requests, and print what limits the figures.

        experiment: the one at the lowest rate or load.
        """
        refuse_nobody(experiment)
        self.trace_ends = experiment.work.trace_ends
        self.console.print(Text(f"Every rate has {room(experiment.testbed)}."))
        self._remark(experiment, services)

    def _remark(self, experiment: Experiment, services: Sequence[EndpointTraffic]) -> None:
        """Print what limits the figures."""
        for remark in (*remarks(experiment), self._too_few(experiment, services)):
            if remark:
                self.console.print(Text(remark, style="yellow"))

    def _too_few(self, experiment: Experiment, services: Sequence[EndpointTraffic]) -> str:
        """Which percentiles will be missing. For drawn lanes only at the lowest rate, since higher
        rates have more requests. A recorded lane has the same number at each rate, in the less time
        the higher the rate, and a lane beside it with a rate of its own has fewer then."""
        setting, values = self.sweep.setting, self.sweep.values
        recorded = any(each.is_recorded for each in services)
        shrinks = recorded and any(each.rate for each in services)
        if setting not in ("rate", "load") or (recorded and not shrinks):
            return too_few(experiment)
        if not values:
            return ""  # each capacity states its own n
        at = values[0]
        if shrinks:
            at = values[-1]
            options = options_at(self.options, setting, at)
            experiment = simulated_experiment(options, self.calibration, services, self.speed)
        few = too_few(experiment)
        return f"At {setting} {at:g}: {few[0].lower()}{few[1:]}" if few else ""

    def _check_policies(self, experiment: Experiment) -> None:
        """Raise SettingError unless the setting applies to at least one strategy."""
        setting = self.sweep.setting
        makes = read_strategies(self.options.strategies)
        strategies = [make(experiment.strategy_inputs) for make in makes.values()]
        if not any(applies_to(each, setting) for each in strategies):
            raise SettingError(f"{setting} does not apply to {', '.join(makes)}")
        for strategy in strategies:
            for value in self.sweep.values:
                strategy_at(strategy, setting, value)

    def _check_scales(self) -> None:
        """Raise SettingError if every trace has a token scale of its own, which goes first."""
        two = [options_at(self.options, self.sweep.setting, at) for at in self.sweep.values[:2]]
        if len(two) == 2 and services_of(two[0]) == services_of(two[1]):
            raise SettingError("each trace has a token_scale of its own: a sweep changes nothing")

    def job(self, value: float) -> Job:
        """The job of the point at this value of the setting."""
        job = Job(self.options, self.calibration, self.sweep.setting, value)
        return replace(job, services=self.services, speed=self.speed)

    def run(self) -> int:
        """Simulate everything and return the exit status.

        sweep.json is written after each result. A sweep that is interrupted, or loses a worker,
        leaves both files with the results so far, if any. Raises WorkerLostError.
        """
        strategies = read_strategies(self.options.strategies) if self.range else ()
        most = max(len(self.sweep.values), len(strategies))
        try:
            with worker_pool(min(self.workers, most)) as pool:
                self._simulate_points(pool)
                if self.range:
                    self._search_capacities(pool, self.range)
        except KeyboardInterrupt as end:
            self._break_off()
            return exit_status(end)
        except WorkerLostError:
            self._break_off()
            raise
        self.keep(complete=True)
        for line in self._write_page():
            self.console.print(Text(line, style="bold"))
        self._print_capacities()
        files = f"The curves are in {self.folder / 'sweep.html'}, their values in sweep.json."
        self.console.print(Text(files))
        return 0

    def _break_off(self) -> None:
        """Write the page with the results so far, and print where it is."""
        if self.points or self.capacities:
            self.keep(complete=False)
            self._write_page()
        done = f"{len(self.points)} of {len(self.sweep.values)} points"
        where = f" What is done is in {self.folder / 'sweep.html'}." if self.points else ""
        self.console.print(Text(f"Broken off after {done}.{where}", style="yellow"))

    def _print_capacities(self) -> None:
        """Print a table of the capacities with a number, and a line for each capacity without."""
        numbered = {name: each for name, each in self.capacities.items() if has_number(each)}
        if numbered:
            self.console.print(capacity_table(numbered, REQUIRED_ATTAINMENT, self.sweep.unit))
            print_notes(self.console, [NOTE])
        for name, each in self.capacities.items():
            text = capacity_text.capacity_sentence(each, self._scope)
            if name in numbered:
                text = capacity_text.missed_below(each)
            if text:
                self.console.print(Text.assemble((name, "bold"), f": {text}"))

    @property
    def _scope(self) -> capacity_text.Scope:
        end = self.range.end if self.range else ""
        return capacity_text.Scope(self.sweep.unit, self.options.seconds, end, self.trace_ends)

    def _simulate_points(self, pool: WorkerPool) -> None:
        if not self.sweep.values:
            return
        name = self.sweep.setting
        jobs = [(f"{name} {value:g}", self.job(value)) for value in self.sweep.values]
        pool.run(simulate_point, jobs, "Points", self.console, self._add_point)

    def _add_point(self, point: SweepPoint) -> None:
        self.points = sorted([*self.points, point], key=lambda each: each.value)
        self.keep(complete=False)

    def _search_capacities(self, pool: WorkerPool, limits: SweepRange) -> None:
        jobs = []
        for name in read_strategies(self.options.strategies):
            once = replace(self.job(0.0), only=name)
            jobs.append((name, CapacitySearch(once, limits, tuple(self.points))))
        pool.run(find_capacity, jobs, "Capacity", self.console, self._add_capacity)

    def _add_capacity(self, named: tuple[str, Found]) -> None:
        found = self.capacities | dict([named])
        names = read_strategies(self.options.strategies)
        self.capacities = {name: found[name] for name in names if name in found}
        self.keep(complete=False)

    def keep(self, complete: bool) -> None:
        """Write sweep.json atomically. complete: false while points are missing."""
        about = sweep_report.header_of(self.options, self.calibration, self.sweep, complete)
        plain = sweep_report.sweep_json(about, self.points, self.capacities, self._scope)
        sweep_report.write(plain, self.folder / "sweep.json")

    def _write_page(self) -> list[str]:
        """Write sweep.html from sweep.json alone, and return its verdict."""
        kept = sweep_report.read(self.folder / "sweep.json")
        write_whole(self.folder / "sweep.html", page(kept))
        return verdict(kept)
