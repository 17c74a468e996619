"""How fast does headway generate on a CPU, beside OpenVINO GenAI, llama.cpp and vLLM?

One machine, the same cores, one random model in the shape of Qwen2.5-0.5B, token ids in, greedy,
answers of a fixed length. First the bound: how fast the memory is read, how long all products of a
step take by each library at hand, and so the most tokens a second of each workload (workloads.py).
Then each engine in 16 bits and with weights in int8. One stream is answered in turns: the engines
of a precision stay in memory, and answer one after the other (turns.py). All other workloads have
rounds: a process of each engine, one after the other, from a warm file cache to the first token, a
warm-up, ten seconds of rest, all workloads. A peer that cannot be installed or has failed has a row
that says why.

    python -m benchmarks.peers [--check] [--turns 12] [--rounds 3] [--engines headway,llama-cpp]
                               [--workloads single,batch32] [--bound]

Peers and models are made at the first run, under `.build/peers` (--out): some 7 GB and ten minutes.
vLLM is taken from `.venv-vllm`, which `make vllm` makes (--vllm). `--bound` ends after the bound.
`--quick` is one turn and one round with a tenth of the tokens: it shows that all of it runs.

`..._vs_best` is ours over the peer with the highest median in that column, turn by turn or round by
round; `..._of_bound` is ours over the bound. Rates are output tokens over the whole time. The speed
of memory varies: in one minute two processors of a virtual machine share one path to it, in the
next they have two. So the bound of one stream is what its own process could read just before or
just after it, the faster of the two, by the bytes of the weights.
`host_headway_...` is the share of the time of batch32 in which our model computes nothing: the
scheduler, Python, inputs and results.
`others_at_work` is the most of the cores that other processes took in any run: repeat the benchmark
where it is more than a few hundredths.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.bound import Products, fastest, rate
from benchmarks.peers.compared import Bounds, figures, print_products, print_rows, unmeasured
from benchmarks.peers.contestants import ENGINES, PRECISIONS, Contestant, Stage
from benchmarks.peers.environments import MissingError, last_words, offline
from benchmarks.peers.model import weight_bytes
from benchmarks.peers.turns import in_turns
from benchmarks.peers.workloads import NAMES, SINGLE, Workload, draw
from benchmarks.report import finish, machine

SEED = 0
FEW = 4  # rows of a product that only reads
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an engine that runs is ended, too
    cores = sorted(os.sched_getaffinity(0))[: options.threads or None]
    os.sched_setaffinity(0, cores)  # of every process that is started, too
    wanted = options.workloads.split(",")
    workloads = [each for each in draw(SEED, 0.1 if options.quick else 1.0) if each.name in wanted]
    print(f"{machine()}, {len(cores)} threads", flush=True)
    bounds = bound(workloads, len(cores))
    if options.bound:
        return 0
    stage = Stage(options.out.resolve(), len(cores), options.limit, options.vllm)
    stage.root.mkdir(parents=True, exist_ok=True)
    contestants = stage.contestants(options.engines.split(","))
    try:
        measure(stage, contestants, workloads, options)
    except KeyboardInterrupt:
        print_rows(contestants, bounds)
        print("broken off: these rates are of what had ended, and there are no figures")
        return 130
    print_rows(contestants, bounds)
    found = figures(contestants, bounds)
    absent = unmeasured(found)
    if absent:
        print(f"not measured: {', '.join(absent)}")
    status = finish("peers", __doc__ or "", SEED, found)
    return int(status or bool(options.check and absent))


def measure(
    stage: Stage,
    contestants: Sequence[Contestant],
    workloads: Sequence[Workload],
    options: argparse.Namespace,
) -> None:
    """One stream in turns, then all others round by round, added to the contestants' runs."""
    for one in (each for each in workloads if each.name == SINGLE):
        for precision in PRECISIONS:
            same = [each for each in contestants if each.precision == precision]
            in_turns(stage, same, one, 1 if options.quick else options.turns)
    others = [each for each in workloads if each.name != SINGLE]
    for number in range(1 if options.quick else options.rounds) if others else ():
        one_round(stage, contestants, others, number)


