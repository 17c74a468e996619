"""Does `headway tune` find what an exhaustive sweep finds?

Simulated: Llama-3.1-8B on one H100 by its data sheet, and the two recorded Azure services with an
eighth of their tokens. `tune` chooses by two windows of the traces. The sweep tries every strategy
at every size (grid.py, more than 500 configurations) on the same windows, with the same requests
and residuals. Capacities are compared on two held-out windows, which neither has seen.

- sweep's choice: the configuration with the highest capacity on the tuning windows. Below the rate
  that decides, configurations are dropped after one simulation, as the higher rate was not kept.
- in hindsight: the highest capacity that any configuration has on the held-out windows themselves.
  No method can know it beforehand, so it has no aim.

    python -m benchmarks.tune [--check] [--requests N] [--seeds N] [--workers N]
"""

import argparse
import sys
from collections.abc import Sequence
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

LANES = """
completion:
  trace: azure2023-code
  budget: {ttft: 6 x unloaded, tpot: 3 x unloaded}
chat:
  trace: azure2023-conv
  budget: {ttft: 12 x unloaded, tpot: 4 x unloaded}
"""
MODEL = "llama-3.1-8b"
AIM = 0.97
DOWN = 1.03  # by which the rate is lowered until some configuration keeps every lane


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    parser.add_argument("--requests", type=int, default=160, help="of a window; default: 160")
    parser.add_argument("--seeds", type=int, default=1, help="cases; default: 1")
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


def compared(folder: Path, seed: int, requests: int, pool: WorkerPool) -> dict[str, float]:
    """The figures of one seed."""
    console = Console(width=100, quiet=True)
    options = TuneOptions(
        folder / "cost.json", lanes=folder / "lanes.yaml", requests=requests, seed=seed
    )
    tuning = prepare_tuning(options)
    found = tuning.run(pool, console)
    search = tuning.search
    assert search is not None
    runs, own = found.simulated, found.held[CHOSEN].rate
    print(f"seed {seed}: {found.headline()}", flush=True)
    candidates = [each for each in grid() if tuning.site.allows(each)]
    choice = sweeps_choice(search, candidates, found.tuned.rate)
    (checked,) = search.capacities([choice.candidate], HELD_OUT, own / 2)
    print(f"  sweep's choice: {choice.candidate.text}: {checked.rated.rate:.4g}", flush=True)
    best = in_hindsight(search, candidates, max(own, checked.rated.rate))
    sure = found.held[CHOSEN].found.sure
    return {
        "configurations": len(candidates),
        "n": sure.counted,
        "capacity": own,
        "capacity, low": sure.low,
        "capacity, high": sure.high,
        "ratio": own / checked.rated.rate,
        "hindsight": own / best,
        "default": own / found.held[DEFAULT].rate,
        "runs": runs,
    }


def main() -> int:
    given = parsed()
    card = read_accelerator("h100-sxm")
    calibration = analytical_calibration(read_shape(MODEL), card, MODEL)
    with TemporaryDirectory() as name, worker_pool(given.workers) as pool:
        folder = Path(name)
        write_cost_file(calibration, folder / "cost.json")
        (folder / "lanes.yaml").write_text(LANES)
        seeds = range(given.seeds)
        found = [compared(folder, seed, given.requests, pool) for seed in seeds]
    samples = {name: [each[name] for each in found] for name in found[0]}
    figures = [
        Figure("configurations of the sweep", samples["configurations"], least=500),
        Figure("requests of the lane with the fewest", samples["n"]),
        Figure("tune's capacity, held out", samples["capacity"], unit="requests/s"),
        Figure("its 90 % interval, low", samples["capacity, low"], unit="requests/s"),
        Figure("its 90 % interval, high", samples["capacity, high"], unit="requests/s"),
        Figure("over the sweep's choice", samples["ratio"], least=AIM),
        Figure("over the best in hindsight", samples["hindsight"]),
        Figure("over the server's default", samples["default"]),
        Figure("windows simulated by tune", samples["runs"]),
    ]
    return finish("tune", __doc__ or "", 0, figures)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HeadwayError as error:
        sys.exit(f"benchmarks.tune: {error}")
