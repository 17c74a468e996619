"""How far is the simulator from the machine, on the same traffic?

Serves a window of recorded traffic live, simulates the same window, and prints signed errors of
TTFT and TPOT (below 0: simulated too short), for each endpoint and for all, at 50, 80 and 95 % of
the live capacity, and of the capacity itself. Beside each stands the spread of two live runs.
Judged are p50 and p90 up to 80 % load: TPOT within the larger of 5 % and the spread, TTFT within
the larger of 10 % and the spread. An error is infinite where nothing was served. A load is judged
by all lanes together at least, and by each lane that has enough requests. The capacity is judged
within 5 %. The rest is only reported.

A machine's speed changes within seconds, and a simulator cannot know what it was a minute ago. So a
live run and its clock are halted every few dozen steps. For as long, a second engine serves traffic
that cost models learn from: azure2023-conv too, at another scale and load, in chunks of four sizes,
the run's own among them. Both then meet the same slow and quick moments. Designed batches are
measured once, at the start. What was learned in a run's pauses gives the level and the spread of
the cost model that simulates that run. The two live runs consist of rounds that alternate. Each
round has its own window of the traces, the same one in both runs, so that an error is about many
arrivals and not about one burst that every round repeats. `speed_at80` says how much longer than
predicted the steps of the live runs took. `spread_levels` says by how much the runs' cost models
disagree about the same step: that is how far the machine's speed moved.

For a second table each load is simulated once more, on a machine whose speed at each moment is what
the nearby pauses say (fidelity.pace). It shows which part of an error is due only to when slow
moments came. It is reported, not judged.

    python -m benchmarks.fidelity --part tiny       the embedded model, 25 to 60 minutes
    python -m benchmarks.fidelity --part half-b     random weights of 0.5B, 55 to 200 minutes

With `--executor vllm`, in vLLM's environment, vLLM's workers run the embedded model. There are two
sets of workers, and the live run has two steps in flight. Steps are learned one by one.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import log
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks.fidelity.compared import Error, attainments, errors, judged, unsaid
from benchmarks.fidelity.grid import Grid
from benchmarks.fidelity.stage import SCALES, Lived, Stage, staged
from benchmarks.report import Figure, finish
from headway.core.cost.features import NONE, row_features
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.executor.load import EXECUTORS, TORCH
from headway.figures.capacity import search_capacity
from headway.strategies.strategy import SLOTS

GUESSED = 0.04  # tolerance of the first guess at it
CONSOLE = Console(width=110)


@dataclass(slots=True)
class Bench:
    """Two live runs in alternating rounds, and simulations of each round."""

    stage: Stage
    speeds: list[Figure] = field(default_factory=list)
    lived: list[Lived] = field(default_factory=list)

    def guess(self) -> float:
        """Requests per second that simulations of what was learned first can bear; 0: none does."""
        stage = self.stage
        first = stage.learned(stage.first.learned)
        begin = 1e9 * SLOTS / _longest(stage) / 8

        def serve(rate: float) -> Mapping[str, float]:
            rounds = range(stage.scale.rounds)
            return _mean(
                [stage.attainment(stage.simulated(first, rate, k, seed=0)) for k in rounds]
            )

        return search_capacity(serve, begin, 64 * begin, GUESSED).rate

    def capacities(self, guess: float) -> tuple[Grid, Grid, Grid]:
        """The capacity live, simulated at one level a run, and simulated at the machine's pace.
        Each rate and turn uses what was learned in that live run, or in that turn's nearest if that
        rate had none. Two turns serve a window, one in either half."""
        stage, runs = self.stage, dict[tuple[float, int], Lived]()

        def asked(rate: float, turn: int) -> Mapping[str, float]:
            lived = runs[rate, turn] = self.live(rate, turn // 2)
            return _said(f"Live, turn {turn + 1}", rate, stage.attainment(lived.outcome))

        def simulated(rate: float, turn: int, *, paced: bool) -> Mapping[str, float]:
            near = min(runs, key=lambda run: (run[1] != turn, abs(log(run[0] / rate))))
            again = stage.again(runs[near], rate, turn, paced=paced)
            kept = _mean([stage.attainment(each) for each in again])
            return _said(f"Simulated, turn {turn + 1}", rate, kept)

        ways = asked, partial(simulated, paced=False), partial(simulated, paced=True)
        live, level, paced = (Grid(serve, guess, 2 * stage.scale.rounds) for serve in ways)
        for grid in (live, level, paced):
            grid.search()
        self.tell("capacity", list(runs.values()))
        return live, level, paced

    def compared(self, rate: float, load: int) -> tuple[list[Error], list[Error]]:
        """Simulated at one level a run, and at the machine's pace."""
        stage, offered = self.stage, rate * load / 100
        halves = list[Lived](), list[Lived]()
        for turn in range(stage.scale.rounds):
            CONSOLE.print(f"At {load} %, round {turn + 1} of {stage.scale.rounds}", highlight=False)
            for half in halves:
                half.append(self.live(offered, turn))
        every = [*halves[0], *halves[1]]
        self.tell(f"at{load}", every)
        live = [[stage.counted(lived.outcome) for lived in half] for half in halves]

        def simulated(*, paced: bool) -> list[Error]:
            outcomes = [
                stage.counted(each)
                for turn, lived in enumerate(every)
                for each in stage.again(lived, offered, turn, paced=paced)
            ]
            return errors([lane.name for lane in stage.lanes], load, live, outcomes)

        return simulated(paced=False), simulated(paced=True)

    def live(self, rate: float, window: int) -> Lived:
        self.lived.append(self.stage.live(rate, window, len(self.lived)))
        return self.lived[-1]

    def tell(self, part: str, runs: Sequence[Lived]) -> None:
        """How much longer than predicted the steps took, in each run."""
        ratios = [
            sum(step.nanoseconds for step in lived.steps)
            / sum(step.predicted(lived.level.cost) for step in lived.steps)
            for lived in runs
        ]
        self.speeds.append(Figure(f"speed_{part}", ratios))

    def disagreement(self) -> float:
        """Of a step of full slots: the most less the least of the runs' predictions, over the
        mean."""
        reads = self.stage.testbed.context // 8
        step = sum((row_features(reads, 1, logits=1) for _ in range(SLOTS)), start=NONE)
        said = [lived.level.cost.predict(step) for lived in self.lived]
        return (max(said) - min(said)) / mean(said)


