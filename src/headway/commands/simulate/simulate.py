"""`headway simulate`: a comparison in virtual time, on the times of a cost model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headway.commands.compare.compare import Asked, Contest, baseline, services_of, terminable
from headway.commands.compare.like import Like, like
from headway.commands.simulate.simulated_testbed import REPEATS, noisy_testbed, simulated_experiment
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
    """The command line's wishes."""

    asked: Asked  # as of a comparison; its model, if named, must be the calibration's
    calibration: Calibration
    sweep: str = ""  # `rate=1,2,4`, `slots=4..32:8`; empty: one simulation
    capacity: bool = False  # look for it, without a sweep too
    workers: int = 0  # processes of a sweep; 0: one for each core
    like: Path | None = None  # a report whose traffic is to be offered


def run_simulate(wanted: SimulateOptions, console: Console) -> int:
    """The exit status. Raises a HeadwayError for what the user can mend."""
    asked, calibration = _checked(wanted), wanted.calibration
    services = services_of(asked)
    makes = read_strategies(asked.strategies)
    baseline(asked, makes)
    swept = _swept(wanted, services)
    if swept is None:
        folder = writable(asked.out)
        console.print(Text(provenance_sentence(provenance_of(calibration)), style="yellow"))
        setting = simulated_experiment(asked, calibration, services)
        with terminable():
            return Simulation(setting, makes, asked, folder, console, calibration=calibration).run()
    folder = asked.out
    sweeping = SweepRun(asked, calibration, swept, wanted.workers or cores(), folder, console)
    sweeping.check()
    writable(folder)
    console.print(Text(provenance_sentence(provenance_of(calibration)), style="yellow"))
    with terminable():
        return sweeping.run()


def _checked(wanted: SimulateOptions) -> Asked:
    """What was asked for, with the cost file's price where none is stated."""
    asked, calibration = wanted.asked, wanted.calibration
    if asked.model is not None:
        calibration.check_model(display_name(asked.model))
    if not calibration.cost.is_known:
        raise SettingError("the cost file knows no times at all: run headway calibrate again")
    for name, value in (("rate", asked.rate), ("load", asked.load), ("seconds", asked.seconds)):
        if not 0 <= value < 1e9:
            raise SettingError(f"--{name} must be 0 or more and finite, not {value:g}")
    if not asked.seconds:
        raise SettingError("--seconds must be more than 0: nobody would ask")
    if not 1 <= asked.repeat <= REPEATS:
        raise SettingError(f"--repeat must be from 1 to {REPEATS:,}, not {asked.repeat}")
    if wanted.workers < 0:
        raise SettingError(f"--workers must be 0 or more, not {wanted.workers}")
    if wanted.like is not None:
        asked = _alike(asked, like(wanted.like))
    price = asked.price_per_hour or calibration.price_per_hour or 1.0
    return replace(
        asked, strategies=asked.strategies or ",".join(DEFAULT_STRATEGIES), price_per_hour=price
    )


def _alike(asked: Asked, report: Like) -> Asked:
    """With the report's traffic. The endpoints have to be said again."""
    if asked.rate or asked.load:
        raise SettingError("--like takes the rate from a report: leave out --rate and --load")
    usually = Asked()
    for flag, said, usual, theirs in (
        ("--seconds", asked.seconds, usually.seconds, report.span / 1e9),
        ("--seed", asked.seed, usually.seed, report.seed),
        ("--token-scale", asked.token_scale, usually.token_scale, report.token_scale),
    ):
        if said not in (usual, theirs):
            raise SettingError(f"--like takes {flag} from a report, {theirs:g}: leave it out")
    if asked.lanes is None and not asked.traces:
        report.check_names(())
    return replace(
        asked,
        like=report,
        seed=report.seed,
        seconds=report.span / 1e9,
        rate=report.rate,
        load=report.load,
        token_scale=report.token_scale,
    )


def _swept(wanted: SimulateOptions, services: Sequence[EndpointTraffic]) -> Sweep | None:
    """None: one simulation. A capacity alone is looked for over the rate, where there is one."""
    if not wanted.sweep and not wanted.capacity:
        return None
    sweep = Sweep("rate" if services else "load", ())
    if wanted.sweep:
        sweep = parse_sweep(wanted.sweep)
    if wanted.like is not None and sweep.setting in TRAFFIC:
        raise SettingError(
            f"--like fixes the traffic, so it does not go with a sweep or a capacity over "
            f"{sweep.setting}"
        )
    if sweep.setting in ("rate", "load"):
        if wanted.asked.rate or wanted.asked.load:
            raise SettingError("a sweep or a capacity turns the rate: leave out --rate and --load")
    elif wanted.capacity:
        raise SettingError(
            f"--capacity turns the rate itself, so it does not go with --sweep {sweep.setting}"
        )
    return sweep


@dataclass(kw_only=True)
class Simulation(Contest):
    """A contest whose every run has a fresh machine of its own, in no time."""

    calibration: Calibration

    def __post_init__(self) -> None:
        super().__post_init__()
        origin = provenance_of(self.calibration)
        self.reporter = replace(self.reporter, origin=origin, command="simulate")

    def testbed(self, repeat: int) -> Testbed:
        return noisy_testbed(self.calibration, self.asked.seed, repeat)
