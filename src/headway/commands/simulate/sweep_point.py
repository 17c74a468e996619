"""One point of a sweep: every strategy at one value of the setting, and its figures.

A point is simulated in a process of its own, so its inputs and results can be pickled.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.commands.compare.compare import CompareOptions, services_of
from headway.commands.simulate.simulated_experiment import noisy_testbed, simulated_experiment
from headway.commands.simulate.sweep_setting import calibration_at, options_at, strategy_at
from headway.core.lane import Budget
from headway.costing.calibration import Calibration
from headway.figures.capacity_interval import Tallies, Tally, sum_repeats, tally_blocks
from headway.figures.engine_figures import EngineFigures, engine_figures
from headway.figures.lane_figures import LaneFigures, goodput, lane_figures
from headway.figures.warm_up import without_warm_up
from headway.report.reporter import DRAIN
from headway.runs.experiment import Experiment
from headway.runs.machine_speed import MachineSpeed
from headway.runs.outcome import Outcome
from headway.runs.run import Run
from headway.strategies.from_yaml import read_strategies
from headway.strategies.strategy import Strategy
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.workload import Workload


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one point."""

    options: CompareOptions
    calibration: Calibration
    setting: str = ""  # the swept setting; empty: none
    value: float = 0.0  # of the setting
    only: str = ""  # the name of one strategy; empty: all
    # What was read and measured for another point and is the same here; None: read, measure again.
    services: tuple[EndpointTraffic, ...] | None = None
    speed: MachineSpeed | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run. The warm-up does not count in latency and throughput."""

    strategy: str
    repeat: int  # from 0
    lanes: Mapping[str, LaneFigures]
    goodput: Mapping[str, float]  # by lane: good requests per second of the engine's time
    engine: EngineFigures
    kv_mean: float  # mean share of the KV blocks in use, weighted by the steps' time
    kv_peak: float  # the largest share in use
    tallies: Tallies  # by block of time, for the interval of a capacity


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """What was offered at one value of the setting, and the figures of every run."""

    value: float  # of the setting
    rate: float  # offered requests per second
    load: float  # offered device-seconds per second at full batches
    offered: Mapping[str, int]  # requests, by lane
    budgets: Mapping[str, Budget]
    trace_ends: bool  # the trace is too short for the requested traffic
    rules: Mapping[str, str]  # in words, by strategy
    figures: tuple[Figures, ...]  # by repeat, then by strategy in order


def simulate_point(job: Job) -> SweepPoint:
    """Simulate every run of the point.

    Raises a HeadwayError for errors the user can fix.
    """
    options = options_at(job.options, job.setting, job.value)
    services = services_of(options) if job.services is None else job.services
    experiment = simulated_experiment(options, job.calibration, services, job.speed)
    strategies = [
        strategy_at(make(experiment.strategy_inputs), job.setting, job.value)
        for name, make in read_strategies(options.strategies).items()
        if job.only in ("", name)
    ]
    return SweepPoint(
        value=job.value,
        rate=experiment.work.rate,
        load=experiment.work.load,
        offered={each.name: experiment.work.count(each.name) for each in experiment.endpoints},
        budgets={lane.name: lane.budget for lane in experiment.lanes},
        trace_ends=experiment.work.trace_ends,
        rules={each.name: each.rule for each in strategies},
        figures=tuple(_figures(job, experiment, strategies)),
    )


def _figures(job: Job, experiment: Experiment, strategies: Iterable[Strategy]) -> Iterable[Figures]:
    calibration = calibration_at(job.calibration, job.setting, job.value)
    work, seed = experiment.work, job.options.seed
    limit = round(work.window * (1 + DRAIN))
    for repeat in range(job.options.repeat):
        for strategy in strategies:
            testbed = noisy_testbed(calibration, seed, repeat)
            rules = job.options.enforce, work.keys
            run = Run(testbed, strategy.policies, experiment.lanes, work.requests, limit, *rules)
            yield figures_of(strategy.name, repeat, run.serve(), work, testbed.num_blocks)


def figures_of(name: str, repeat: int, outcome: Outcome, work: Workload, blocks: int) -> Figures:
    """The figures of a strategy's run. blocks: the number of KV blocks."""
    counted = without_warm_up(outcome, work.warm_up)
    lanes = {lane: lane_figures(counted, lane) for lane in outcome.offered}
    engine = engine_figures(counted)
    return Figures(
        strategy=name,
        repeat=repeat,
        lanes=lanes,
        goodput={lane: goodput(counted, lane) for lane in lanes},
        engine=engine,
        kv_mean=engine.kv_mean(blocks),
        kv_peak=engine.kv_peak(blocks),
        tallies=tally_blocks(counted, work.warm_up, work.window),
    )


def tallies(point: SweepPoint, strategy: str) -> dict[str, tuple[Tally, ...]]:
    """The strategy's tallies by lane and block of time, summed over the repeats."""
    return sum_repeats([each.tallies for each in point.figures if each.strategy == strategy])


def attainment(point: SweepPoint, strategy: str) -> dict[str, float]:
    """The strategy's attainment by lane, over all repeats; only lanes with requests."""
    runs = [each for each in point.figures if each.strategy == strategy]
    attained = dict[str, float]()
    for lane in point.offered:
        if offered := sum(each.lanes[lane].offered for each in runs):
            attained[lane] = sum(each.lanes[lane].good for each in runs) / offered
    return attained
