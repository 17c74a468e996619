"""Does `headway tune` find what an exhaustive sweep finds?

Simulated, by data sheets, on the recorded Azure services with an eighth of their tokens:

- two lanes: Llama-3.1-8B on one H100; completion and chat.
- three lanes: Qwen2.5-7B on one L4; completion, chat, and summaries that are drawn.

`tune` chooses by two windows of the traces. The sweep tries every strategy at every size (grid.py,
more than 500 configurations) on the same windows, with the same requests and residuals. Capacities
are compared on two held-out windows, which neither has seen. Data sheets have no residuals, so a
seed alone would change next to nothing: each seed also takes later windows of the traces.

- sweep's choice: the configuration with the highest capacity on the tuning windows. Configurations
  below the rate that decides are dropped after one simulation, as they do not keep that rate.
- in hindsight: the highest capacity that any configuration has on the held-out windows themselves.
  No method can know it beforehand, so it has no aim.

    python -m benchmarks.tune [--check] [--cases NAMES] [--requests N] [--seeds N] [--workers N]
                              [--no-hindsight]
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.report import Figure, finish
from benchmarks.tune.grid import grid
from headway.commands.tune.candidate import Candidate
from headway.commands.tune.options import TuneOptions
from headway.commands.tune.ranking import Finding, by_rate
from headway.commands.tune.recommendation import CHOSEN, DEFAULT
from headway.commands.tune.search import Search
from headway.commands.tune.tuning import HELD_OUT, TUNING, prepare_tuning
from headway.costing.calibration import write_cost_file
from headway.costing.datasheet import analytical_calibration, read_accelerator, read_shape
from headway.errors import HeadwayError
from headway.figures.capacity import TOLERANCE
from headway.runs.process_pool import WorkerPool, worker_pool
from headway.traffic.from_yaml import SHIPPED_TRACES
from headway.traffic.trace import read_shipped_trace

TWO_LANES = """
completion:
  trace: azure2023-code.csv
  budget: {ttft: 6 x unloaded, tpot: 3 x unloaded}
chat:
  trace: azure2023-conv.csv
  budget: {ttft: 12 x unloaded, tpot: 4 x unloaded}
"""
SUMMARIES = """
summaries:
  arrivals: poisson
  prompt: {mean: 400, cv: 0.5}
  answer: {mean: 24, cv: 0.3}
  budget: {e2e: 30 x unloaded}