def one_round(
    stage: Stage, contestants: Sequence[Contestant], workloads: Sequence[Workload], number: int
) -> None:
    """Each engine once; each round begins with another one."""
    first = number % len(contestants)
    for each in [*contestants[first:], *contestants[:first]]:
        if each.missing:
            print(f"round {number}: {each.name} is not measured: {each.missing}", flush=True)
            continue
        try:
            stage.run(each, workloads, number)
        except MissingError as error:
            each.missing = str(error)
            print(f"round {number}: {each.name} failed: {error}", flush=True)
            continue
        last = each.runs[-1]
        rates = [
            f"{name} {one['tokens'] / one['seconds']:.4g}"
            for name, one in last["workloads"].items()
        ]
        ended = f"; others took {last['others']:.0%} of the cores"
        ended += f"; {last['ended']}" if last["ended"] else ""
        print(
            f"round {number}: {each.name}: start {last['start']:.1f} s, {', '.join(rates)}{ended}",
            flush=True,
        )


def bound(workloads: Sequence[Workload], threads: int) -> Bounds:
    """Measure and print it: tokens a second by workload and precision."""
    command = [sys.executable, "-m", "benchmarks.peers.products", str(threads)]
    variables = {**os.environ, **offline(), "OMP_NUM_THREADS": str(threads)}
    command += map(str, ROWS)
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    if done.returncode:
        raise SystemExit(f"the bound could not be measured: {last_words(done.stderr)}")
    found = json.loads(done.stdout.splitlines()[-1])
    products = [
        Products(each["library"], each["precision"], _times(each["layers"]), _times(each["head"]))
        for each in found["products"]
    ]
    reads = {"a sum by torch": found["read_by_torch"]}
    for each in products:
        soonest = min(each.whole(rows) for rows in each.head if rows <= FEW)
        reads[each.library] = found["bytes"][each.library] / soonest
    bandwidth = max(reads.values())
    print("memory is read at, GB/s: " + ", ".join(f"{n} {r / 1e9:.1f}" for n, r in reads.items()))
    print_products(products, found["missing"])
    bounds: dict[tuple[str, str], float] = {}
    for precision in PRECISIONS:
        best = fastest(products, precision)
        if not best.layers:
            continue
        for workload in workloads:
            most = rate(workload, best, bandwidth, weight_bytes(precision))
            bounds[workload.name, precision] = most
        words = [f"{each.name} {bounds[each.name, precision]:.4g}" for each in workloads]
        print(f"bound, {precision}, output tokens a second: {', '.join(words)}", flush=True)
    return bounds


def _times(found: dict[str, float]) -> dict[int, float]:
    return {int(rows): seconds for rows, seconds in found.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", allow_abbrev=False)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bound", action="store_true", help="only the bound")
    parser.add_argument("--turns", type=int, default=12, help="of one stream")
    parser.add_argument("--rounds", type=int, default=3, help="of all others")
    parser.add_argument("--engines", default=",".join(ENGINES), help="separated by commas")
    parser.add_argument("--workloads", default=",".join(NAMES), help="separated by commas")
    parser.add_argument("--threads", type=int, default=0, help="0: one for each core")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of a process or a turn")
    parser.add_argument("--vllm", type=Path, default=Path(".venv-vllm"))
    parser.add_argument("--out", type=Path, default=Path(".build/peers"))
    options = parser.parse_args()
    for asked, known in ((options.engines, ENGINES), (options.workloads, NAMES)):
        if unknown := set(asked.split(",")) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
    if min(options.rounds, options.turns) < 1 or options.threads < 0:
        parser.error("turns and rounds are 1 or more, threads 0 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
