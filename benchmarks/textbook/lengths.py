"""What different lengths cost a group: padding of prompts, slots held for the longest answer."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mean

from benchmarks.textbook.part import ARITHMETIC, SIMULATED, Part, Table, percent, seeded
from benchmarks.textbook.runs import ROOM, STEPS, Served, ask, serve
from headway.core.join import Continuous, Join, LengthClasses, Static
from headway.core.plan import Policies
from headway.tools.trace import shipped

COUNT = 640  # of each trace's first requests
SIZES = (4, 8, 16, 32)
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


def bucketed(lengths: Sequence[int], size: int) -> float:
    """The same, when each group is padded up to the next bucket."""
    widths = [min(b for b in BUCKETS if b >= max(group)) for group in groups(lengths, size)]
    cells = sum(len(g) * w for g, w in zip(groups(lengths, size), widths, strict=True))
    return 1 - sum(lengths) / cells


def grouped(prompts: Sequence[int], answers: Sequence[int], join: Join) -> Served:
    """A backlog, whole prompts in one step; every step takes the same time."""
    policies = Policies(join=join, step_tokens=ROOM)
    both = enumerate(zip(prompts, answers, strict=True))
    return serve([ask(i, prompt, answer) for i, (prompt, answer) in both], policies, cost=STEPS)


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
    ]
    figures, rows = dict[str, float](), list[list[str]]()
    prompts = {key: [a.prompt for a in shipped(name)[:COUNT]] for key, name in TRACES.items()}
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
        asks = shipped(name)[:COUNT]
        answers = [arrival.answer for arrival in asks]
        run = grouped([arrival.prompt for arrival in asks], answers, Static(16))
        exact = sum(len(g) * max(g) for g in groups(answers, 16)) - sum(answers)
        assert exact == run.held, "each finished slot is computed until the last member ends"
        decode = exact / (exact + sum(answers) - len(answers))
        both = (run.held + run.padding) / (run.held + run.padding + run.tokens)
        figures[f"{key}_held"], figures[f"{key}_waste"] = decode * 100, both * 100
        rows.append([key, f"{mean(answers):.1f}", percent(decode), percent(both)])
    head = ["groups of 16", "mean answer", "decode rows held for nobody", "of all computed tokens"]
    return Table(head, rows, "held")


def drawn(name: str, draw: Callable[[], float], count: int) -> list[int]:
    return [max(1, round(draw())) for _ in range(count)]


def saturation() -> Part:
    """Does continuous win what E[longest of the group] / E[length] says? In equal steps."""
    random, count = seeded("lengths"), 640
    lengths = {
        "all of 100": ("equal", [100] * count),
        "uniform, 1 to 200": ("uniform", drawn("u", lambda: random.uniform(1, 200), count)),
        "exponential, mean 100": (
            "exponential",
            drawn("e", lambda: random.expovariate(0.01), count),
        ),
        "azure2023-code, recorded": (
            "code",
            [a.answer for a in shipped(TRACES["code"])[:count]],
        ),
        "azure2023-conv, recorded": (
            "conv",
            [a.answer for a in shipped(TRACES["conv"])[:count]],
        ),
    }
    figures, rows = dict[str, float](), list[list[str]]()
    for words, (name, answers) in lengths.items():
        row = [words]
        for size in (8, 16, 64):
            gain = mean(max(group) for group in groups(answers, size)) / mean(answers)
            figures[f"{name}_{size}_formula"] = gain
            row.append(f"{gain:.2f}")
        static = grouped([1] * count, answers, Static(16))
        joined = grouped([1] * count, answers, Continuous(16))
        full = [step.tokens for step in joined.steps if step.waiting]
        figures[f"{name}_full"] = mean(full) / (static.tokens / len(static.steps))
        figures[f"{name}_backlog"] = len(static.steps) / len(joined.steps)
        row += [f"{figures[f'{name}_full']:.2f}", f"{figures[f'{name}_backlog']:.2f}"]
        rows.append(row)
    for size in (8, 16, 64):
        figures[f"harmonic_{size}"] = sum(1 / k for k in range(1, size + 1))
    head = ["lengths of the answers", "groups of 8", "of 16", "of 64"]
    head += ["16 simulated, while work waits", "16 simulated, a backlog to its end"]
    return Part(SIMULATED, [Table(head, rows)], figures)
