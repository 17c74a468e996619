"""How well are the times promised at admission kept?

Simulated: the real scheduler in virtual time, with the data-sheet cost model of an 8B model on one
H100, at 80 % of each strategy's own capacity (the highest load at which every lane keeps 95 % of
its budgets). Steps take longer or shorter than predicted, by residuals that are correlated in time
(RESIDUALS, ECHO). Answers end by a stop token; callers allow ALLOWED times the longest. What the
scheduler knows of their lengths:

    none    only max_tokens
    ours    the lengths of the answers that have ended, as the server learns them
    oracle  the caller says how many tokens to expect, and is right

Traffic: the smooth and the bursty mix of benchmarks.budgets, and servegen, reasoning answers of a
few thousand tokens (drawn from fitted parameters, not recorded).

A first token's error is how far it came from the promise, over 15 % of its TTFT or the step that it
came from, whichever is longer. An answer is covered if it had ended by the time that was promised.
All requests count, from the first on.

    python -m benchmarks.promise              25 minutes on one core
    python -m benchmarks.promise --quick      the smooth mix, one strategy
    python -m benchmarks.promise --begin 600  another window of the traces
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.budgets.mixes import MIXES, MS, SECOND, SEED, SHARED, Mix, Source, in_turn
from benchmarks.budgets.variants import Variant, first_come
from benchmarks.report import Figure, finish
from headway.core.batch import Batch, Output
from headway.core.cost.lengths import Lengths
from headway.core.cost.step_cost import Echo, Residuals
from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Request
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.sequences.sequence import Sequence as Served
from headway.core.settings import Settings
from headway.engine import Executor
from headway.figures.capacity import search_capacity
from headway.sim.inbox import arrivals
from headway.sim.simulate import simulate
from headway.strategies.registry import by_budgets

NONE, OURS, ORACLE = "none", "ours", "oracle"
END, WORD = 1, 0  # tokens
CHUNK = 1_024  # of first come
LOAD = 0.8  # of the capacity
# The least, each tenth, and the most of measured over predicted step times, in thousandths.
RESIDUALS = Residuals((850, 940, 960, 975, 988, 1_000, 1_012, 1_028, 1_050, 1_090, 1_300))
ECHO = Echo(400, SECOND // 2)
SERVEGEN = "servegen-r1-synth"
TOLERANCE = 0.08


@dataclass(frozen=True, slots=True)
class Traffic:
    """A mix, and the window of it that is offered."""

    mix: Mix
    seconds: float
    low: float  # loads between which the capacity lies
    high: float
    allowed: int  # max_tokens of every request


TRAFFIC = {
    "smooth": Traffic(MIXES["smooth"], 600, 1, 16, 2_048),
    "bursty": Traffic(MIXES["bursty"], 600, 0.125, 8, 2_048),
    "servegen": Traffic(
        Mix(
            (
                Lane("tight", Budget(ttft=SECOND, tpot=40 * MS), 0),
                Lane("loose", Budget(ttft=3 * SECOND, tpot=80 * MS), 1),
            ),
            (SERVEGEN,),
            context=32_768,
            slots=256,
            every=180.0,
            make=in_turn(SERVEGEN, ("tight", "loose")),
        ),
        180,
        0.02,
        4,
        20_000,
    ),
}


class Untaught(Lengths):
    """Learns nothing."""

    def ended(self, sequence: Served) -> None:
        pass


class Ending(Executor):
    """Says WORD, and END as the last token of each answer. numbers: as requests are admitted."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._last = [len(each.prompt) + each.max_tokens - 1 for each in requests]
        self._outputs = dict[int, Output]()

    def submit(self, batch: Batch) -> int:
        last = self._last
        self._outputs[batch.step] = Output(
            tuple(
                [
                    ((END if start + len(mine) >= last[number] else WORD),) if want else ()
                    for number, start, mine, _, want in batch.rows
                ]
            )
        )
        return batch.step

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket)


def served(
    traffic: Traffic, requests: Sequence[Request], policies: Policies, lengths: str
) -> Scheduler:
    """To the end, with noise. lengths: what is known of them; empty: no answer ends early."""
    mix = traffic.mix
    priced = mix.calibration()
    cost = replace(priced.cost, residuals=(RESIDUALS, RESIDUALS), echoes=(ECHO,))
    settings = Settings(
        priced.num_blocks, priced.block_size, mix.lanes, policies, priced.context, cost
    )
    scheduler = Scheduler(settings)
    if not lengths:
        simulate(scheduler, arrivals(requests), cost, seed=SEED)
        return scheduler
    if lengths == NONE:
        scheduler.estimates.lengths = Untaught()
    asked, stops = list[Request](), Sampling(stop_tokens=frozenset({END}))
    for each in requests:
        most = min(traffic.allowed, priced.context - len(each.prompt))
        expected = each.max_tokens if lengths == ORACLE else 0
        asked.append(
            replace(each, max_tokens=max(most, each.max_tokens), sampling=stops, expected=expected)
        )
    simulate(scheduler, arrivals(asked), cost, Ending(requests), seed=SEED)
    scheduler.check()
    return scheduler