def _said(what: str, rate: float, kept: Mapping[str, float]) -> Mapping[str, float]:
    CONSOLE.print(f"{what}: {rate:8.2f} requests/s, in budget {attainments(kept)}", highlight=False)
    return kept


def _mean(kept: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {lane: mean(each[lane] for each in kept) for lane in kept[0]}


def _longest(stage: Stage) -> float:
    """Nanoseconds for which a request has a slot, at least: its budget of time per token."""
    tokens = mean(request.max_tokens for window in stage.windows for request in window)
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
            " / ".join(map(_ms, each.live)),
            _ms(each.simulated),
            f"{each.signed:+.1%}",
            f"{each.spread:.1%}",
            verdict,
        )
    CONSOLE.print(table)


def _ms(nanoseconds: int) -> str:
    return "never" if nanoseconds == NEVER else f"{nanoseconds / 1e6:.2f}"


def of_capacity(live: Grid, level: Grid, paced: Grid) -> list[Figure]:
    two = live.halves
    error, at_pace = (each.crossing() / live.crossing() - 1 for each in (level, paced))
    spread = (max(two) - min(two)) / mean(two)
    CONSOLE.print(
        f"Capacity: live {live.crossing():.2f} requests/s ({two[0]:.2f} / {two[1]:.2f}), simulated "
        f"{level.crossing():.2f}: {error:+.1%}, beside a live spread of {spread:.1%}; at the "
        f"machine's pace {paced.crossing():.2f}: {at_pace:+.1%}.",
        highlight=False,
    )
    return [
        Figure("err_capacity", [error], least=-0.05, most=0.05),
        Figure("err_capacity_paced", [at_pace]),
        Figure("spread_capacity", [spread]),
    ]


