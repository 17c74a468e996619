"""What do cascades, speculation, circuits and quorums save, and what do they cost?

In virtual time, on simulated targets whose times are a line over the answer's tokens. Both ways of
each pair serve the same requests with the same draws. Times and quality are made up (below): the
figures say what the routing does with such targets, not what a model is worth.

cascade: always the large target, and a cascade whose threshold `calibrate_cascade` has chosen, at
loads relative to what the large target alone can serve. Answers that were judged not good enough,
and given because nothing better could come in time, count as not attained. The calibration aims at
the quality of the accepted answers: over all seeds together it must not be below the aim by more
than chance (5 %) explains.
speculate: the same cascade under a tight deadline, with and without speculation. Answers of both
targets are equally long; with stalls, one small answer in ten takes ten times as long.
fallback: the first of two targets hangs for a third of the time; with and without a circuit.
ensemble: five members, a quorum of three, and waiting for all.

    python -m benchmarks.routing [--part cascade|speculate|fallback|ensemble] [--check]
"""

import math
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from benchmarks.report import Figure, finish
from benchmarks.routing.score import Make, Score, play
from benchmarks.routing.targets import (
    LARGE,
    LARGE_MEAN,
    LARGE_RATE,
    REQUESTS,
    SLOTS,
    SMALL,
    Task,
    large,
    mean_tokens,
    small,
    tasks_of,
    tokens,
)
from headway.routing import (
    Cascade,
    CircuitSettings,
    Confident,
    Ensemble,
    Fallback,
    Labelled,
    Majority,
    RouteAnswer,
    RouteRequest,
    SimulatedTarget,
    calibrate_cascade,
)
from headway.routing.targets.simulated import line

SEED, SEEDS = 1, 5
QUALITY = 0.9  # that the cascade must reach
LOADS = 0.5, 0.9, 1.5
DEADLINE = 4.0  # seconds; of `speculate`, shares of the mean large answer
TIGHT = 1.6, 2.0
CHANCE = 1.645  # standard errors


def threshold() -> float:
    """Chosen on requests that are in no run."""
    given = [
        Labelled(task.score, task.small_is_right, task.large_is_right)
        for task in tasks_of(SEED + 1_000, 1.0, 2_000)
    ]
    found = calibrate_cascade(given, QUALITY)
    print(f"threshold {found.threshold:.3f}: {found.reason}", file=sys.stderr)
    return found.threshold


def pairs(
    name: str, first: Make, second: Make, rate: float, deadline: float
) -> tuple[list[Score], list[Score]]:
    """Both ways on the same tasks, once for each seed."""
    found: tuple[list[Score], list[Score]] = [], []
    for seed in range(SEED, SEED + SEEDS):
        tasks = tasks_of(seed, rate)
        for make, scores in zip((first, second), found, strict=True):
            scores.append(play(make, tasks, deadline))
    print(f"{name} done", file=sys.stderr)
    return found


def cascades() -> list[Figure]:
    least, figures = threshold(), list[Figure]()
    for load in LOADS:
        alone, both = pairs(
            f"cascade at {load}",
            lambda rows: Fallback([large()], circuit=None, rows=rows),
            lambda rows: Cascade([small(), large()], Confident(least), rows=rows),
            load * LARGE_RATE,
            DEADLINE,
        )
        name = f"cascade_{load:g}"
        ratios = [b.cost / a.cost for a, b in zip(alone, both, strict=True)]
        gains = [b.attained - a.attained for a, b in zip(alone, both, strict=True)]
        below = load < 1
        figures += [
            Figure(f"{name}: cost over the large one's", ratios, most=0.9 if below else None),
            Figure(f"{name}: attained, minus the large one's", gains, least=-0.01),
            Figure(f"{name}: attained by the large one", [each.attained for each in alone]),
            Figure(f"{name}: attained", [each.attained for each in both]),
            Figure(f"{name}: answered in time", [each.answered for each in both]),
            Figure(f"{name}: right", [each.right for each in both]),
            Figure(f"{name}: right of accepted", [pooled(both)], least=least_share(REQUESTS)),
            Figure(f"{name}: right by the large one", [each.right for each in alone]),
        ]
    return figures


def pooled(scores: Sequence[Score]) -> float:
    """Share over the accepted answers of all seeds together; about as many in each."""
    return sum([each.right_accepted for each in scores]) / len(scores)


def least_share(count: int) -> float:
    """Of right answers that chance explains, of so many for each seed."""
    return QUALITY - CHANCE * math.sqrt(QUALITY * (1 - QUALITY) / (SEEDS * count))


