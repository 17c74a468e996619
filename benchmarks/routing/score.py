"""A route played over the same tasks in virtual time, and its score."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.routing.targets import Task
from headway.routing import DecisionRow, Route, RouteRequest
from headway.sim.loop import run

Make = Callable[[Callable[[DecisionRow], object]], Route]


@dataclass(frozen=True, slots=True)
class Score:
    """What a route has made of a run. Shares are of all requests that were offered."""

    attained: float  # answered within the deadline, by an answer that was accepted
    answered: float  # answered within the deadline
    right: float
    right_accepted: float  # share of the accepted answers
    cost: float  # device seconds of a request
    times: Sequence[float]  # seconds of each, answered or not, sorted

    @property
    def p95(self) -> float:
        """Nearest rank."""
        return self.times[-(-len(self.times) * 95 // 100) - 1]


def play(make: Make, tasks: Sequence[Task], deadline: float) -> Score:
    """Run a route over the tasks."""
    rows, right, accepted = list[DecisionRow](), list[bool](), list[bool]()

    async def call(route: Route, task: Task) -> None:
        await asyncio.sleep(task.at)
        try:
            answer = await route.ask(RouteRequest(task, timeout=deadline))
            right.append(bool(answer.value))
            if answer.accepted:
                accepted.append(bool(answer.value))
        except Exception:  # the row says why
            right.append(False)

    async def main() -> None:
        async with make(rows.append) as route:
            await asyncio.gather(*[call(route, task) for task in tasks])

    run(main())
    assert len(rows) == len(right) == len(tasks)
    n = len(tasks)
    return Score(
        sum([row.good and row.accepted for row in rows]) / n,
        sum([row.good for row in rows]) / n,
        sum(right) / n,
        sum(accepted) / len(accepted),
        sum([row.nanoseconds for row in rows]) / n / 1e9,
        sorted([row.e2e / 1e9 for row in rows]),
    )
