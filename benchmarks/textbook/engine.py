"""The parts that need the real engine on this machine: how a decode step grows, and the stall."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import linear_regression, median

from benchmarks.textbook.part import MEASURED, Part, Table, ms
from benchmarks.textbook.runs import ask
from benchmarks.textbook.stall import policies, words, workload
from headway.core.lane import Lane
from headway.core.ledger import RequestRow
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.runs.live_testbed import load_testbed
from headway.runs.outcome import Outcome
from headway.runs.run import Run
from headway.runs.testbed import Testbed

SIZES, PROMPT, ANSWER, ROUNDS = (1, 2, 4, 8, 16, 32, 64), 128, 40, 7
RUNNING, LONG, CHUNKS = 8, 1536, (64, 128, 256, 512)
UNDER_WAY, FEWER = 300, 100  # tokens of each answer that the long prompt meets; to see it run
TRIES = 10
GAP, TTFT = "_gap", "_ttft"
THREADS = 1  # OpenMP waits at its barriers for a core that a neighbour has: 0.2 s a step
Samples = Mapping[str, Sequence[float]]  # of the rounds, by name


def said(testbed: Testbed, requests: list[Request]) -> list[Request]:
    """The same requests with words of the text; their prompts differ from the first token on."""
    text = testbed.text
    return [
        replace(
            request,
            prompt=tuple(text[i * 7_919 % 50_000 :][: len(request.prompt)]),
        )
        for i, request in enumerate(requests)
    ]


def rigged() -> Testbed:
    import torch  # imported here: the other parts do not need it

    torch.set_num_threads(THREADS)
    return load_testbed(None)


def served(testbed: Testbed, policies: Policies, requests: list[Request]) -> Outcome:
    return Run(testbed, policies, [Lane()], said(testbed, requests)).serve()


def decode(testbed: Testbed, size: int) -> float:
    """Median nanoseconds of the steps in which `size` sequences decode and nothing else happens."""
    way = Policies(Continuous(size), step_tokens=size * (PROMPT + 1))
    outcome = served(testbed, way, [ask(i, PROMPT, ANSWER) for i in range(size)])
    return median([row.nanoseconds for row in outcome.steps if row.rows == row.tokens == size])


def curve_measured(quick: bool) -> Samples:
    """Nanoseconds of a step, by the number of decoding sequences.

    Each round measures all sizes, so that a slow moment falls on all alike.
    """
    testbed = rigged()
    sizes, rounds = (SIZES[:4], 1) if quick else (SIZES, ROUNDS)
    decode(testbed, sizes[-1])  # first steps are slow
    times: dict[str, list[float]] = {str(size): [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            times[str(size)].append(decode(testbed, size))
    return times


def curve(measured: Samples) -> Part:
    """The knee is where a step's fixed cost equals what its sequences add: half of the rate that
    an endless batch would reach."""
    times = {int(size): rounds for size, rounds in measured.items()}
    sizes = sorted(times)
    figures, samples, rows = dict[str, float](), dict[str, list[float]](), list[list[str]]()
    rate = {size: size / median(times[size]) * 1e9 for size in sizes}
    for size in sizes:
        ratio = [b / a for a, b in zip(times[sizes[0]], times[size], strict=True)]
        samples |= {f"step_{size}_ms": [t / 1e6 for t in times[size]], f"step_{size}_ratio": ratio}
        figures |= {f"step_{size}_ms": median(times[size]) / 1e6, f"rate_{size}": rate[size]}
        figures[f"step_{size}_ratio"] = median(ratio)
        spread = f"{min(ratio):.2f} to {max(ratio):.2f}"
        gain = figures[f"gain_{size}"] = rate[size] / rate[sizes[0]]
        cells = [f"{median(times[size]) / 1e6:.2f}", f"{median(ratio):.2f}", spread]
        rows.append([str(size), *cells, f"{rate[size]:,.0f}", f"{gain:.2f}"])
    each, fixed = linear_regression(sizes, [median(times[size]) for size in sizes])
    figures |= {"fixed_ms": fixed / 1e6, "each_ms": each / 1e6, "knee": fixed / each}
    figures["each_share"] = each / median(times[sizes[0]]) * 100
    head = ["sequences that decode", "step, ms", "x one alone", "least to most", "tokens a second"]
    return Part(MEASURED, [Table([*head, "x one alone"], rows)], figures, samples)


def full_steps(outcome: Outcome) -> list[int]:
    """End times of the steps in which each running answer got a token."""
    return [row.began + row.nanoseconds for row in outcome.steps if row.decodes >= RUNNING]


def gap(outcome: Outcome) -> int:
    """Longest time between tokens of the running answers after the long prompt has arrived."""
    ends, arrives = full_steps(outcome), newcomer_of(outcome).arrived
    return max(b - a for a, b in pairwise(ends) if b > arrives)


def newcomer_of(outcome: Outcome) -> RequestRow:
    return next(row for row in outcome.requests if row.prompt == LONG)


def stalled(testbed: Testbed, way: Policies, answer: int) -> Outcome:
    """A run in which the long prompt arrives and gets its first token while all other answers run.

    answer: tokens of each other answer.

    The prompt arrives when two fifths of these tokens have come, however fast this machine is. If a
    neighbour slows one run more than the other, that may be missed: then both are repeated.
    """
    early = workload(RUNNING, PROMPT, LONG, answer, 0)[:RUNNING]
    for _ in range(TRIES):
        ends = full_steps(served(testbed, way, early))
        arrives = ends[0] + (ends[-1] - ends[0]) * 2 // 5
        outcome = served(testbed, way, workload(RUNNING, PROMPT, LONG, answer, arrives))
        ends, newcomer = full_steps(outcome), newcomer_of(outcome)
        if ends and ends[0] < newcomer.arrived and newcomer.first_token < ends[-1]:
            return outcome
    raise RuntimeError(f"in {TRIES} runs the long prompt never came while the others ran")


def stall_timed(quick: bool) -> Samples:
    """Nanoseconds of the largest gap and until the long prompt's first token, by way.

    Pairs in one run: each way once a round.
    """
    testbed = rigged()
    rounds, answer = (1, FEWER) if quick else (ROUNDS, UNDER_WAY)
    ways = policies(CHUNKS[-1:] if quick else CHUNKS, RUNNING)
    found: dict[str, list[float]] = {f"{name}{of}": [] for name in ways for of in (GAP, TTFT)}
    first = workload(RUNNING, PROMPT, LONG, answer, 0)
    served(testbed, ways["mixed_whole"], first)  # first steps are slow
    for _ in range(rounds):
        for name, way in ways.items():
            outcome = stalled(testbed, way, answer)
            found[name + GAP].append(gap(outcome))
            found[name + TTFT] += [row.ttft for row in outcome.requests if row.prompt == LONG]
    return found


def stall_measured(measured: Samples) -> Part:
    """Ratios are against whole prompts of the same round."""
    gaps = {name.removesuffix(GAP): each for name, each in measured.items() if name.endswith(GAP)}
    firsts = {name: measured[name + TTFT] for name in gaps}
    figures, samples, rows = dict[str, float](), dict[str, list[float]](), list[list[str]]()
    for name in gaps:
        less = [a / b for a, b in zip(gaps["mixed_whole"], gaps[name], strict=True)]
        more = [b / a for a, b in zip(firsts["mixed_whole"], firsts[name], strict=True)]
        samples |= {f"{name}_gap_ratio": less, f"{name}_ttft_ratio": more}
        samples |= {f"{name}_gap_ms": [value / 1e6 for value in gaps[name]]}
        samples |= {f"{name}_ttft_ms": [value / 1e6 for value in firsts[name]]}
        cells = [
            ms(median(gaps[name])),
            f"{median(less):.2f}",
            f"{min(less):.2f} to {max(less):.2f}",
        ]
        cells += [ms(median(firsts[name])), f"{median(more):.2f}"]
        rows.append([words(name), *cells])
    figures |= {name: median(values) for name, values in samples.items()}
    head = ["8 answers under way, 1,536 tokens arrive", "largest gap, ms", "times shorter"]
    head += ["least to most", "TTFT of the long prompt, ms", "x whole"]
    return Part(MEASURED, [Table(head, rows)], figures, samples)
