"""One point of a sweep: every strategy on one amount of traffic, and its figures.

Done in a process of its own, so what goes in and what comes out pickles.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.core.lane import Budget
from headway.tools.calibration import Calibration
from headway.tools.compare import Asked, services_of
from headway.tools.dial import asked_at, calibration_at, strategy_at
from headway.tools.measure import (
    EngineFigures,
    LaneFigures,
    arrived_after,
    ended_after,
    engine_figures,
    lane_figures,
)
from headway.tools.recipe import chosen
from headway.tools.run import Outcome, Run
from headway.tools.setting import Setting
from headway.tools.show import DRAIN
from headway.tools.stage import noisy, staged
from headway.tools.strategy import Strategy
from headway.tools.telling import WARM_UP


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
    goodput: Mapping[str, float]  # good requests per second of counted arrivals, by lane
    engine: EngineFigures
    kv_mean: float  # share of the blocks in use, over the time of the steps
    kv_peak: float


@dataclass(frozen=True, slots=True)
class Point:
    value: float  # of the setting that is swept
    rate: float  # requests per second, as offered
    load: float  # device-seconds per second at full batches
    offered: Mapping[str, int]  # requests, by lane
    budgets: Mapping[str, Budget]
    trace_ends: bool  # before it has given what was asked for
    rules: Mapping[str, str]  # in words, by strategy
    figures: tuple[Figures, ...]  # strategies in their order, repeat by repeat


def evaluated(job: Job) -> Point:
    """The whole point. Raises a HeadwayError for what the user can mend."""
    asked = asked_at(job.asked, job.setting, job.value)
    setting = staged(asked, job.calibration, services_of(asked))
    strategies = [
        strategy_at(make(setting.site), job.setting, job.value)
        for name, make in chosen(asked.strategies).items()
        if job.only in ("", name)
    ]
    return Point(
        value=job.value,
        rate=len(setting.work.requests) * 1e9 / setting.work.window,
        load=setting.work.load,
        offered={each.name: setting.work.count(each.name) for each in setting.endpoints},
        budgets={lane.name: lane.budget for lane in setting.lanes},
        trace_ends=setting.work.trace_ends,
        rules={each.name: each.rule for each in strategies},
        figures=tuple(_figures(job, setting, strategies)),
    )


def _figures(job: Job, setting: Setting, strategies: Iterable[Strategy]) -> Iterable[Figures]:
    calibration = calibration_at(job.calibration, job.setting, job.value)
    window, seed = setting.work.window, job.asked.seed
    warm_up, limit = round(window * WARM_UP), round(window * (1 + DRAIN))
    for repeat in range(job.asked.repeat):
        for strategy in strategies:
            rig = noisy(calibration, seed, repeat)
            run = Run(rig, strategy.policies, setting.lanes, setting.work.requests, limit)
            counted = (window - warm_up) / 1e9
            yield figures_of(strategy.name, repeat, run.serve(), warm_up, counted, rig.num_blocks)


def figures_of(
    name: str, repeat: int, outcome: Outcome, warm_up: int, seconds: float, blocks: int
) -> Figures:
    """warm_up: nanoseconds; seconds: of counted arrivals."""
    asked = arrived_after(outcome, warm_up)
    lanes = {lane: lane_figures(asked, lane) for lane in outcome.offered}
    engine = engine_figures(ended_after(outcome, warm_up))
    return Figures(
        strategy=name,
        repeat=repeat,
        lanes=lanes,
        goodput={lane: each.good / seconds for lane, each in lanes.items()},
        engine=engine,
        kv_mean=1 - engine.free_mean / blocks,
        kv_peak=1 - engine.free_least / blocks,
    )


def attainment(point: Point, strategy: str) -> dict[str, float]:
    """By lane, over all repeats, of the lanes that were asked."""
    mine = [each for each in point.figures if each.strategy == strategy]
    made = dict[str, float]()
    for lane in point.offered:
        if offered := sum(each.lanes[lane].offered for each in mine):
            made[lane] = sum(each.lanes[lane].good for each in mine) / offered
    return made
