"""Does `headway bench` agree with guidellm, on the same server under the same schedule?

The server is `headway serve` with the embedded model and one lane without limits. A closed loop of
twice as many callers as slots says how many requests a second it can answer. A Poisson trace at
LOAD of that is then replayed by both tools in turn, PAIRS times, with the same token counts.
Prompts differ: each tool makes its own, of exactly those lengths. Both ask for the likeliest tokens
and for the usage at the end. A tool that takes more of the
machine slows the server that it measures. So `server_itl` and `server_ttft` are what the server
itself has seen meanwhile, `itl_over_server` is the tool's mean gap over it, and
`ttft_beyond_server_ms` how much longer the tool's mean wait for the first text is.
`first_text_from_schedule_ms` has the tool's own lag in it: the mean from the scheduled arrival.

With `--apart` the server has one core to itself, and the tool another one: no tool can take the
server's. Its capacity is then measured in the same way.

With `--half-b` the server's model has the shape of Qwen2.5-0.5B, in bfloat16, and all is measured
PATIENCE times as long. A millisecond is less of its first token than of the embedded model's.

With `--scheduled` the server is that of benchmarks.client_accuracy, which computes nothing, so that
no tool can slow it. It is asked for RATE requests a second.

Both leave a row for each request, and the figures are computed from these in the same way: requests
and answered tokens a second from the first scheduled arrival to the last end; the median time from
sending a request to its first text; the median of each request's mean gap between tokens. guidellm
counts its latencies from the writing of the request's head, so the client's lag is taken out of
headway's as well; `lag` shows both. headway's still have the opening of a connection in them, where
none was free. A ratio is guidellm's figure over headway's, pair by pair.

guidellm needs an environment of its own (pip install guidellm==0.8.1), whose command is named:

    python -m benchmarks.bench_vs_guidellm /path/to/guidellm [--apart] [--half-b]
    python -m benchmarks.bench_vs_guidellm /path/to/guidellm --scheduled
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean, median
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import urlopen

from benchmarks.client_accuracy.__main__ import server as scheduled_server
from benchmarks.report import Figure, finish, parser
from benchmarks.server_overhead.served import serving
from benchmarks.server_overhead.stage import TINY, random_checkpoint
from headway.report import report_json
from headway.runs.outcome import Outcome

SEED, LOAD, PAIRS = 0, 0.6, 2
SECONDS, SLOTS, CONTEXT = 40.0, 16, 1_024
PATIENCE = 4.0  # for a larger model: so many times as long
RATE = 12.0  # requests per second, of the scheduled server
PROMPTS, ANSWERS = (32, 256), (16, 96)  # tokens: from, to
LIMITS = {"requests_per_s": 0.05, "tokens_per_s": 0.05, "ttft_p50": 0.05, "itl_p50": 0.05}
GAPS, FIRSTS = "vllm:inter_token_latency_seconds", "vllm:time_to_first_token_seconds"
READ = "vllm:prompt_tokens_total"


@dataclass(frozen=True, slots=True)
class Row:
    """One request; times in seconds from the first scheduled arrival."""

    sent: float
    lag: float  # of the client, when it sent the request
    ttft: float  # from sending
    gap: float  # mean, between tokens; 0: it has only one
    ended: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What one tool has seen in one turn."""

    rows: Sequence[Row]
    server_itl: float = 0.0  # seconds, the mean by the server's own metrics; 0: it has none
    server_ttft: float = 0.0  # the same of first tokens, from receipt
    server_prompt: float = 0.0  # tokens of a prompt, as the server counts them, the mean

    @property
    def ttft_beyond_server(self) -> float:
        """By how much its mean is longer than the server's own: the way there and back."""
        return sum(row.ttft for row in self.rows) / len(self.rows) - self.server_ttft

    @property
    def itl_over_server(self) -> float:
        """Its mean gap over the server's own."""
        spoken = [row for row in self.rows if row.gap]
        gaps = sum(row.gap * (row.tokens - 1) for row in spoken)
        return gaps / sum(row.tokens - 1 for row in spoken) / self.server_itl

    @property
    def figures(self) -> dict[str, float]:
        span = max(row.ended for row in self.rows) - min(row.sent - row.lag for row in self.rows)
        return {
            "requests_per_s": len(self.rows) / span,
            "tokens_per_s": sum(row.tokens for row in self.rows) / span,
            "ttft_p50": median(row.ttft for row in self.rows),
            "itl_p50": median(row.gap for row in self.rows if row.gap),
        }

    @property
    def lag(self) -> float:
        return median(row.lag for row in self.rows)

    @property
    def from_schedule(self) -> float:
        """Mean seconds from the scheduled arrival to the first text. Whether a tool waits before
        it sends or after, it is in this one."""
        return mean(row.lag + row.ttft for row in self.rows)


