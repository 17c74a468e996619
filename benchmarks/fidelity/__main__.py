"""How far is the simulator from the machine, on the same traffic?

Serves a window of recorded traffic live, calibrates, serves it live again, simulates the same, and
prints signed errors (below 0: simulated too short) of TTFT and TPOT, by endpoint and of all, at
50, 80 and 95 % of the live capacity, and of the capacity itself. Beside each stands the spread of
the two live runs. Judged: p50 and p90 up to 80 % load, TPOT within the larger of 5 % and the
spread, TTFT of 10 % and the spread; the capacity within 5 %. The rest is stated.

A machine's speed moves by the second (`spread_calibrations` says by how much the calibrations
disagree about one and the same step), and what it was an hour ago is no fault of a simulator's. So
a calibration lies between each two live runs, and the three are done in several rounds. The first
of the two is then all rounds' first runs together, the second their second ones, and the simulated
one is what each round's calibration says.

    python -m benchmarks.fidelity --part tiny       the embedded model, about half an hour
    python -m benchmarks.fidelity --part half-b     random weights of 0.5B, about an hour
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks.fidelity.compared import Error, attainments, errors
from benchmarks.fidelity.stage import SCALES, Stage, staged
from benchmarks.report import Figure, finish
from headway.core.cost import NONE, row_features
from headway.tools.calibration import Calibration
from headway.tools.capacity import Capacity, capacity
from headway.tools.run import Outcome
from headway.tools.strategy import SLOTS

SEEDS = range(2)  # of each calibration
TOLERANCE = 0.04  # of a capacity: half the requests of a run decide it, not half a million
CONSOLE = Console(width=110)


def found(stage: Stage, serve: Callable[[float], Outcome], low: float) -> Capacity:
    return capacity(lambda rate: _said(stage, rate, serve(rate)), low, 64 * low, TOLERANCE)


def _said(stage: Stage, rate: float, outcome: Outcome) -> dict[str, float]:
    kept = dict(stage.attainment(outcome))
    CONSOLE.print(f"  {rate:8.2f} requests/s: in budget {attainments(kept)}", highlight=False)
    return kept


@dataclass(slots=True)
class Bench:
    """Rounds of two live runs and a calibration between them."""

    stage: Stage
    calibrations: list[Calibration]  # in the order in which they were made

    def calibrated(self) -> Calibration:
        self.calibrations.append(self.stage.calibrated(len(self.calibrations)))
        return self.calibrations[-1]

    def guess(self) -> float:
        """Requests per second that a simulation of what was learned first can bear."""
        first, begin = self.calibrated(), 1e9 * SLOTS / _longest(self.stage) / 8
        return found(self.stage, partial(self.stage.simulated, first, seed=0), begin).rate

    def capacities(self, guess: float) -> tuple[list[list[float]], list[float]]:
        """Requests per second: live, of each of the two its rounds; simulated."""
        stage, live, simulated = self.stage, [list[float](), list[float]()], list[float]()
        for turn in range(stage.scale.rounds):
            for place in live:
                CONSOLE.print(f"Live, round {turn + 1}:", highlight=False)
                place.append(found(stage, stage.live, guess / 2).rate)
                if place is live[0]:
                    between = self.calibrated()
            for seed in SEEDS:
                CONSOLE.print("Simulated:")
                model = partial(stage.simulated, between, seed=seed)
                simulated.append(found(stage, model, guess / 2).rate)
        return live, simulated

    def compared(self, rate: float, load: int) -> list[Error]:
        stage, offered = self.stage, rate * load / 100
        ones, others, simulated = list[Outcome](), list[Outcome](), list[Outcome]()
        for turn in range(stage.scale.rounds):
            CONSOLE.print(f"At {load} %, round {turn + 1}", highlight=False)
            ones.append(stage.counted(stage.live(offered)))
            between = self.calibrated()
            others.append(stage.counted(stage.live(offered)))
            runs = [stage.simulated(between, offered, seed) for seed in SEEDS]
            simulated += [stage.counted(run) for run in runs]
        return errors([lane.name for lane in stage.lanes], load, (ones, others), simulated)

    def disagreement(self) -> float:
        """Of a step of full slots: the most less the least that they say, over the mean."""
        reads = self.stage.rig.context // 8
        step = sum((row_features(reads, 1, logits=1) for _ in range(SLOTS)), start=NONE)
        said = [each.cost.predict(step) for each in self.calibrations]
        return (max(said) - min(said)) / mean(said)


def _longest(stage: Stage) -> float:
    """Nanoseconds for which a request has a slot, at least: its budget of time per token."""
    tokens = mean(request.max_tokens for request in stage.requests)
    return tokens * max(lane.budget.tpot for lane in stage.lanes)


def show(rows: list[Error], title: str) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("lane", "metric", "load", "live ms", "simulated ms", "error", "live spread", ""):
        table.add_column(column, justify="left" if column in ("lane", "metric", "") else "right")
    for each in rows:
        verdict = "stated" if not each.is_judged else "within" if each.holds else "falls short"
        table.add_row(
            each.lane or "all",
            f"{each.metric} p{each.percent}",
            f"{each.load} %",
            " / ".join(f"{value / 1e6:.2f}" for value in each.live),
            f"{each.simulated / 1e6:.2f}",
            f"{each.signed:+.1%}",
            f"{each.spread:.1%}",
            verdict,
        )
    CONSOLE.print(table)


def of_capacity(live: Sequence[Sequence[float]], simulated: Sequence[float]) -> list[Figure]:
    two = [mean(rounds) for rounds in live]
    error = mean(simulated) / mean(two) - 1
    spread = (max(two) - min(two)) / mean(two)
    every = ", ".join(
        " / ".join(f"{rate:.1f}" for rate in both) for both in zip(*live, strict=True)
    )
    CONSOLE.print(
        f"Capacity: live {every} requests/s, simulated {mean(simulated):.1f} "
        f"({min(simulated):.1f} to {max(simulated):.1f}): {error:+.1%}, beside a live spread of "
        f"{spread:.1%}.",
        highlight=False,
    )
    return [
        Figure("err_capacity", [error], least=-0.05, most=0.05),
        Figure("spread_capacity", [spread]),
    ]


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=list(SCALES), default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=0, help="0: four, of 0.5B two")
    parser.add_argument("--loads", default="50,80,95", help="percent of the capacity")
    parser.add_argument("--capacity", choices=("live", "simulated"), default="live")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    CONSOLE.print("Loading, and calibrating ...")
    bench = Bench(staged(asked.part, asked.seed, asked.rounds), [])
    scale, rate = bench.stage.scale, bench.guess()
    first = bench.calibrations[0]
    CONSOLE.print(
        f"{scale.model}, {first.dtype}, {bench.stage.threads} threads; "
        f"{scale.requests} requests of azure2023-conv and -code, token counts divided by "
        f"{scale.tokens:g}. Errors per regime: {first.about['errors']}",
        highlight=False,
    )
    figures = list[Figure]()
    if asked.capacity == "live":
        live, simulated = bench.capacities(rate)
        figures += of_capacity(live, simulated)
        rate = mean(mean(rounds) for rounds in live)
    loads = [int(load) for load in asked.loads.split(",")]
    rows = [each for load in loads for each in bench.compared(rate, load)]
    show(rows, "Simulated against live")
    figures += [
        Figure(each.name, [each.signed], least=-each.limit, most=each.limit)
        if each.is_judged
        else Figure(each.name, [each.signed])
        for each in rows
    ]
    figures.append(Figure("spread_calibrations", [bench.disagreement()]))
    return finish(f"fidelity_{asked.part}", __doc__ or "", asked.seed, figures)


if __name__ == "__main__":
    sys.exit(main())
