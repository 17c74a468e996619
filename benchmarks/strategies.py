"""Does continuous batching serve 3 to 5 times static's requests at 20 times lower p99?

Texts on this subject say so. It is measured on one engine with the embedded model: static groups of
exactly 16 (whole prompts in one step, padded to the longest; each answer is sent as its tokens
come, which is the baseline's best case) against continuous batching with 16 slots and chunked
prompts, first come, first served. Recorded lengths (azure2023-code and azure2023-conv, in their
order of arrival, token counts divided by 8), at least 500 requests of each service.

Saturation: three consecutive parts of that trace, each a backlog that arrives at once. Static and
continuous serve the same requests in pairs, and take turns in going first. `saturation_ratio` is
continuous's requests per second over static's. `predicted_ratio` is what the same answers
would predict if held slots were static's only loss: the mean over groups of 16 of the longest
answer, over the mean answer. `token_ratio` is the tokens really computed over those asked for,
which includes padding of prompts. Neither reflects what a token costs in a small or a large step.

Latency: all requests, with Poisson arrivals at 80 % of static's capacity as just measured, the same
for both. `p99_ttft_ratio` is static's p99 time to first token over continuous's, counted
from the scheduled arrival; over all requests, and for each service by itself.

No aim is set; the result is reported as it is.

    python -m benchmarks.strategies                      six minutes, as many threads as pay
    python -m benchmarks.strategies --threads 2 --write  also brings the documents up to date
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import mean, median

from benchmarks.report import Figure, finish
from benchmarks.textbook import kept
from benchmarks.textbook.document import DOCUMENTS, refreshed
from benchmarks.textbook.part import MEASURED, Part, Table
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Static
from headway.core.policies.mix import Mixed, PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.costing.request_spec import RequestSpec
from headway.figures.engine_figures import engine_figures
from headway.figures.percentile import percentile
from headway.runs.live_testbed import load_testbed
from headway.runs.machine_speed import choose_threads, warm_up
from headway.runs.outcome import Outcome
from headway.runs.run import Run
from headway.runs.testbed import Testbed
from headway.traffic.demo_workload import merge_traces
from headway.traffic.endpoint import COMPLETION, SUPPORT
from headway.traffic.prompts import Prompts
from headway.traffic.trace import read_shipped_trace
from headway.traffic.workload import with_prompts

SEED, SIZE, CHUNK, EACH, PARTS, ROUNDS, LOAD = 0, 16, 128, 500, 3, 2, 0.8
THREADS = {1: "one thread", 2: "two threads"}  # of the documents' columns
SAID = {  # in the documents: what it is, its decimals and unit, what its n counts
    "saturation_ratio": ("requests a second, continuous / static", ".2f", "", " pairs"),
    "predicted_ratio": ("mean longest of 16 / mean answer, same requests", ".2f", "", ""),
    "token_ratio": ("tokens computed / tokens asked for, static", ".2f", "", ""),
    "p99_ttft_ratio": ("static / continuous at 80 % of static's capacity", ".1f", "", " pairs"),
    "static_p99_ttft_s": ("", ".2f", " s", ""),
    "continuous_p99_ttft_s": ("", ".2f", " s", ""),
}
LANES = [Lane(COMPLETION.name), Lane(SUPPORT.name)]


def strategies(testbed: Testbed) -> dict[str, Policies]:
    return {
        "static": Policies(
            join=Static(SIZE), mix=PrefillFirst(), chunk=Whole(), step_tokens=SIZE * testbed.context
        ),
        "continuous": Policies(
            join=Continuous(SIZE), mix=Mixed(), chunk=Fixed(CHUNK), step_tokens=SIZE + CHUNK
        ),
    }


def offered(testbed: Testbed) -> list[RequestSpec]:
    """The trace from its beginning until each service has asked often enough."""
    traces = {
        COMPLETION.name: read_shipped_trace("azure2023-code"),
        SUPPORT.name: read_shipped_trace("azure2023-conv"),
    }
    asks, counts = list[RequestSpec](), {COMPLETION.name: 0, SUPPORT.name: 0}
    for ask in merge_traces(traces, testbed.context):
        asks.append(ask)
        counts[ask.lane] += 1
        if min(counts.values()) >= EACH:
            break
    return asks


def predicted(asks: Sequence[RequestSpec]) -> float:
    """Longest answer of each group of 16 over the mean answer: slots held for nobody."""
    groups = [asks[at : at + SIZE] for at in range(0, len(asks) - SIZE + 1, SIZE)]
    longest = mean(max(ask.answer for ask in group) for group in groups)
    return longest / mean(ask.answer for ask in asks)


@dataclass(frozen=True, slots=True)
class Bench:
    testbed: Testbed
    requests: tuple[Request, ...]  # the same prompts in every run: each has its own, empty cache

    def pair(self, requests: Sequence[Request], turn: int) -> dict[str, Outcome]:
        """Both strategies on the same requests; which goes first changes from pair to pair."""
        named = list(strategies(self.testbed).items())
        return {
            name: Run(self.testbed, policies, LANES, requests).serve()
            for name, policies in (named if turn % 2 == 0 else reversed(named))
        }

    def part(self, number: int) -> slice:
        share = len(self.requests) // PARTS
        return slice(number * share, (number + 1) * share)

    def saturated(self) -> list[dict[str, Outcome]]:
        at_once = [replace(request, arrived=0) for request in self.requests]
        return [self.pair(at_once[self.part(turn)], turn) for turn in range(PARTS)]

    def loaded(self, rate: float) -> list[dict[str, Outcome]]:
        """Poisson arrivals, so many a second."""
        pairs = []
        for turn in range(ROUNDS):
            draw, at, timed = Random(SEED + turn), 0.0, list[Request]()
            for request in self.requests:
                at += draw.expovariate(rate)
                timed.append(replace(request, arrived=int(at * 1e9)))
            pairs.append(self.pair(timed, turn))
        return pairs


def p99(outcome: Outcome, lanes: Sequence[str]) -> float:
    """Seconds to the first token."""
    value = percentile([row.ttft for row in outcome.requests if row.lane in lanes], 99)
    assert value is not None, "500 of each leave five beyond it"
    return value / 1e9


def saturation(pairs: Sequence[dict[str, Outcome]], predictions: list[float]) -> list[Figure]:
    made = [{name: engine_figures(outcome) for name, outcome in pair.items()} for pair in pairs]
    per_second = {
        name: [pair[name].requests_per_second for pair in made] for name in ("static", "continuous")
    }
    ratios = [b / a for a, b in zip(per_second["static"], per_second["continuous"], strict=True)]
    return [
        Figure("saturation_ratio", ratios, unit="x"),
        Figure("predicted_ratio", predictions, unit="x"),
        Figure("static_req_s", per_second["static"], unit="req/s"),
        Figure("continuous_req_s", per_second["continuous"], unit="req/s"),
        Figure("token_ratio", [1 / (1 - pair["static"].waste) for pair in made], unit="x"),
        Figure("static_padding", [pair["static"].padding for pair in made], unit="of tokens"),
        Figure("static_held", [pair["static"].held for pair in made], unit="of tokens"),
    ]


def latency(pairs: Sequence[dict[str, Outcome]]) -> list[Figure]:
    figures = []
    for suffix, lanes in (
        ("", [COMPLETION.name, SUPPORT.name]),
        ("_completion", [COMPLETION.name]),
        ("_support", [SUPPORT.name]),
    ):
        static = [p99(pair["static"], lanes) for pair in pairs]
        continuous = [p99(pair["continuous"], lanes) for pair in pairs]
        ratios = [a / b for a, b in zip(static, continuous, strict=True)]
        figures.append(Figure(f"p99_ttft_ratio{suffix}", ratios, unit="x"))
        if not suffix:
            figures.append(Figure("static_p99_ttft_s", static, unit="s"))
            figures.append(Figure("continuous_p99_ttft_s", continuous, unit="s"))
    busy = [engine_figures(pair["static"]).busy for pair in pairs]
    return [*figures, Figure("static_busy", busy, unit="of time")]


def part_of(runs: Mapping[int, kept.Kept]) -> Part:
    """What the documents say of these runs, by their number of threads."""
    figures, rows = dict[str, float](), list[list[str]]()
    for name, (words, places, unit, counted) in SAID.items():
        cells = [f"`{name}`: {words}" if words else f"`{name}`"]
        for run in runs.values():
            samples = run.samples[name]
            cells.append(f"{median(samples):{places}}{unit}")
            cells.append(f"{min(samples):{places}} to {max(samples):{places}}")
        rows.append([*cells, f"{len(samples)}{counted}"])
    for threads, run in runs.items():
        figures |= {f"{name}_{threads}": median(run.samples[name]) for name in run.samples}
    machines = ", ".join(dict.fromkeys(run.machine for run in runs.values()))
    head = [f"measured, [{machines}](#what-was-measured-on)"]
    for threads in runs:
        head += [f"{THREADS[threads]}: median", "least to most"]
    return Part(MEASURED, [Table([*head, "n"], rows)], figures)


def write(threads: int, figures: Sequence[Figure]) -> None:
    """Keep this run, and bring the documents up to date with the kept ones."""
    samples = {each.name: each.samples for each in figures}
    kept.keep(f"strategies_{threads}", "strategies", threads, samples)
    said = {"strategies": part_of(kept_runs())}
    for document in DOCUMENTS:
        document.write_text(refreshed(document.read_text(), said))


def kept_runs() -> dict[int, kept.Kept]:
    """The latest with each number of threads."""
    return {
        count: kept.read(f"strategies_{count}")
        for count in THREADS
        if kept.has(f"strategies_{count}")
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.strategies", description=__doc__, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--threads", type=int, choices=[*THREADS], help="default: as many as pay on this machine"
    )
    parser.add_argument("--write", action="store_true", help="into the documents")
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    return parser.parse_args()


def main() -> int:
    given = parsed()
    testbed = load_testbed(None)
    prompts = Prompts(testbed.text, testbed.block_size, SEED)
    asks = offered(testbed)
    warm_up(testbed, asks, prompts)
    if given.threads:
        testbed.use_threads(given.threads)
    threads = given.threads or choose_threads(testbed, asks, prompts)
    bench = Bench(testbed, with_prompts(asks, Prompts(testbed.text, testbed.block_size, SEED)))
    counts = {lane.name: sum(ask.lane == lane.name for ask in asks) for lane in LANES}
    print(
        f"{testbed.model}, {testbed.dtype}, {threads} threads; n: {counts}; {testbed.memory}",
        flush=True,
    )
    predictions = [predicted(asks[bench.part(turn)]) for turn in range(PARTS)]
    first = saturation(bench.saturated(), predictions)
    capacity = next(figure.value for figure in first if figure.name == "static_req_s")
    print(f"static's capacity {capacity:.2f} req/s; offering {LOAD:.0%} of it", flush=True)
    figures = [*first, *latency(bench.loaded(LOAD * capacity))]
    if given.write:
        write(threads, figures)
    print(f"seconds of arrivals per run: {len(asks) / capacity / LOAD:.0f}", file=sys.stderr)
    return finish("strategies", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
