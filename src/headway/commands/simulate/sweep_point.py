"""One point of a sweep: every strategy on one amount of traffic, and its figures.

Done in a process of its own, so what goes in and what comes out pickles.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.commands.compare.compare import Asked, services_of
from headway.commands.simulate.simulated_testbed import noisy_testbed, simulated_experiment
from headway.commands.simulate.sweep_setting import asked_at, calibration_at, strategy_at
from headway.core.lane import Budget
from headway.costing.calibration import Calibration
from headway.figures.capacity_interval import Tallies, Tally, sum_repeats, tally_blocks
from headway.figures.lane_figures import (
    EngineFigures,
    LaneFigures,
    engine_figures,
    lane_figures,
    without_warm_up,
)
from headway.report.reporter import DRAIN
from headway.runs.experiment import Experiment
from headway.runs.run import Outcome, Run
from headway.strategies.from_yaml import read_strategies
from headway.strategies.strategy import Strategy
from headway.traffic.workload import Workload


@dataclass(frozen=True, slots=True)
class Job:
    asked: Asked
    calibration: Calibration
    setting: str = ""  # that is turned; empty: none
    value: float = 0.0  # to which
    only: str = ""  # strategy; empty: all that are asked for


@dataclass(frozen=True, slots=True)
class Figures:
    """One run. Latency and throughput are of what came after the warm-up."""

    strategy: str
    repeat: int  # from 0
    lanes: Mapping[str, LaneFigures]
    goodput: Mapping[str, float]  # good requests per second of the engine's seconds, by lane
    engine: EngineFigures
    kv_mean: float  # share of the blocks in use, over the time of the steps
    kv_peak: float
    tallies: Tallies  # by block of time, for a capacity's interval


@dataclass(frozen=True, slots=True)
class SweepPoint:
    value: float  # of the setting that is swept
    rate: float  # requests per second, as offered
    load: float  # device-seconds per second at full batches
    offered: Mapping[str, int]  # requests, by lane
    budgets: Mapping[str, Budget]
    trace_ends: bool  # before it has given what was asked for
    rules: Mapping[str, str]  # in words, by strategy
    figures: tuple[Figures, ...]  # strategies in their order, repeat by repeat


def simulate_point(job: Job) -> SweepPoint:
    """The whole point. Raises a HeadwayError for what the user can mend."""
    asked = asked_at(job.asked, job.setting, job.value)
    setting = simulated_experiment(asked, job.calibration, services_of(asked))
    strategies = [
        strategy_at(make(setting.strategy_inputs), job.setting, job.value)
        for name, make in read_strategies(asked.strategies).items()
        if job.only in ("", name)
    ]
    return SweepPoint(
        value=job.value,
        rate=setting.work.rate,
        load=setting.work.load,
        offered={each.name: setting.work.count(each.name) for each in setting.endpoints},
        budgets={lane.name: lane.budget for lane in setting.lanes},
        trace_ends=setting.work.trace_ends,
        rules={each.name: each.rule for each in strategies},
        figures=tuple(_figures(job, setting, strategies)),
    )


def _figures(job: Job, setting: Experiment, strategies: Iterable[Strategy]) -> Iterable[Figures]:
    calibration = calibration_at(job.calibration, job.setting, job.value)
    work, seed = setting.work, job.asked.seed
    limit = round(work.window * (1 + DRAIN))
    for repeat in range(job.asked.repeat):
        for strategy in strategies:
            testbed = noisy_testbed(calibration, seed, repeat)
            run = Run(testbed, strategy.policies, setting.lanes, work.requests, limit)
            yield figures_of(strategy.name, repeat, run.serve(), work, testbed.num_blocks)


def figures_of(name: str, repeat: int, outcome: Outcome, work: Workload, blocks: int) -> Figures:
    mine = without_warm_up(outcome, work.warm_up)
    lanes = {lane: lane_figures(mine, lane) for lane in outcome.offered}
    engine = engine_figures(mine)
    return Figures(
        strategy=name,
        repeat=repeat,
        lanes=lanes,
        goodput={lane: each.goodput(engine) for lane, each in lanes.items()},
        engine=engine,
        kv_mean=1 - engine.free_mean / blocks,
        kv_peak=1 - engine.free_least / blocks,
        tallies=tally_blocks(mine, work.warm_up, work.window),
    )


def tallies(point: SweepPoint, strategy: str) -> dict[str, tuple[Tally, ...]]:
    """By lane and block of time, over all repeats."""
    return sum_repeats([each.tallies for each in point.figures if each.strategy == strategy])


def attainment(point: SweepPoint, strategy: str) -> dict[str, float]:
    """By lane, over all repeats, of the lanes that were asked."""
    mine = [each for each in point.figures if each.strategy == strategy]
    made = dict[str, float]()
    for lane in point.offered:
        if offered := sum(each.lanes[lane].offered for each in mine):
            made[lane] = sum(each.lanes[lane].good for each in mine) / offered
    return made