def capacity(traffic: Traffic, source: Source, variant: Variant) -> float:
    """The highest load at which every lane with a budget keeps 95 % of its requests inside it."""

    def serve(load: float) -> Mapping[str, float]:
        requests = traffic.mix.requests(source, load)
        rows = served(traffic, requests, variant.policies, "").ledger.requests
        lanes = {row.lane for row in rows if row.budget.is_timed}
        good = {lane: [row.good for row in rows if row.lane == lane] for lane in lanes}
        return {lane: sum(each) / len(each) for lane, each in good.items()}

    return search_capacity(serve, traffic.low, traffic.high, TOLERANCE).rate


@dataclass(frozen=True, slots=True)
class Kept:
    """What the promises of a run have come to."""

    errors: list[float]  # of first tokens, over 15 % of the TTFT or a step
    shares: list[float]  # of first tokens: the error over the TTFT
    covered: list[bool]  # of answers
    widths: list[float]  # of answers: promised over measured time to the end
    late: float  # share of the first tokens that came later than promised


def kept(scheduler: Scheduler) -> Kept:
    rows: list[RequestRow] = scheduler.ledger.requests
    steps = {row.began + row.nanoseconds: row.nanoseconds for row in scheduler.ledger.steps}
    firsts = [row for row in rows if row.first_error != NEVER]
    whole = [row for row in rows if row.was_promised]
    return Kept(
        [abs(row.first_error) / max(0.15 * row.ttft, steps[row.first_token]) for row in firsts],
        [abs(row.first_error) / row.ttft for row in firsts],
        [row.kept_promise for row in whole],
        [(row.promised_end - row.arrived) / row.e2e for row in whole],
        sum(row.first_error > 0 for row in firsts) / len(firsts),
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.promise", description=__doc__, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--traces", type=Path, default=SHARED, help=f"folder; default: {SHARED}")
    parser.add_argument("--traffic", default=",".join(TRAFFIC), help="of " + ", ".join(TRAFFIC))
    parser.add_argument("--begin", type=float, default=0.0, help="second where the window begins")
    parser.add_argument("--quick", action="store_true", help="the smooth mix, by budgets")
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    given = parser.parse_args()
    if given.begin < 0:
        parser.error(f"--begin is 0 or more, not {given.begin:g}")
    given.traffic = ["smooth"] if given.quick else given.traffic.split(",")
    if strange := [each for each in given.traffic if each not in TRAFFIC]:
        parser.error(f"--traffic: there is no {strange[0]}; there are {', '.join(TRAFFIC)}")
    return given


def main() -> int:
    given, figures = parsed(), list[Figure]()
    table = Table(
        title=f"promises at 80 % of the capacity, from {given.begin:g} s", title_justify="left"
    )
    for column in ("traffic", "strategy", "load", "lengths", "n", "error", "of TTFT", "late"):
        table.add_column(column, justify="right")
    table.add_column("covered", justify="right")
    table.add_column("width", justify="right")
    for name in given.traffic:
        traffic = TRAFFIC[name]
        source, slots = Source(given.traces, given.begin, traffic.seconds), traffic.mix.slots
        if not traffic.mix.requests(source, 1):
            sys.exit(f"benchmarks.promise: the {name} traces have ended before {given.begin:g} s")
        variants = [Variant("budgets", by_budgets(slots))]
        if not given.quick:
            variants.append(replace(first_come(slots, CHUNK), name="first come"))
        for variant in variants:
            load = LOAD * capacity(traffic, source, variant)
            requests = traffic.mix.requests(source, load)
            for lengths in (NONE, OURS, ORACLE):
                found = kept(served(traffic, requests, variant.policies, lengths))
                covered = 100 * sum(found.covered) / len(found.covered)
                table.add_row(
                    name,
                    variant.name,
                    f"{load:.3g}",
                    lengths,
                    str(len(found.errors)),
                    f"{median(found.errors):.2f}",
                    f"{100 * median(found.shares):.1f} %",
                    f"{100 * found.late:.0f} %",
                    f"{covered:.1f} %",
                    f"{median(found.widths):.2f}",
                )
                Console(width=130).print(table)
                what = f"{name}, {variant.name}, {lengths}"
                figures.append(Figure(f"{what}: first token's error", found.errors, most=1))
                figures.append(
                    Figure(f"{what}: answers covered", [covered], most=92, unit="%", least=88)
                )
    return finish("promise", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
