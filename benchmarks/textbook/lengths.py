"""What different lengths cost a group: padding of prompts, slots held for the longest answer."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp
from statistics import mean

from benchmarks.textbook.part import ARITHMETIC, SIMULATED, Part, Table, percent, seeded
from benchmarks.textbook.runs import ROOM, STEPS, Served, ask
from benchmarks.textbook.runs import counted as simulated
from headway.core.policies.join import Continuous, Join, LengthClasses, Static
from headway.core.policies.policies import Policies
from headway.traffic.trace import read_shipped_trace

LARGE = 16_384  # tokens of a block: none is ever full, so none is hashed for the prefix cache
FIRST = 640  # requests, to show what a part of the recorded ones would have said
DRAWN = 1_600  # lengths, where a distribution is simulated
SIZES = (4, 8, 16, 32)
GROUPS = (8, 16, 64, 256)
BOUNDS = (256, 1024, 2048, 4096)  # longest prompt of each length class but the last
BUCKETS = tuple(1 << power for power in range(6, 15))  # 64 to 16384
TRACES = {"code": "azure2023-code", "conv": "azure2023-conv"}


def groups(lengths: Sequence[int], size: int) -> list[Sequence[int]]:
    return [lengths[at : at + size] for at in range(0, len(lengths), size)]


def padded(lengths: Sequence[int], size: int) -> float:
    """Share of a group's rectangle that is padding, over all groups."""
    cells = sum(len(group) * max(group) for group in groups(lengths, size))
    return 1 - sum(lengths) / cells


def classed(lengths: Sequence[int], size: int) -> float:
    """The same, when groups are formed inside a length class."""
    cells, bounds = 0, (0, *BOUNDS, ROOM)
    for low, high in pairwise(bounds):
        mine = [length for length in lengths if low < length <= high]
        cells += sum(len(group) * max(group) for group in groups(mine, size))
    return 1 - sum(lengths) / cells


def bounded(lengths: Sequence[int], size: int) -> float:
    """The same, when each class is padded up to its bound; the last, to the longest of a group."""
    cells, bounds = 0, (0, *BOUNDS, ROOM)
    for low, high in pairwise(bounds):
        mine = [length for length in lengths if low < length <= high]
        for group in groups(mine, size):
            cells += len(group) * (high if high < ROOM else max(group))
    return 1 - sum(lengths) / cells


def bucketed(lengths: Sequence[int], size: int) -> float:
    """The same, when each group is padded up to the next bucket."""
    widths = [min(b for b in BUCKETS if b >= max(group)) for group in groups(lengths, size)]
    cells = sum(len(g) * w for g, w in zip(groups(lengths, size), widths, strict=True))
    return 1 - sum(lengths) / cells


def grouped(prompts: Sequence[int], answers: Sequence[int], join: Join) -> Served:
    """A backlog, whole prompts in one step; every step takes the same time."""
    policies = Policies(join=join, step_tokens=ROOM)
    both = enumerate(zip(prompts, answers, strict=True))
    asks = [ask(i, prompt, answer) for i, (prompt, answer) in both]
    return simulated(asks, policies, cost=STEPS, block_size=LARGE)


def counted(prompts: Sequence[int], join: Join) -> float:
    """Share of computed prompt tokens that the engine itself counts as padding."""
    served = grouped(prompts, [1] * len(prompts), join)
    return served.padding / (served.padding + served.tokens)


def padding() -> Part:
    """Prompts of two recorded services, exact; the engine's own count must agree."""
    ways: list[tuple[str, str, int, Callable[[Sequence[int], int], float], Join]] = [
        *((f"groups of {n}, as they came", f"fifo_{n}", n, padded, Static(n)) for n in SIZES),
        (
            "groups of 16, padded up to a power of two",
            "buckets_16",
            16,
            bucketed,
            Static(16, BUCKETS),
        ),
        (
            "groups of 16, short with short (5 classes)",
            "classes_16",
            16,
            classed,
            LengthClasses(16, BOUNDS, 0),
        ),
        (
            "groups of 16, the same, padded up to the class's bound",
            "bounds_16",
            16,
            bounded,
            LengthClasses(16, BOUNDS, 0, pad_to_bound=True),
        ),
    ]
    figures, rows = dict[str, float](), list[list[str]]()
    prompts = {key: [a.prompt for a in read_shipped_trace(name)] for key, name in TRACES.items()}
    for words, name, size, formula, join in ways:
        row = [words]
        for key, lengths in prompts.items():
            exact, engine = formula(lengths, size), counted(lengths, join)
            assert abs(exact - engine) < 1e-12, f"{words}: {exact} is not the engine's {engine}"
            figures[f"{key}_{name}"] = exact * 100
            row += [percent(exact), percent(engine)]
        rows.append(row)
    rows.append(["groups of 16, all sorted beforehand"])
    for key, lengths in prompts.items():
        exact = padded(sorted(lengths), 16)
        figures[f"{key}_sorted_16"] = exact * 100
        rows[-1] += [percent(exact), percent(counted(sorted(lengths), Static(16)))]
    for key, lengths in prompts.items():
        figures[f"{key}_longest"] = (1 - mean(lengths) / max(lengths)) * 100
    fixed = [[percent(figures[f"{key}_longest"] / 100), "-"] for key in prompts]
    rows.append(["every prompt padded to the longest of all", *fixed[0], *fixed[1]])
    head = ["padding of prompts", "code, exact", "code, engine", "conv, exact", "conv, engine"]
    return Part(ARITHMETIC, [Table(head, rows), held(figures)], figures)


