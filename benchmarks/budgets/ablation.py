"""The runs of the ablation, phase by phase: what a phase finds best, the next one starts from."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console

from benchmarks.budgets.kept import Kept
from benchmarks.budgets.mixes import MIXES, Mix, Place, Source
from benchmarks.budgets.trial import Job, score, work
from benchmarks.budgets.variants import (
    FIRST_COME,
    IMPATIENT,
    SHARES,
    SLIDING,
    TIMEOUT,
    Variant,
    around,
    chunks_of,
    first_come,
    impatient,
    ladder,
    parts,
    sliding,
)
from headway.figures.capacity import search_capacity
from headway.runs.process_pool import worker_pool
from headway.strategies.registry import by_budgets

CAPACITY_OF, CAPACITY_FROM, CAPACITY_TO = "smooth", 1.0, 16.0  # mix; loads
CAPACITY_CHUNKS = slice(1, 4)  # of first come's; what counts is each window's best
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
    places: Mapping[str, Place] = field(default_factory=dict)  # by mix; none: the data sheet's

    def mix(self, name: str) -> Mix:
        """As it is served."""
        return MIXES[name].on(self.places.get(name))

    @property
    def cells(self) -> list[Cell]:
        return [(mix, load) for mix in self.windows for load in self.loads]

    def run(self) -> None:
        """First come's chunks; queue timeouts with the best, and with its neighbours; the rest."""
        self._phase("chunks", self._chunks)
        self._phase("timeouts", self._timeouts)
        self._phase("timeouts again", self._near)
        self._phase("parts", self._parts)

    @property
    def detailed(self) -> float:
        """The load at which each part is also tried alone, and left out."""
        return min(self.loads, key=lambda load: abs(load - DETAILED))

    def _chunks(self, mix: str, load: float) -> list[Variant]:
        on = self.mix(mix)
        return [first_come(on.slots, chunk) for chunk in chunks_of(on)]

    def _timeouts(self, mix: str, load: float) -> list[Variant]:
        slots, chunk = self.mix(mix).slots, self.chunk(mix, load)
        return [first_come(slots, chunk, share) for share in SHARES]

    def _parts(self, mix: str, load: float) -> list[Variant]:
        slots, chunk = self.mix(mix).slots, self.chunk(mix, load)
        if load != self.detailed:
            return ladder(slots, chunk)
        return [*parts(slots, chunk), *impatient(slots, chunk), *sliding(slots)]

    def chunk(self, mix: str, load: float) -> int:
        """First come's best, at this load."""
        return int(self.kept.best(mix, load, f"{FIRST_COME} ").rsplit(" ", 1)[1])

    def name(self, mix: str, load: float, title: str) -> str:
        """The variant that a title stands for: where several were tried, the best; "": none."""
        if title in (FIRST_COME, TIMEOUT, SLIDING, IMPATIENT):
            return self.kept.best(mix, load, f"{title} ")
        return title if self.kept.has(mix, load, title) else ""

    def _near(self, mix: str, load: float) -> list[Variant]:
        """Queue timeouts of the best share, in the next smaller and larger chunks."""
        words = self.kept.best(mix, load, f"{TIMEOUT} ").split()
        on = self.mix(mix)
        near = around(int(words[4]), chunks_of(on))
        return [first_come(on.slots, chunk, float(words[2])) for chunk in near]

    def _phase(self, title: str, variants: Callable[[str, float], Iterable[Variant]]) -> None:
        jobs = []
        for mix, load in self.cells:
            chosen = tuple(variants(mix, load))
            for at, source in enumerate(self.windows[mix]):
                job = self.kept.lacks(Job(mix, source, load, chosen, self.places.get(mix)))
                if job.variants:
                    jobs.append((f"{mix} {load:g} window {at}", job))
        jobs.sort(key=lambda job: job[1].load)  # the longest first
        with worker_pool(self.workers) as pool:
            pool.run(work, jobs, title, self.console, self.kept.keep)

    def capacities(self) -> tuple[list[float], list[float]]:
        """Of budgets, and of first come with the window's best chunk, window by window."""
        mix = self.mix(CAPACITY_OF)
        slots, place = mix.slots, mix.place
        tried = [first_come(slots, chunk) for chunk in chunks_of(mix)[CAPACITY_CHUNKS]]
        tried.append(Variant("budgets", by_budgets(slots)))
        found = list[Held]()
        jobs = [
            (f"window {at}", Job(CAPACITY_OF, source, 0.0, tuple(tried), place))
            for at, source in enumerate(self.windows[CAPACITY_OF])
        ]
        with worker_pool(self.workers) as pool:
            pool.run(held, jobs, "capacity", self.console, found.append)
        found.sort(key=lambda each: each.begin)
        ours = [each.loads["budgets"] for each in found]
        theirs = [
            max(load for name, load in each.loads.items() if name != "budgets") for each in found
        ]
        return ours, theirs


def held(job: Job) -> Held:
    mix, loads = MIXES[job.mix].on(job.place), dict[str, float]()

    def serve(variant: Variant, load: float) -> Mapping[str, float]:
        return score(mix, mix.requests(job.source, load), variant).lanes

    for variant in job.variants:
        found = search_capacity(partial(serve, variant), CAPACITY_FROM, CAPACITY_TO, TOLERANCE)
        loads[variant.name] = found.rate
    return Held(job.source.begin, loads)