def speculations() -> list[Figure]:
    least, figures = threshold(), list[Figure]()
    for stalls, load in ((False, 0.5), (True, 0.5), (True, 1.5)):
        for tight in TIGHT:

            def route(speculate: bool, stalls: bool = stalls) -> Make:
                return lambda rows: Cascade(
                    [small(stalls), large()], Confident(least), speculate=speculate, rows=rows
                )

            name = f"speculate{'_stalls' * stalls}_{load:g}_{tight:g}"
            plain, early = pairs(
                name, route(False), route(True), load * LARGE_RATE, tight * LARGE_MEAN
            )
            gains = [b.attained - a.attained for a, b in zip(plain, early, strict=True)]
            costs = [b.cost / a.cost for a, b in zip(plain, early, strict=True)]
            figures += [
                Figure(f"{name}: attained, minus plain", gains),
                Figure(f"{name}: attained by plain", [each.attained for each in plain]),
                Figure(f"{name}: cost over plain", costs),
            ]
    return figures


def fallbacks() -> list[Figure]:
    """The first may take 4 s of a deadline of 6: there is time for the second, which can serve all
    at this load."""
    rate = 0.5 * LARGE_RATE
    whole = REQUESTS / rate
    outage = (round(whole / 3 * 1e9), round(2 * whole / 3 * 1e9))

    def member(name: str, hangs: Sequence[tuple[int, int]]) -> SimulatedTarget:
        return SimulatedTarget(
            name,
            line(*LARGE, tokens),
            lambda request: RouteAnswer(True),
            expected=line(*LARGE, mean_tokens),
            slots=SLOTS,
            max_waiting=10_000,
            hangs=hangs,
        )

    def route(circuit: CircuitSettings | None) -> Make:
        return lambda rows: Fallback(
            [member("first", [outage]), member("second", [])],
            timeout=(4.0, 0.0),
            circuit=circuit,
            rows=rows,
        )

    without, guarded = pairs("fallback", route(None), route(CircuitSettings(5, 5.0)), rate, 6.0)
    gains = [b.attained - a.attained for a, b in zip(without, guarded, strict=True)]
    return [
        Figure("fallback: attained, minus without a circuit", gains, least=0.0),
        Figure("fallback: attained without", [each.attained for each in without]),
        Figure("fallback: attained", [each.attained for each in guarded]),
        Figure("fallback: p95 without", [each.p95 for each in without], unit="s"),
        Figure("fallback: p95", [each.p95 for each in guarded], unit="s"),
        Figure(
            "fallback: cost over without",
            [b.cost / a.cost for a, b in zip(without, guarded, strict=True)],
        ),
    ]


def ensembles() -> list[Figure]:
    def member(number: int) -> SimulatedTarget:
        def takes(request: RouteRequest) -> int:
            task: Task = request.input
            return round(task.stretches[number] * line(*SMALL, tokens)(request))

        def answer(request: RouteRequest) -> RouteAnswer:
            task: Task = request.input
            return RouteAnswer(task.rights[number])

        return SimulatedTarget(f"member{number}", takes, answer, slots=SLOTS, max_waiting=10_000)

    def route(quorum: int) -> Make:
        return lambda rows: Ensemble(
            [member(number) for number in range(5)], Patient(), quorum=quorum, rows=rows
        )

    every, early = pairs("ensemble", route(5), route(3), 2.0, 60.0)
    settled: Make = lambda rows: Ensemble(  # noqa: E731
        [member(number) for number in range(5)], Majority(), rows=rows
    )
    _, sure = pairs("ensemble, until the vote is settled", route(5), settled, 2.0, 60.0)
    figures = []
    for name, scores in (("quorum of 3", early), ("until settled", sure)):
        shorter = [b.p95 / a.p95 for a, b in zip(every, scores, strict=True)]
        cheaper = [b.cost / a.cost for a, b in zip(every, scores, strict=True)]
        worse = [b.right - a.right for a, b in zip(every, scores, strict=True)]
        figures += [
            Figure(f"ensemble, {name}: p95 over waiting for all", shorter, most=0.9),
            Figure(f"ensemble, {name}: cost over waiting for all", cheaper, most=1.0),
            Figure(f"ensemble, {name}: right, minus waiting for all", worse),
        ]
    figures.append(Figure("ensemble: right, waiting for all", [each.right for each in every]))
    return figures


class Patient(Majority):
    """A majority that awaits all of its quorum."""

    def is_settled(self, answers: Sequence[RouteAnswer], missing: int) -> bool:
        return missing == 0


PARTS = {
    "cascade": cascades,
    "speculate": speculations,
    "fallback": fallbacks,
    "ensemble": ensembles,
}


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--part", choices=[*PARTS])
    parser.add_argument("--check", action="store_true")
    asked, figures = parser.parse_args(), list[Figure]()
    for name, part in PARTS.items():
        if asked.part in (None, name):
            figures += part()
    return finish("routing", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
