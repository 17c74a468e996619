"""The scores of all windows: pooled, paired and bounded from below.

Few windows spread too little when they are redrawn, and their own spread is known only roughly: of
six windows the lower 5 % of the draws is below the true value in 91 % of cases, not in 95. So a
bound has fewer draws below it (expanded percentiles: Hesterberg, The American Statistician, 2015).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import sqrt
from pathlib import Path
from random import Random
from statistics import NormalDist

from benchmarks.budgets.mixes import Source
from benchmarks.budgets.trial import Done, Job, Score

DATA_SHEET = "h100"
DRAWS = 10_000  # of the bootstrap over windows
# Student's t of one-sided 95 %, by the number of windows
T = {2: 6.314, 3: 2.920, 4: 2.353, 5: 2.132, 6: 2.015, 7: 1.943, 8: 1.895, 9: 1.860, 10: 1.833}
NORMAL = 1.645  # of many windows
Window = tuple[str, float, float]  # the traces' name; seconds: its beginning, its length


def window_of(source: Source) -> Window:
    name = source.folder.resolve().name if source.folder else "shipped"
    return name, source.begin, source.seconds


@dataclass(slots=True)
class Kept:
    """By mix, load and variant: a score for each window."""

    path: Path | None = None  # each score is written here as it comes; read at the start
    machine: str = DATA_SHEET  # that served them; other machines' rows in the file are left out
    asked: Mapping[str, Sequence[Source]] | None = None  # by mix; others' rows are left out
    scores: dict[tuple[str, float, str], dict[Window, Score]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path and self.path.exists():
            for line in self.path.read_text().splitlines():
                row = json.loads(line)
                if row.pop("machine", DATA_SHEET) != self.machine:
                    continue
                place = row.pop("mix"), row.pop("load"), row.pop("variant")
                window = row.pop("traces", ""), row.pop("begin"), row.pop("seconds", 0.0)
                if self._is_asked(place[0], window):
                    self.scores.setdefault(place, {})[window] = Score(**row)

    def _is_asked(self, mix: str, window: Window) -> bool:
        return self.asked is None or window in map(window_of, self.asked.get(mix, ()))

    def keep(self, done: Done) -> None:
        job, window = done.job, window_of(done.job.source)
        for name, score in done.scores.items():
            self.scores.setdefault((job.mix, job.load, name), {})[window] = score
            if self.path:
                row = {"mix": job.mix, "load": job.load, "variant": name, "machine": self.machine}
                row |= zip(("traces", "begin", "seconds"), window, strict=True)
                with self.path.open("a") as file:
                    file.write(json.dumps(row | asdict(score)) + "\n")

    def lacks(self, job: Job) -> Job:
        """The part of the job that has not been done yet."""
        lacking = [
            each
            for each in job.variants
            if window_of(job.source) not in self.scores.get((job.mix, job.load, each.name), ())
        ]
        return replace(job, variants=tuple(lacking))

    def has(self, mix: str, load: float, variant: str) -> bool:
        """Whether there is any score of the variant."""
        return (mix, load, variant) in self.scores

    def has_all(self, mix: str, load: float, variant: str, windows: Iterable[Source]) -> bool:
        """Whether the variant has a score for each of these windows, and for no other."""
        return self.scores.get((mix, load, variant), {}).keys() == set(map(window_of, windows))

    def windows(self, mix: str, load: float, variant: str) -> list[Score]:
        """The variant's scores in the order of the windows, which is the same for all variants."""
        found = self.scores[mix, load, variant]
        return [found[window] for window in sorted(found)]

    def names(self, mix: str, load: float) -> list[str]:
        """The variants that were tried there."""
        return [each[2] for each in self.scores if each[:2] == (mix, load)]

    def share(self, mix: str, load: float, variant: str) -> float:
        """The share of the requests of all windows that are inside their budget."""
        return pooled(self.windows(mix, load, variant))

    def best(self, mix: str, load: float, prefix: str) -> str:
        """Of the variants whose names begin so, the one with the most requests inside budget; "":
        there is none. Those that have not been tried on all windows are left out."""
        names = [name for name in self.names(mix, load) if name.startswith(prefix)]
        counts = {name: len(self.scores[mix, load, name]) for name in names}
        whole = [name for name in names if counts[name] == max(counts.values())]
        return max(whole, key=lambda name: self.share(mix, load, name), default="")


def pooled(scores: Iterable[Score]) -> float:
    """Share inside budget of all their requests together."""
    scores = list(scores)
    good = sum(sum(each.good.values()) for each in scores)
    return good / sum(sum(each.offered.values()) for each in scores)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two variants on the same windows."""

    ours: Sequence[Score]
    theirs: Sequence[Score]

    @property
    def swapped(self) -> "Pair":
        return Pair(self.theirs, self.ours)

    @property
    def ratio(self) -> float:
        return _ratio(self.ours, self.theirs)

    @property
    def least_ratio(self) -> float:
        """Lower 95 % bound."""
        return _low([_ratio(*each) for each in self._drawn()], len(self.ours))

    @property
    def points(self) -> float:
        """Percentage points that ours has more."""
        return 100 * (pooled(self.ours) - pooled(self.theirs))

    @property
    def least_points(self) -> float:
        """Lower 95 % bound."""
        points = [100 * (pooled(a) - pooled(b)) for a, b in self._drawn()]
        return _low(points, len(self.ours))

    def _drawn(self) -> Iterator[tuple[list[Score], list[Score]]]:
        """Windows drawn with replacement, the same for both (a paired bootstrap)."""
        draw, places = Random("windows"), range(len(self.ours))
        for _ in range(DRAWS):
            taken = draw.choices(places, k=len(places))
            yield [self.ours[at] for at in taken], [self.theirs[at] for at in taken]


def _ratio(ours: Sequence[Score], theirs: Sequence[Score]) -> float:
    return pooled(ours) / max(pooled(theirs), 1e-9)


def least_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Lower 95 % bound of the ratio of two paired means, drawn as the windows are."""
    draw, places, found = Random("windows"), range(len(ours)), list[float]()
    for _ in range(DRAWS):
        taken = draw.choices(places, k=len(places))
        found.append(sum(ours[at] for at in taken) / sum(theirs[at] for at in taken))
    return _low(found, len(ours))


def _low(values: list[float], windows: int) -> float:
    return sorted(values)[int(share_below(windows) * len(values))]


def share_below(windows: int) -> float:
    """The share of draws below a lower 95 % bound, as wide as Student's t has it for a mean."""
    if windows < 2:
        return 0.0
    return NormalDist().cdf(-T.get(windows, NORMAL) * sqrt(windows / (windows - 1)))
