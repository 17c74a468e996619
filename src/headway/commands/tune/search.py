"""The search for the best candidate: coarse to fine, with early stopping.

The coarse grid climbs a ladder of rates. A candidate that misses a lane at one rung is out
(successive halving, Jamieson and Talwalkar, AISTATS 2016, with rates for resources). The first rung
runs one tuning window, the later rungs run all of them. The finalists' capacities are measured.

Then the search varies one setting of the best at a time: first the sizes, then the windows and
slots of single lanes. It measures a neighbour's capacity only if the neighbour keeps every lane a
little above the best capacity so far. With a given rate there is one rung, and the candidate with
the fewest device-seconds per request wins.

Each round is judged as a whole, and the candidates' order breaks every tie. So the result does not
depend on the number of processes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from headway.commands.simulate.sweep_range import SweepRange
from headway.commands.tune.candidate import Candidate, lane_neighbours, neighbours
from headway.commands.tune.ranking import FINALISTS, Finding, Key, by_cost, by_rate, finalists
from headway.commands.tune.site import Site
from headway.commands.tune.trial import (
    CapacityTrial,
    Course,
    Rated,
    Score,
    Trial,
    run_capacity_trial,
    run_trial,
)
from headway.figures.capacity import TOLERANCE
from headway.runs.process_pool import WorkerPool

RUNG, LONG_RUNG = 1.15, 1.4  # rate over that of the rung below; long while more than half stay
COARSE = 0.1  # tolerance of a capacity that only says where the ladder begins
STEPS = (2.0, 2**0.5)  # factors between sizes; the finer one if the coarser finds nothing better
ROUNDS = 12  # at most, of the search around the best


@dataclass
class Search:
    """Finds the best candidate. `best` holds the best so far if the search is interrupted."""

    site: Site
    course: Course
    tuning: tuple[int, ...]  # indices of the windows to choose by
    range: SweepRange
    most_slots: int
    pool: WorkerPool
    console: Console
    best: Finding | None = None
    simulated: int = 0  # simulated runs of one window each
    seen: set[Candidate] = field(default_factory=set)

    def highest_rate(self, first: Sequence[Candidate], known: Sequence[Candidate]) -> None:
        """Find the candidate with the highest capacity.

        known: their rough capacity sets the first rung, and they always reach the last round.
        """
        window = self.tuning[:1]
        rough = self.capacities(known, window, self.range.low, tolerance=COARSE)
        begin = max([each.rated.rate for each in rough], default=0.0) or self.range.low
        last, rung = self._ladder(sorted({*first, *known}), begin)
        last = list(dict.fromkeys([*last, *known]))
        self._keep_best(self.capacities(last, self.tuning, rung / 2), by_rate)
        self._descend(self._better, by_rate)

    def _ladder(self, left: list[Candidate], rate: float) -> tuple[list[Candidate], float]:
        """The finalists, and the highest rung that any candidate kept (else the first one)."""
        ranked, kept, windows = list[Candidate](), rate, self.tuning[:1]
        while True:
            scores = self.scores(left, rate, windows)
            order = sorted(left, key=lambda each: (-scores[each].tried.least, each))
            keeping = [each for each in order if scores[each].tried.kept]
            ranked = [*keeping, *(each for each in order if each not in keeping), *ranked]
            ranked = list(dict.fromkeys(ranked))
            kept = rate if keeping else kept
            if len(keeping) <= FINALISTS // 2 or rate >= self.range.high:
                return finalists(ranked), kept
            windows = self.tuning
            times = LONG_RUNG if 2 * len(keeping) > len(left) else RUNG
            left, rate = keeping, min(rate * times, self.range.high)

    def _better(self, around: Sequence[Candidate]) -> list[Finding]:
        """The capacities of neighbours that keep every lane a little above the best so far."""
        assert self.best is not None
        rate = self.best.rated.rate * (1 + TOLERANCE)
        if not rate or rate > self.range.high:
            return []
        scores = self.scores(around, rate, self.tuning)
        keeping = [each for each in around if scores[each].tried.kept]
        return self.capacities(keeping, self.tuning, rate, scores)

    def least_cost(
        self, first: Sequence[Candidate], usual: Sequence[Candidate], rate: float
    ) -> None:
        """Find the candidate that keeps every lane at the rate with the fewest device-seconds.

        usual: candidates that win a tie.
        """
        both = sorted({*first, *usual})
        scores = self.scores(both, rate, self.tuning[:1])
        ranked = sorted(both, key=lambda each: by_cost(each, scores[each], usual))
        last = list(dict.fromkeys([*finalists(ranked), *usual]))

        def rank(finding: Finding) -> Key:
            return by_cost(finding.candidate, finding.rated.score, usual)

        self._keep_best(self._at_rate(last, rate), rank)
        self._descend(lambda around: self._at_rate(around, rate), rank)

    def _at_rate(self, candidates: Sequence[Candidate], rate: float) -> list[Finding]:
        scores = self.scores(candidates, rate, self.tuning)
        return [Finding(each, Rated.of(scores[each])) for each in candidates]

    # -- around the best

    def _descend(
        self,
        measured: Callable[[Sequence[Candidate]], list[Finding]],
        rank: Callable[[Finding], Key],
    ) -> None:
        """Move from the best to a better neighbour until there is none, or after ROUNDS moves."""
        for _ in range(ROUNDS):
            before = self.best
            if before is None or not self._improved(before.candidate, measured, rank):
                return

    def _improved(
        self,
        centre: Candidate,
        measured: Callable[[Sequence[Candidate]], list[Finding]],
        rank: Callable[[Finding], Key],
    ) -> bool:
        """Measure the new neighbours kind by kind until one is better. Returns whether one is."""
        before = self.best
        for around in self._around(centre):
            new = [each for each in around if each not in self.seen and self.site.allows(each)]
            if new:
                self._keep_best(measured(new), rank)
            if self.best != before:
                return True
        return False

    def _around(self, centre: Candidate) -> Iterator[list[Candidate]]:
        """The neighbours by kind: sizes by coarse and by fine steps, then single lanes' parts."""
        for times in STEPS:
            yield neighbours(centre, self.most_slots, self.site.context, times)
        yield lane_neighbours(centre, self.site.open_lanes(centre))

    def _keep_best(self, found: Iterable[Finding], rank: Callable[[Finding], Key]) -> None:
        both = [*found, *([self.best] if self.best else [])]
        self.best = min(both, key=rank, default=None)

    # -- rounds of trials

    def scores(
        self, candidates: Sequence[Candidate], rate: float, windows: tuple[int, ...]
    ) -> dict[Candidate, Score]:
        """The scores of all candidates at one rate."""
        found = dict[Candidate, Score]()
        jobs = [
            (each.text, (each, Trial(self.course, self.site.setup(each), rate, windows)))
            for each in candidates
        ]
        self.pool.run(
            _scored, jobs, f"{rate:.3g} requests/s", self.console, lambda got: found.update([got])
        )
        if windows == self.tuning:
            self.seen.update(candidates)
        self.simulated += len(jobs) * len(windows)
        return found

    def capacities(
        self,
        candidates: Sequence[Candidate],
        windows: tuple[int, ...],
        begin: float,
        known: dict[Candidate, Score] | None = None,
        tolerance: float = TOLERANCE,
    ) -> list[Finding]:
        """The capacities of all candidates, in their order. known: scores on these windows."""
        found, ends = dict[Candidate, Rated](), (self.range.low, self.range.high)
        jobs = []
        for each in candidates:
            had = (known[each],) if known else ()
            setup = self.site.setup(each)
            trial = CapacityTrial(self.course, setup, windows, begin, ends, tolerance, had)
            jobs.append((each.text, (each, trial)))

        def keep(got: tuple[Candidate, Rated]) -> None:
            found.update([got])
            self.simulated += (len(got[1].scores) - bool(known)) * len(windows)

        self.pool.run(_rated, jobs, "Capacity", self.console, keep)
        if windows == self.tuning:
            self.seen.update(candidates)
        return [Finding(each, found[each]) for each in candidates]


def _scored(job: tuple[Candidate, Trial]) -> tuple[Candidate, Score]:
    return job[0], run_trial(job[1])


def _rated(job: tuple[Candidate, CapacityTrial]) -> tuple[Candidate, Rated]:
    return job[0], run_capacity_trial(job[1])