def held(figures: dict[str, float]) -> Table:
    """What the same groups lose to answers that end early, and both together."""
    rows = []
    for key, name in TRACES.items():
        asks = read_shipped_trace(name)
        answers = [arrival.answer for arrival in asks]
        run = grouped([arrival.prompt for arrival in asks], answers, Static(16))
        exact = sum(len(g) * max(g) for g in groups(answers, 16)) - sum(answers)
        assert exact == run.held, "each finished slot is computed until the last member ends"
        share = exact / (exact + sum(answers))  # a slot has a step for each token of its answer
        both = (run.held + run.padding) / (run.held + run.padding + run.tokens)
        figures[f"{key}_held"], figures[f"{key}_waste"] = share * 100, both * 100
        rows.append([key, f"{mean(answers):.1f}", percent(share), percent(both)])
    head = ["groups of 16", "mean answer", "slots' steps held for nobody"]
    return Table([*head, "padding and held, of all computed tokens"], rows, "held")


def uniform(most: int) -> list[float]:
    """P(length <= k) for k = 1 .. most."""
    return [k / most for k in range(1, most + 1)]


def exponential(mean_length: float) -> list[float]:
    """The same, rounded to whole tokens, one at the least."""
    longest = round(40 * mean_length)
    return [1 - exp(-(k + 0.5) / mean_length) for k in range(1, longest)] + [1.0]


def expected_longest(below: Sequence[float], size: int) -> float:
    """E[longest of so many]: the sum over k of P(it is longer than k)."""
    return 1 + sum(1 - share**size for share in below)


def drawn(below: Sequence[float], name: str) -> list[int]:
    draw = seeded(name)
    return [bisect_left(below, draw.random()) + 1 for _ in range(DRAWN)]


def gain(answers: Sequence[int], size: int) -> float:
    """Steps of groups of `size` answers, each until its longest ends, over the steps of an engine
    that never has a free slot.

    A last group that is not full is left out.
    """
    full = answers[: len(answers) // size * size]
    return size * sum(max(group) for group in groups(full, size)) / sum(full)


def simulated_gain(answers: Sequence[int]) -> tuple[float, float]:
    """The gain of 16 slots over groups of 16: while work waits, and to the last answer's end."""
    static = grouped([1] * len(answers), answers, Static(16))
    joined = grouped([1] * len(answers), answers, Continuous(16))
    waited = mean(step.tokens for step in joined.steps if step.waiting)
    full = waited / (static.tokens / len(static.steps))
    assert abs(full / gain(answers, 16) - 1) < 2e-3, "the formula, but for the last group"
    return full, len(static.steps) / len(joined.steps)


def saturation() -> Part:
    """Does continuous batching win what E[longest of the group] / E[length] says? In equal steps.

    For the three distributions the formula is exact, and the simulated lengths are drawn from them.
    For the two services all recorded lengths are taken, in their order.
    """
    equal, even, memoryless = [0.0] * 99 + [1.0], uniform(200), exponential(100)
    figures, rows = dict[str, float](), list[list[str]]()

    def add(words: str, name: str, answers: Sequence[int], gains: Sequence[float]) -> None:
        figures.update({f"{name}_{n}_formula": g for n, g in zip(GROUPS, gains, strict=True)})
        both = figures[f"{name}_full"], figures[f"{name}_backlog"] = simulated_gain(answers)
        rows.append([words, *(f"{each:.2f}" for each in (*gains, *both))])

    for words, name, below in (
        ("all of 100", "equal", equal),
        ("uniform, 1 to 200", "uniform", even),
        ("exponential, mean 100", "exponential", memoryless),
    ):
        one = expected_longest(below, 1)
        add(words, name, drawn(below, name), [expected_longest(below, n) / one for n in GROUPS])
    for key, name in TRACES.items():
        answers = [arrival.answer for arrival in read_shipped_trace(name)]
        words = f"{name}, all {len(answers):,}"
        add(words, key, answers, [gain(answers, n) for n in GROUPS])
    for size in GROUPS:
        figures[f"harmonic_{size}"] = sum(1 / k for k in range(1, size + 1))
    first = {
        key: [a.answer for a in read_shipped_trace(name)[:FIRST]] for key, name in TRACES.items()
    }
    figures["conv_first_16"] = gain(first["conv"], 16)
    figures["code_first_full"], figures["code_first_backlog"] = simulated_gain(first["code"])
    head = ["lengths of the answers", *(f"groups of {n}" for n in GROUPS)]
    head += ["16 simulated, while work waits", "16 simulated, a backlog to its end"]
    return Part(SIMULATED, [Table(head, rows)], figures)
