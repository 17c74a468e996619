"""Which of two findings is better, and which candidates go into the last round."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from headway.commands.tune.candidate import Candidate
from headway.commands.tune.trial import Rated, Score

FINALISTS = 8
ALIKE = 1  # finalists per strategy, at most: the search around the best varies the sizes
WORTH = 1.02  # costs are compared in steps of this ratio

Key = tuple[Any, ...]  # smaller is better


@dataclass(frozen=True, slots=True)
class Finding:
    """A candidate and its capacity on the tuning windows."""

    candidate: Candidate
    rated: Rated


def by_rate(finding: Finding) -> Key:
    """Sort key: the highest capacity, then the best worst lane, then the candidates' order."""
    return -finding.rated.rate, -finding.rated.score.tried.least, finding.candidate


def by_cost(candidate: Candidate, score: Score, usual: Collection[Candidate]) -> Key:
    """Sort key: candidates that keep every lane first, by device-seconds in steps of WORTH.

    Ties go to the best worst lane, then to the usual settings (no change without a gain), then to
    the exact cost, then to the candidates' order.
    """
    tried = score.tried
    bucket = round(log(max(score.cost, 1e-12)) / log(WORTH)) if tried.kept else 0
    return not tried.kept, bucket, -tried.least, candidate not in usual, score.cost, candidate


def finalists(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The first FINALISTS of the ranked candidates, at most ALIKE of each strategy."""
    chosen = list[Candidate]()
    for each in ranked:
        alike = sum(other.strategy == each.strategy for other in chosen)
        if alike < ALIKE and len(chosen) < FINALISTS:
            chosen.append(each)
    return chosen