def bench(url: str, folder: Path, *options: str) -> Outcome:
    """The rows of `headway bench`."""
    command = [sys.executable, "-m", "headway", "bench", url, "--out", str(folder)]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
    (outcome,) = report_json.read(folder / "report.json").outcomes.values()
    return outcome


def capacity(url: str, folder: Path, patience: float) -> float:
    """Requests per second that the server answers when it is always asked for more."""
    begin, end = 4 * patience, 14 * patience
    lengths = ["--prompt", "{}-{}".format(*PROMPTS), "--answer", "{}-{}".format(*ANSWERS)]
    more = ["--poisson", "100", "--seconds", str(end + 1), "--callers", str(2 * SLOTS)]
    outcome = bench(url, folder, *lengths, *more)
    ends = sorted(row.finished for row in outcome.requests if row.is_whole)
    inside = [each for each in ends if begin <= each / 1e9 <= end]
    return len(inside) / (end - begin)


def make_trace(rate: float, seconds: float, folder: Path) -> tuple[Path, Path]:
    """A Poisson trace in headway's form and in guidellm's."""
    draw, at, lines = Random(SEED), 0.0, list[str]()
    while (at := at + draw.expovariate(rate)) < seconds:
        lines.append(f"{at:.6f},{draw.randint(*PROMPTS)},{draw.randint(*ANSWERS)}\n")
    ours, theirs = folder / "trace.csv", folder / "guidellm.csv"
    ours.write_text("".join(["arrival_s,input_tokens,output_tokens\n", *lines]))
    theirs.write_text("".join(["timestamp,input_length,output_length\n", *lines]))
    return ours, theirs


def ask_headway(url: str, trace: Path, seconds: float, folder: Path) -> Seen:
    options = ["--trace", str(trace), "--seconds", str(seconds), "--warm-up", "0"]
    outcome = bench(url, folder, *options)
    return Seen(
        [
            Row(
                sent=(row.arrived + client.lag) / 1e9,
                lag=client.lag / 1e9,
                ttft=(row.ttft - client.lag) / 1e9,
                gap=row.tpot / 1e9,
                ended=row.finished / 1e9,
                tokens=row.generated,
            )
            for row, client in zip(outcome.requests, outcome.client, strict=True)
            if row.is_whole
        ]
    )


