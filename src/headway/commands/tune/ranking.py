"""Which of two findings is better, and which candidates go into the last round."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from headway.commands.tune.candidate import Candidate
from headway.commands.tune.trial import Rated, Score

FINALISTS = 8
ALIKE = 1  # finalists of one strategy, at most: the search around the best varies its sizes
WORTH = 1.02  # costs whose ratio is less count as equal

Key = tuple[Any, ...]  # the smaller, the better


@dataclass(frozen=True, slots=True)
class Finding:
    """A candidate and its capacity on the tuning windows."""

    candidate: Candidate
    rated: Rated


def by_rate(finding: Finding) -> Key:
    """The highest capacity first; of equals the one whose worst lane keeps most."""
    return -finding.rated.rate, -finding.rated.score.tried.least, finding.candidate


def by_cost(candidate: Candidate, score: Score, usual: Collection[Candidate]) -> Key:
    """Those that keep every lane first; of them the one with the least device-seconds.

    Of equals the one whose worst lane keeps most; then the usual settings, so that nothing is
    changed for no gain.
    """
    tried = score.tried
    bucket = round(log(max(score.cost, 1e-12)) / log(WORTH)) if tried.kept else 0
    return not tried.kept, bucket, -tried.least, candidate not in usual, score.cost, candidate


def finalists(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The first ones, with few of one strategy."""
    chosen = list[Candidate]()
    for each in ranked:
        alike = sum(other.strategy == each.strategy for other in chosen)
        if alike < ALIKE and len(chosen) < FINALISTS:
            chosen.append(each)
    return chosen
