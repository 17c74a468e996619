"""How fast the machine was while a live run went on: measured in its pauses, by other traffic."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp

from headway.commands.calibrate.observe import LiveStep
from headway.core.cost.features import Features
from headway.core.cost.step_cost import WHOLE, StepCost
from headway.costing.calibration import Calibration
from headway.runs.shared_executor import SharedExecutor
from headway.runs.simulated_testbed import simulated_testbed
from headway.runs.testbed import Testbed
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor

FINE = 50_000_000  # nanoseconds between two looks at it
REACH = 3  # standard deviations, beyond which a pause says nothing of a moment


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a live run: when it was, and the other traffic's steps in it."""

    at: int  # nanoseconds from the run's beginning
    steps: tuple[LiveStep, ...]


def split(steps: Iterable[LiveStep], ends: Iterable[tuple[int, int]]) -> list[Pause]:
    """ends: of each pause, when it was in the live run, and when it ended on the steps' clock."""
    left, pauses = deque(steps), list[Pause]()
    for at, end in ends:
        mine = list[LiveStep]()
        while left and left[0].began < end:
            mine.append(left.popleft())
        pauses.append(Pause(at, tuple(mine)))
    return pauses


@dataclass(frozen=True, slots=True)
class Pace:
    """thousandths: of their price that steps took, every FINE nanoseconds of the live run."""

    thousandths: tuple[int, ...]

    def at(self, time: int) -> int:
        return self.thousandths[min(time // FINE, len(self.thousandths) - 1)]

    def evened(self, pauses: Iterable[Pause]) -> list[LiveStep]:
        """The pauses' steps as they would have been at the price's own pace."""
        return [
            replace(step, nanoseconds=step.nanoseconds * WHOLE // self.at(pause.at))
            for pause in pauses
            for step in pause.steps
        ]


def pace(cost: StepCost, pauses: Sequence[Pause], width: int) -> Pace:
    """Around each moment, the time that the pauses' steps took over their predicted time: the
    nearer a pause, the more it weighs (a bell; width: nanoseconds of its standard deviation)."""
    took = [float(sum(step.nanoseconds for step in pause.steps)) for pause in pauses]
    foretold = [float(sum(step.predicted(cost) for step in pause.steps)) for pause in pauses]
    found = list[int]()
    for moment in range(0, pauses[-1].at + FINE, FINE):
        weights = [_bell((pause.at - moment) / width) for pause in pauses]
        above = sum(map(float.__mul__, weights, took))
        below = sum(map(float.__mul__, weights, foretold))
        found.append(round(WHOLE * above / below) if below else WHOLE)
    return Pace(tuple(found))


def _bell(distance: float) -> float:
    return exp(-(distance**2) / 2) if abs(distance) < REACH else 0.0


class Paced(PricedExecutor):
    """Prices on a machine whose pace is known. The pace is that of the steps: the host's work after
    them, and waking, take their average time."""

    def __init__(self, cost: StepCost, clock: VirtualClock, seed: int, pace: Pace) -> None:
        super().__init__(cost, clock, seed=seed)
        self._pace = pace

    def factor(self, features: Features) -> int:
        return super().factor(features) * self._pace.at(self.clock.now()) // WHOLE


def paced_testbed(calibration: Calibration, seed: int, pace: Pace) -> Testbed:
    """As simulated_testbed, but step by step: each step asks how fast the machine is."""
    clock = VirtualClock()
    priced = Paced(calibration.cost, clock, seed, pace)
    return replace(
        simulated_testbed(calibration, seed),
        executor=SharedExecutor(priced),
        clock=clock,
        engine=lambda scheduler, executor, inbox, _: VirtualEngine(
            scheduler, executor, inbox, clock, priced
        ),
    )