"""
THREE_LANES = TWO_LANES + SUMMARIES
AIM = 0.97
LATER = 320  # arrivals by which each seed's traces begin later, so its windows differ
DOWN = 1.03  # by which the rate is lowered until some configuration keeps every lane


@dataclass(frozen=True, slots=True)
class Case:
    """What is tuned: a model on an accelerator, and its lanes."""

    model: str
    accelerator: str
    lanes: str  # YAML
    laxest: str  # the lane whose share of slots the sweep varies


CASES = {
    "two": Case("llama-3.1-8b", "h100-sxm", TWO_LANES, "chat"),
    "three": Case("qwen2.5-7b", "l4", THREE_LANES, "summaries"),
}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tune", description=__doc__, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    parser.add_argument("--cases", default="two,three", help="of two and three; default: both")
    parser.add_argument("--requests", type=int, default=160, help="of a window; default: 160")
    parser.add_argument("--seeds", type=int, default=3, help="of each case; default: 3")
    parser.add_argument("--no-hindsight", action="store_true", help="leave that sweep out")
    parser.add_argument("--workers", type=int, default=2, help="processes; default: 2")
    return parser.parse_args()


def sweeps_choice(search: Search, candidates: Sequence[Candidate], rate: float) -> Finding:
    """The configuration with the highest capacity on the tuning windows."""
    while True:
        scores = search.scores(candidates, rate, TUNING)
        keeping = [each for each in candidates if scores[each].tried.kept]
        if keeping:
            return min(search.capacities(keeping, TUNING, rate, scores), key=by_rate)
        rate /= DOWN


def in_hindsight(search: Search, candidates: Sequence[Candidate], rate: float) -> float:
    """The highest capacity of any of them on the held-out windows; at least this rate."""
    above = rate * (1 + TOLERANCE)
    scores = search.scores(candidates, above, HELD_OUT)
    keeping = [each for each in candidates if scores[each].tried.kept]
    found = search.capacities(keeping, HELD_OUT, above, scores)
    return max([rate, *(each.rated.rate for each in found)])


def compared(
    case: Case, options: TuneOptions, pool: WorkerPool, hindsight: bool
) -> dict[str, float]:
    """The figures of one seed."""
    console = Console(width=100, quiet=True)
    tuning = prepare_tuning(options)
    found = tuning.run(pool, console)
    search = tuning.search
    assert search is not None
    runs, own = found.simulated, found.held[CHOSEN].rate
    print(f"{case.model}, seed {options.seed}: {found.headline()}", flush=True)
    candidates = [each for each in grid(case.laxest) if tuning.site.allows(each)]
    choice = sweeps_choice(search, candidates, found.tuned.rate)
    (checked,) = search.capacities([choice.candidate], HELD_OUT, own / 2)
    print(f"  sweep's choice: {choice.candidate.text}: {checked.rated.rate:.4g}", flush=True)
    sure = found.held[CHOSEN].found.sure
    return {
        "configurations": len(candidates),
        "n": sure.counted,
        "capacity": own,
        "capacity, low": sure.low,
        "capacity, high": sure.high,
        "ratio": own / checked.rated.rate,
        "default": own / found.held[DEFAULT].rate,
        "runs": runs,
    } | (
        {"hindsight": own / in_hindsight(search, candidates, max(own, checked.rated.rate))}
        if hindsight
        else {}
    )


def write_traces(folder: Path, seed: int) -> None:
    """The shipped traces without their first arrivals."""
    for name in SHIPPED_TRACES:
        rows = ["arrival_s,input_tokens,output_tokens"]
        for each in read_shipped_trace(name)[seed * LATER :]:
            rows.append(f"{each.at / 1e9:.9f},{each.prompt},{each.answer}")
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")


def figures(name: str, found: Sequence[dict[str, float]]) -> list[Figure]:
    """Of one case, over its seeds."""
    samples = {key: [each[key] for each in found] for key in found[0]}
    unit = "requests/s"
    said = [
        Figure(f"{name} lanes: configurations", samples["configurations"], least=500),
        Figure(f"{name} lanes: requests of the lane with the fewest", samples["n"]),
        Figure(f"{name} lanes: tune's capacity, held out", samples["capacity"], unit=unit),
        Figure(f"{name} lanes: its 90 % interval, low", samples["capacity, low"], unit=unit),
        Figure(f"{name} lanes: its 90 % interval, high", samples["capacity, high"], unit=unit),
        Figure(f"{name} lanes: over the sweep's choice", samples["ratio"], least=AIM),
        Figure(f"{name} lanes: over the server's default", samples["default"]),
        Figure(f"{name} lanes: windows simulated by tune", samples["runs"]),
    ]
    if "hindsight" in samples:
        said.append(Figure(f"{name} lanes: over the best in hindsight", samples["hindsight"]))
    return said


def main() -> int:
    given, said = parsed(), list[Figure]()
    with TemporaryDirectory() as folder, worker_pool(given.workers) as pool:
        cost, lanes = Path(folder) / "cost.json", Path(folder) / "lanes.yaml"
        for name in given.cases.split(","):
            case = CASES[name]
            card, shape = read_accelerator(case.accelerator), read_shape(case.model)
            write_cost_file(analytical_calibration(shape, card, case.model), cost)
            lanes.write_text(case.lanes)
            found = []
            for seed in range(given.seeds):
                write_traces(Path(folder), seed)
                options = TuneOptions(cost, lanes=lanes, requests=given.requests, seed=seed)
                found.append(compared(case, options, pool, not given.no_hindsight))
            said += figures(name, found)
    return finish("tune", __doc__ or "", 0, said)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HeadwayError as error:
        sys.exit(f"benchmarks.tune: {error}")
