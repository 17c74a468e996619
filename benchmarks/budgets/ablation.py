"""The runs of the ablation, phase by phase: what a phase finds best, the next one starts from."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from benchmarks.budgets.kept import Kept
from benchmarks.budgets.mixes import MIXES, Source
from benchmarks.budgets.trial import Job, score, work
from benchmarks.budgets.variants import (
    CHUNKS,
    FIRST_COME,
    SHARES,
    SLIDING,
    TIMEOUT,
    Variant,
    around,
    first_come,
    ladder,
    parts,
    sliding,
)
from headway.figures.capacity import search_capacity
from headway.runs.process_pool import run_in_processes
from headway.strategies.registry import by_budgets

CAPACITY_OF, CAPACITY_FROM, CAPACITY_TO = "smooth", 1.0, 16.0  # mix; loads
CAPACITY_CHUNKS = (512, 1_024, 2_048)  # of first come: what counts is each window's best
DETAILED = 1.5  # load
TOLERANCE = 0.05  # of the load
Cell = tuple[str, float]  # mix, load


@dataclass(frozen=True, slots=True)
class Held:
    """The highest load at which each lane of a window keeps 95 %, by variant."""

    begin: float
    loads: Mapping[str, float]


@dataclass(slots=True)
class Ablation:
    """Every variant on every window of every mix, at every load."""

    windows: Mapping[str, Sequence[Source]]  # by mix
    loads: Sequence[float]
    workers: int
    console: Console
    kept: Kept

    @property
    def cells(self) -> list[Cell]:
        return [(mix, load) for mix in self.windows for load in self.loads]

    def run(self) -> None:
        """First come's chunks; queue timeouts with the best, and with its neighbours; the rest."""
        self._phase("chunks", lambda mix, load: [first_come(_slots(mix), c) for c in CHUNKS])
        self._phase(
            "timeouts",
            lambda mix, load: [
                first_come(_slots(mix), self.chunk(mix, load), share) for share in SHARES
            ],
        )
        self._phase("timeouts again", self._near)
        self._phase("parts", self._parts)

    @property
    def detailed(self) -> float:
        """The load at which each part is also tried alone, and left out."""
        return min(self.loads, key=lambda load: abs(load - DETAILED))

    def _parts(self, mix: str, load: float) -> list[Variant]:
        slots, chunk = _slots(mix), self.chunk(mix, load)
        if load != self.detailed:
            return ladder(slots, chunk)
        return [*parts(slots, chunk), *sliding(slots)]

    def chunk(self, mix: str, load: float) -> int:
        """First come's best, at this load."""
        return int(self.kept.best(mix, load, f"{FIRST_COME} ").rsplit(" ", 1)[1])

    def name(self, mix: str, load: float, title: str) -> str:
        """The variant that a title stands for: where several were tried, the best; "": none."""
        if title in (FIRST_COME, TIMEOUT, SLIDING):
            return self.kept.best(mix, load, f"{title} ")
        return title if self.kept.has(mix, load, title) else ""

    def _near(self, mix: str, load: float) -> list[Variant]:
        """Queue timeouts of the best share, in the next smaller and larger chunks."""
        words = self.kept.best(mix, load, f"{TIMEOUT} ").split()
        return [first_come(_slots(mix), chunk, float(words[2])) for chunk in around(int(words[4]))]

    def _phase(self, title: str, variants: Callable[[str, float], Iterable[Variant]]) -> None:
        jobs = []
        for mix, load in self.cells:
            chosen = tuple(variants(mix, load))
            for at, source in enumerate(self.windows[mix]):
                job = self.kept.lacks(Job(mix, source, load, chosen))
                if job.variants:
                    jobs.append((f"{mix} {load:g} window {at}", job))
        jobs.sort(key=lambda job: job[1].load)  # the longest first
        run_in_processes(work, jobs, self.workers, title, self.console, self.kept.keep)

    def capacities(self) -> tuple[list[float], list[float]]:
        """Of budgets, and of first come with the window's best chunk, window by window."""
        slots = _slots(CAPACITY_OF)
        tried = [first_come(slots, chunk) for chunk in CAPACITY_CHUNKS]
        tried.append(Variant("budgets", by_budgets(slots)))
        found = list[Held]()
        jobs = [
            (f"window {at}", Job(CAPACITY_OF, source, 0.0, tuple(tried)))
            for at, source in enumerate(self.windows[CAPACITY_OF])
        ]
        run_in_processes(held, jobs, self.workers, "capacity", self.console, found.append)
        found.sort(key=lambda each: each.begin)
        ours = [each.loads["budgets"] for each in found]
        theirs = [
            max(load for name, load in each.loads.items() if name != "budgets") for each in found
        ]
        return ours, theirs


def held(job: Job) -> Held:
    mix, loads = MIXES[job.mix], dict[str, float]()

    def serve(variant: Variant, load: float) -> Mapping[str, float]:
        return score(mix, mix.requests(job.source, load), variant).lanes

    for variant in job.variants:
        found = search_capacity(partial(serve, variant), CAPACITY_FROM, CAPACITY_TO, TOLERANCE)
        loads[variant.name] = found.rate
    return Held(job.source.begin, loads)


def _slots(mix: str) -> int:
    return MIXES[mix].slots
