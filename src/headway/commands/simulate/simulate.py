"""`headway simulate`: a comparison in virtual time, in which a cost model prices every step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headway.commands.compare.compare import (
    CompareOptions,
    ComparisonRun,
    baseline,
    services_of,
)
from headway.commands.compare.like import Like, like
from headway.commands.compare.ranges import check_ranges
from headway.commands.interruption import terminable
from headway.commands.simulate.simulated_experiment import (
    REPEATS,
    noisy_testbed,
    simulated_experiment,
)
from headway.commands.simulate.sweep import SweepRun
from headway.commands.simulate.sweep_setting import TRAFFIC, Sweep, parse_sweep
from headway.costing.calibration import Calibration
from headway.costing.machine import cores
from headway.errors import SettingError
from headway.models import display_name
from headway.report.report_json import writable
from headway.runs.provenance import provenance_of, provenance_sentence
from headway.runs.testbed import Testbed
from headway.strategies.from_yaml import read_strategies
from headway.strategies.registry import DEFAULT_STRATEGIES
from headway.traffic.endpoint_traffic import EndpointTraffic


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """The options of the command line."""

    comparison: CompareOptions  # a model must be the cost file's; its price is not read
    calibration: Calibration
    sweep: str = ""  # `rate=1,2,4`, `slots=4..32:8`; empty: one simulation
    capacity: bool = False  # search for the capacity; needs no sweep
    workers: int = 0  # processes of a sweep; 0: one per core
    like: Path | None = None  # a report whose traffic is offered again
    price_per_hour: float | None = None  # None: the cost file's; 1 if it states none


def run_simulate(options: SimulateOptions, console: Console) -> int:
    """Run the simulation or the sweep; return the exit status.

    Raises a HeadwayError for errors the user can fix.
    """
    comparison, calibration = _checked(options), options.calibration
    services = services_of(comparison)
    makes = read_strategies(comparison.strategies)
    baseline(comparison, makes)
    check_ranges(services, makes)
    sweep = _sweep(options, services)
    if sweep is None:
        folder = writable(comparison.out)
        console.print(Text(provenance_sentence(provenance_of(calibration)), style="yellow"))
        experiment = simulated_experiment(comparison, calibration, services)
        with terminable():
            return Simulation(
                experiment, makes, comparison, folder, console, calibration=calibration
            ).run()
    folder = comparison.out
    workers = options.workers or cores()
    sweep_run = SweepRun(comparison, calibration, sweep, workers, folder, console)
    sweep_run.check()
    writable(folder)
    console.print(Text(provenance_sentence(provenance_of(calibration)), style="yellow"))
    with terminable():
        return sweep_run.run()


def _checked(options: SimulateOptions) -> CompareOptions:
    """The comparison's options with defaults filled in: the strategies, and the price of an hour.

    The price comes from the cost file unless one is given. Raises SettingError for options that
    cannot be obeyed.
    """
    given, calibration = options.comparison, options.calibration
    if given.model is not None:
        calibration.check_model(display_name(given.model))
    if not calibration.cost.is_known:
        raise SettingError("the cost file holds no step times: run headway calibrate again")
    for name, value in (("rate", given.rate), ("load", given.load), ("seconds", given.seconds)):
        if not 0 <= value < 1e9:
            raise SettingError(f"--{name} must be 0 or more and finite, not {value:g}")
    if not given.seconds:
        raise SettingError("--seconds must be more than 0: no requests would arrive")
    if not 1 <= given.repeat <= REPEATS:
        raise SettingError(f"--repeat must be from 1 to {REPEATS:,}, not {given.repeat}")
    if options.workers < 0:
        raise SettingError(f"--workers must be 0 or more, not {options.workers}")
    if options.workers and not (options.sweep or options.capacity):
        raise SettingError(
            "--workers are those of --sweep or --capacity: name one, or leave it out"
        )
    if options.like is not None:
        given = _with_traffic_of(like(options.like), given)
    price = options.price_per_hour
    if price is None:
        price = calibration.price_per_hour or 1.0
    return replace(
        given, strategies=given.strategies or ",".join(DEFAULT_STRATEGIES), price_per_hour=price
    )


def _with_traffic_of(report: Like, given: CompareOptions) -> CompareOptions:
    """The options with the report's traffic. --lanes or --trace must name the same endpoints.

    Raises SettingError if another option contradicts the report.
    """
    if given.rate or given.load:
        raise SettingError("--like takes the rate from a report: leave out --rate and --load")
    defaults = CompareOptions()
    for flag, value, default, reported in (
        ("--seconds", given.seconds, defaults.seconds, report.span / 1e9),
        ("--seed", given.seed, defaults.seed, report.seed),
        ("--token-scale", given.token_scale, defaults.token_scale, report.token_scale),
    ):
        if value not in (default, reported):
            raise SettingError(f"--like takes {flag} from a report, {reported:g}: leave it out")
    if given.lanes is None and not given.traces:
        report.check_names(())
    return replace(
        given,
        like=report,
        seed=report.seed,
        seconds=report.span / 1e9,
        rate=report.rate,
        load=report.load,
        token_scale=report.token_scale,
    )


def _sweep(options: SimulateOptions, services: Sequence[EndpointTraffic]) -> Sweep | None:
    """The sweep to run, or None for one simulation.

    --capacity alone is a sweep without values. It searches over the rate, or over the load if the
    traffic is the demo's, which has no rate to set.
    """
    if not options.sweep and not options.capacity:
        return None
    for flag, is_given in (
        ("--baseline", bool(options.comparison.baseline)),
        ("--price-per-hour", options.price_per_hour is not None),
    ):
        if is_given:
            raise SettingError(f"{flag} is of one simulation: leave it out of --sweep, --capacity")
    sweep = Sweep("rate" if services else "load", ())
    if options.sweep:
        sweep = parse_sweep(options.sweep)
    if options.like is not None and sweep.setting in TRAFFIC:
        raise SettingError(
            f"--like fixes the traffic, so it cannot be combined with a sweep or a capacity "
            f"search over {sweep.setting}"
        )
    if sweep.setting in ("rate", "load"):
        if options.comparison.rate or options.comparison.load:
            raise SettingError(
                "a sweep or a capacity search sets the rate: leave out --rate and --load"
            )
    elif options.capacity:
        raise SettingError(
            f"--capacity sets the rate itself, so it cannot be combined with --sweep "
            f"{sweep.setting}"
        )
    return sweep


@dataclass(kw_only=True)
class Simulation(ComparisonRun):
    """A comparison in virtual time. Every run gets a fresh testbed."""

    calibration: Calibration

    def __post_init__(self) -> None:
        super().__post_init__()
        origin = provenance_of(self.calibration)
        self.reporter = replace(self.reporter, origin=origin, command="simulate")

    def testbed(self, repeat: int) -> Testbed:
        """A new testbed; the seed and the repeat choose its residuals."""
        return noisy_testbed(self.calibration, self.options.seed, repeat)