def ask_guidellm(command: str, url: str, model: str, trace: Path, folder: Path) -> Seen:
    said = folder / "guidellm.json"
    source = f"source.kind=csv_file,source.path={trace}"
    backend = {
        "kind": "openai_http",
        "target": url,
        "request_format": "/v1/completions",
        "model": model,
        # What headway bench asks for. By itself guidellm asks for a sampled answer, and for the
        # usage so far with each token: other work for the server.
        "extras": {"body": {"temperature": 0, "stream_options": {"continuous_usage_stats": False}}},
    }
    options = {
        "--backend": json.dumps(backend),
        "--profile": "kind=replay,schedule_turn=timestamp",
        "--data": f"kind=trace_synthetic,{source}",
        "--tokenizer": f"kind=huggingface_auto,model={TINY}",
        "--output": f"kind=json,path={said}",
    }
    words = [word for pair in options.items() for word in pair]
    subprocess.run(
        [command, "run", *words, "--disable-console"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
        | {"HF_HUB_OFFLINE": "1"},
    )
    rows = json.loads(said.read_text())["benchmarks"][0]["requests"]["successful"]
    zero = min(each["request_start_time"] - each["request_dispatch_delay"] for each in rows)
    return Seen(
        [
            Row(
                sent=each["request_start_time"] - zero,
                lag=each["request_dispatch_delay"],
                ttft=each["time_to_first_token_ms"] / 1e3,
                gap=(each["inter_token_latency_ms"] or 0.0) / 1e3,
                ended=each["request_end_time"] - zero,
                tokens=each["output_tokens"],
            )
            for each in rows
        ]
    )


class ServersOwn:
    """What the server itself has seen, by its metrics."""

    def __init__(self, url: str) -> None:
        self.url = url

    def read(self) -> dict[str, float]:
        """The sums and counts of its first tokens and gaps; empty: it has no metrics."""
        try:
            with urlopen(f"{self.url}/metrics") as answer:
                lines = answer.read().decode().splitlines()
        except HTTPError:
            return defaultdict(float)
        found = defaultdict[str, float](float)
        for line in lines:
            name, _, value = line.rpartition(" ")
            if name.startswith((GAPS, FIRSTS, READ)) and "_bucket" not in name:
                found[name.partition("{")[0]] += float(value)
        return found

    def during(self, ask: Callable[[], Seen]) -> Seen:
        """What a tool sees, with the server's own means meanwhile."""
        before, seen = self.read(), ask()
        after = self.read()

        def average(name: str) -> float:
            count = after[f"{name}_count"] - before[f"{name}_count"]
            return (after[f"{name}_sum"] - before[f"{name}_sum"]) / count if count else 0.0

        prompt = (after[READ] - before[READ]) / len(seen.rows)
        itl, ttft = average(GAPS), average(FIRSTS)
        return replace(seen, server_itl=itl, server_ttft=ttft, server_prompt=prompt)


def figures(turns: Sequence[tuple[Seen, Seen]]) -> list[Figure]:
    made = []
    for name, limit in LIMITS.items():
        ratios = [theirs.figures[name] / ours.figures[name] for ours, theirs in turns]
        made.append(Figure(f"{name}_ratio", ratios, most=1 + limit, least=1 - limit))
        for whose, place in (("headway", 0), ("guidellm", 1)):
            made.append(Figure(f"{name}_{whose}", [turn[place].figures[name] for turn in turns]))
    for whose, place in (("headway", 0), ("guidellm", 1)):
        if turns[0][place].server_itl:
            seen = [turn[place] for turn in turns]
            made += [
                Figure(f"server_itl_{whose}", [each.server_itl for each in seen], unit="s"),
                Figure(
                    f"itl_over_server_{whose}",
                    [each.itl_over_server for each in seen],
                    most=1.05,
                    least=0.95,
                ),
                Figure(f"server_ttft_{whose}", [each.server_ttft for each in seen], unit="s"),
                Figure(f"server_prompt_{whose}", [each.server_prompt for each in seen]),
                Figure(
                    f"ttft_beyond_server_ms_{whose}",
                    [1e3 * each.ttft_beyond_server for each in seen],
                    unit="ms",
                ),
            ]
        lags = [1e3 * turn[place].lag for turn in turns]
        made.append(Figure(f"lag_p50_ms_{whose}", lags, unit="ms"))
        waits = [1e3 * turn[place].from_schedule for turn in turns]
        made.append(Figure(f"first_text_from_schedule_ms_{whose}", waits, unit="ms"))
        made.append(Figure(f"rows_{whose}", [len(turn[place].rows) for turn in turns]))
    return made


def replay(
    command: str, url: str, model: str, rate: float, folder: Path, patience: float = 1.0
) -> int:
    """Both tools in turn on a trace at this rate; the exit status."""
    seconds = SECONDS * patience
    trace, their_trace = make_trace(rate, seconds, folder)
    own, turns = ServersOwn(url), list[tuple[Seen, Seen]]()
    for turn in range(PAIRS):
        ours = own.during(partial(ask_headway, url, trace, seconds, folder / f"headway-{turn}"))
        theirs = own.during(partial(ask_guidellm, command, url, model, their_trace, folder))
        turns.append((ours, theirs))
        print({name: round(value, 4) for name, value in ours.figures.items()}, flush=True)
        print({name: round(value, 4) for name, value in theirs.figures.items()}, flush=True)
    return finish("bench_vs_guidellm", __doc__ or "", SEED, figures(turns))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("guidellm", help="its command")
    for name in ("--apart", "--half-b", "--scheduled"):
        options.add_argument(name, action="store_true")
    given = options.parse_args()
    command, apart = given.guidellm, given.apart
    first, *others = sorted(os.sched_getaffinity(0))
    if apart and not others:
        raise SystemExit("--apart needs two cores")
    with TemporaryDirectory() as made:
        folder = Path(made)
        if given.scheduled:
            with scheduled_server() as url:
                return replay(command, url, "scheduled", RATE, folder)
        config = {"engine": {"slots": SLOTS, "context": CONTEXT}, "lanes": {"all": {}}}
        model, patience = "headway-tiny", 1.0
        if given.half_b:
            model, patience = "half-b", PATIENCE
            (folder / model).mkdir()
            path = random_checkpoint(folder / model)
            config["models"] = [{"path": str(path), "name": model, "dtype": "bfloat16"}]
        if apart:
            os.sched_setaffinity(0, {first})  # what is started next inherits it
        with serving(config, folder) as server:
            if apart:
                os.sched_setaffinity(0, others)
            url = f"http://{server.host}:{server.port}"
            most = capacity(url, folder / "capacity", patience)
            print(f"capacity {most:.2f} requests / s; replaying {LOAD * most:.2f}", flush=True)
            return replay(command, url, model, LOAD * most, folder, patience)


if __name__ == "__main__":
    sys.exit(main())
