"""The search for a sizing: a few starts, then one change at a time (find_sizing)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rich.console import Console

from headway.commands.tune.pipeline.sizing import Sizing, neighbours, starts
from headway.commands.tune.pipeline.trial import Course, Rated, held_out, kept_share, tuned
from headway.runs.process_pool import WorkerPool

BETTER = 1.02  # a neighbour must keep this many times the best rate
ROUNDS = 24  # changes, at most
R = TypeVar("R")


@dataclass(slots=True)
class Search:
    """The search and its state. The answer does not depend on the number of processes."""

    course: Course
    pool: WorkerPool
    console: Console
    best: Rated | None = None
    asked: set[Sizing] = field(default_factory=set)
    tried: int = 0  # trials, of one sizing each

    def begin(self, processes: int, low: float) -> None:
        """Measure the starts. low: the rate to begin with."""
        first = starts(self.course.plan, processes)
        found = self._run(tuned, [(self.course, each, low) for each in first], "starts")
        self.best = max(found, key=lambda each: (each.rate, -first.index(each.sizing)))

    def climb(self) -> None:
        """Change one thing at a time, as long as a neighbour keeps a higher rate."""
        for number in range(ROUNDS):
            assert self.best is not None
            if not self.best.rate:
                return
            rate = BETTER * self.best.rate
            beside = [
                each
                for each in neighbours(self.course.plan, self.best.sizing)
                if each not in self.asked
            ]
            beside = list(dict.fromkeys(beside))
            jobs = [(self.course, each, rate) for each in beside]
            shares = dict(self._run(kept_share, jobs, f"round {number + 1}"))
            kept = [each for each in beside if shares[each] > 0]
            if not kept:
                return
            self.asked.clear()  # the next round's rate differs, and they may keep that one
            chosen = max(kept, key=lambda each: (shares[each], -beside.index(each)))
            (self.best,) = self._run(tuned, [(self.course, chosen, rate)], "its capacity")

    def checked(self, others: dict[str, Sizing]) -> dict[str, Rated]:
        """The capacities of these sizings on the held-out windows, by name."""
        assert self.best is not None
        low = max(self.best.rate / 2, 1e-3)
        jobs = [(self.course, each, low) for each in others.values()]
        found = {each.sizing: each for each in self._run(held_out, jobs, "held-out windows")}
        return {name: found[each] for name, each in others.items()}

    def _run(
        self,
        work: Callable[[tuple[Course, Sizing, float]], R],
        jobs: Sequence[tuple[Course, Sizing, float]],
        title: str,
    ) -> list[R]:
        """Run the jobs in the pool. Returns their results in the order of the jobs."""
        self.tried += len(jobs)
        self.asked.update([sizing for _, sizing, _ in jobs])
        results = dict[int, R]()

        def keep(result: tuple[int, R]) -> None:
            results[result[0]] = result[1]

        numbered = [(f"{at + 1}", (at, work, job)) for at, job in enumerate(jobs)]
        self.pool.run(_numbered, numbered, title, self.console, keep)
        return [results[at] for at in range(len(jobs))]


def _numbered(
    job: tuple[int, Callable[[tuple[Course, Sizing, float]], R], tuple[Course, Sizing, float]],
) -> tuple[int, R]:
    at, work, asked = job
    return at, work(asked)
