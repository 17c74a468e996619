"""Does `headway bench` measure what a server does, and how many streams can one client read?

A server in a process of its own computes nothing and answers by a schedule that follows from each
request's lengths, so the true latency of every request is known. `headway bench`'s client asks it
for SECONDS, first with 200 streams at once and then with 1,000, as a Poisson process. An error is
the measured percentile minus the true one, over the requests after the first tenth, counted from
the scheduled arrivals. It includes how late server and client are woken: each up to a millisecond,
because asyncio waits in whole milliseconds.

`cores` is the share of one core that the client used, and `lag` how late it sent. Both processes
run on the same machine. Any other work on it makes the errors larger.

    python -m benchmarks.client_accuracy
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from statistics import median

from benchmarks.client_accuracy.scheduled_server import true_delays
from benchmarks.report import Figure, finish, parser
from headway.core.lane import Lane
from headway.core.request import Request
from headway.figures.percentile import percentile
from headway.runs.outcome import Outcome
from headway.runs.remote.client_run import ClientRun, Manner
from headway.runs.remote.first_contact import Contact
from headway.runs.remote.offer import Offer
from headway.runs.remote.target import read_target

SEED, SECONDS, DRAIN = 0, 30.0, 20.0
PROMPTS, ANSWERS = (32, 512), (40, 120)  # tokens: from, to
STREAMS = (200, 1_000)
PERCENTS = (50, 95, 99)
MOST = {50: 2.0, 95: 2.0, 99: 5.0}  # ms


@contextmanager
def server() -> Iterator[str]:
    """The URL of a scheduled server in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.client_accuracy.scheduled_server", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        found = re.match(r"\d+", process.stdout.readline())
        assert found
        yield f"http://127.0.0.1:{found[0]}"
    finally:
        process.terminate()
        process.communicate()


def requests(streams: int) -> list[Request]:
    """A Poisson process at the rate that keeps so many streams open."""
    draw, at, made = Random(SEED), 0.0, list[Request]()
    shapes = [(draw.randint(*PROMPTS), draw.randint(*ANSWERS)) for _ in range(10_000)]
    rate = streams / (sum(true_delays(answer)[-1] for _, answer in shapes) / len(shapes))
    while (at := at + draw.expovariate(rate)) < SECONDS:
        prompt, answer = draw.choice(shapes)
        ids = tuple(draw.randrange(9_000) for _ in range(prompt))
        made.append(Request(f"r-{len(made)}", ids, answer, round(at * 1e9)))
    return made


def measured(url: str, streams: int) -> tuple[Outcome, ClientRun]:
    wording = asyncio.run(Contact(read_target(url), {}).wording("", chat=False, text=False))
    offers = [Offer(each) for each in requests(streams)]
    run = ClientRun(wording, offers, [Lane()], Manner(round(DRAIN * 1e9), round(SECONDS * 1e9)))
    return run.serve(), run


def errors(outcome: Outcome) -> dict[str, dict[int, float]]:
    """Milliseconds by metric and percent: the measured percentile minus the true one."""
    pairs = [
        pair
        for pair in zip(outcome.requests, outcome.client, strict=True)
        if pair[0].arrived >= SECONDS * 1e8
    ]
    assert all(row.is_whole and row.generated == client.asked for row, client in pairs)
    true = [[round(1e9 * at) for at in true_delays(row.generated)] for row, _ in pairs]
    both: dict[str, tuple[list[int], list[int]]] = {
        "ttft": ([row.ttft for row, _ in pairs], [each[0] for each in true]),
        "tpot": ([row.tpot for row, _ in pairs], [_gap(each) for each in true]),
        "itl": (
            [gap for _, client in pairs for gap in client.gaps],
            [_gap(each) for each in true for _ in each[1:]],
        ),
        "e2e": ([row.e2e for row, _ in pairs], [each[-1] for each in true]),
    }
    return {
        metric: {percent: _apart(seen, known, percent) for percent in PERCENTS}
        for metric, (seen, known) in both.items()
    }


def _gap(times: Sequence[int]) -> int:
    return (times[-1] - times[0]) // (len(times) - 1)


def _apart(seen: list[int], known: list[int], percent: int) -> float:
    measured, true = percentile(seen, percent), percentile(known, percent)
    assert measured is not None and true is not None
    return (measured - true) / 1e6


def figures(streams: int, outcome: Outcome, run: ClientRun) -> list[Figure]:
    found, many = errors(outcome), streams == STREAMS[0]
    lags = [each.lag / 1e6 for each in outcome.client]
    pieces = sum(len(each.gaps) + 1 for each in outcome.client)
    made = [
        Figure(
            f"{metric}_p{percent}_error_ms_{streams}",
            [abs(error)],
            most=MOST[percent] if many else None,
            unit="ms",
        )
        for metric, by_percent in found.items()
        for percent, error in by_percent.items()
    ]
    return [
        *made,
        Figure(f"lag_p50_ms_{streams}", [median(lags)], most=10.0, unit="ms"),
        Figure(f"cores_{streams}", [run.load.cores], most=0.9, unit="of a core"),
        Figure(f"pieces_per_s_{streams}", [pieces / (outcome.nanoseconds / 1e9)], unit="1/s"),
    ]


def main() -> int:
    parser(__doc__).parse_args()
    made = list[Figure]()
    with server() as url:
        for streams in STREAMS:
            outcome, run = measured(url, streams)
            print(f"{streams} streams: {len(outcome.requests):,} requests", flush=True)
            made += figures(streams, outcome, run)
    return finish("client_accuracy", __doc__ or "", SEED, made)


if __name__ == "__main__":
    sys.exit(main())