def of_errors(rows: Sequence[Error], paced: Sequence[Error], loads: Sequence[int]) -> list[Figure]:
    """At each load that is judged there are enough requests for those of all lanes together."""
    figures = list[Figure]()
    if least := len(judged((), loads)):
        count = sum(each.is_judged for each in rows)
        figures += [
            Figure("judged", [count], least=least),
            Figure("within", [within(rows)], unit=f"of {count}"),
            Figure("within_paced", [within(paced)], unit=f"of {count}"),
        ]
    return figures + [
        Figure(each.name, [each.signed], least=-each.limit, most=each.limit)
        if each.is_judged
        else Figure(each.name, [each.signed])
        for each in rows
    ]


def within(rows: Sequence[Error]) -> int:
    """How many of the judged errors are within their limits."""
    return sum(each.holds for each in rows if each.is_judged)


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--part", choices=list(SCALES), default="tiny")
    parser.add_argument("--executor", choices=EXECUTORS, default=TORCH)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rounds", type=int, default=0, help="each with a window of its own; 0: four, of 0.5B two"
    )
    parser.add_argument("--requests", type=int, default=0, help="of a window; 0: 400, of 0.5B 260")
    parser.add_argument("--loads", default="50,80,95", help="percent of the capacity")
    parser.add_argument("--capacity", choices=("live", "simulated"), default="live")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    if asked.rounds < 0 or asked.requests < 0 or asked.requests == 1:
        parser.error("--rounds and --requests: not below 0, and a window has two requests at least")
    if asked.executor != TORCH and asked.part != "tiny":
        parser.error(f"--part {asked.part} runs on the executor {TORCH} alone")
    CONSOLE.print("Loading, and calibrating ...")
    try:
        stage = staged(asked.part, asked.seed, asked.rounds, asked.requests, asked.executor)
    except SettingError as error:
        parser.error(str(error))
    try:
        return measured(Bench(stage), asked)
    finally:
        stage.close()


def measured(bench: Bench, asked: Namespace) -> int:
    """The exit status."""
    scale, rate = bench.stage.scale, bench.guess()
    CONSOLE.print(
        f"{scale.model}, {asked.executor}, {bench.stage.testbed.dtype}, "
        f"{bench.stage.first.threads} threads; "
        f"{scale.rounds} windows of {scale.requests} requests of azure2023-conv and -code, token "
        f"counts divided by {scale.tokens:g}.",
        highlight=False,
    )
    if not rate:
        CONSOLE.print("In simulation no rate keeps the budgets, so there is no load to compare at.")
        return 1
    figures = list[Figure]()
    if asked.capacity == "live":
        grids = bench.capacities(rate)
        figures += of_capacity(*grids)
        rate = grids[0].crossing()
    loads = [int(load) for load in asked.loads.split(",")]
    rows, paced = list[Error](), list[Error]()
    for load in loads:  # each is shown when it is there: the next takes minutes
        level, at_pace = bench.compared(rate, load)
        show(level, f"Simulated against live, at {load} %")
        show(at_pace, f"At {load} %, simulated at the machine's pace (stated)")
        rows += level
        paced += at_pace
    if few := unsaid([lane.name for lane in bench.stage.lanes], loads, rows):
        CONSOLE.print(f"There were too few requests to say {', '.join(few)}: more rounds.")
    figures += of_errors(rows, paced, loads)
    figures += [*bench.speeds, Figure("spread_levels", [bench.disagreement()])]
    name = f"fidelity_{asked.part}" + ("" if asked.executor == TORCH else f"_{asked.executor}")
    return finish(name, __doc__ or "", asked.seed, figures)


if __name__ == "__main__":
    sys.exit(main())
