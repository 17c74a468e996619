"""How much of the bound each engine reaches, and how ours compares with each column's best peer."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.bound import Products
from benchmarks.peers.contestants import OURS, Contestant
from benchmarks.peers.model import weight_bytes
from benchmarks.peers.workloads import NAMES, SINGLE
from benchmarks.report import Figure

AIMS = {  # least ratio of ours to the best peer
    "single_16bit": 1.0,
    "single_int8": 1.0,
    "batch32_16bit": 1.05,
    "batch32_int8": 1.1,
    "conc8_16bit": 1.05,
    "conc8_int8": None,
    "prefix32_16bit": 1.2,
    "prefix32_int8": None,
    "prefix32_warm_16bit": None,
    "prefix32_warm_int8": None,
}
SHARES = {"single_16bit": 0.9, "single_int8": 0.75, "batch32_16bit": 0.85, "batch32_int8": 0.85}
HOST = 0.03  # of the time of batch32, in which our model computes nothing
START = 4.0  # seconds to the first token, of a warm file cache
Bounds = Mapping[tuple[str, str], float]  # tokens a second, by workload and precision


def ratios(ours: Sequence[float], peers: Sequence[Sequence[float]]) -> list[float]:
    """Round by round, ours over the peer with the highest median; empty without ours or peers."""
    best = max((each for each in peers if each), key=median, default=())
    return [own / other for own, other in zip(ours, best, strict=False)]


def figures(contestants: Sequence[Contestant], bounds: Bounds) -> list[Figure]:
    """All that could be measured; one without samples is left out."""
    found = list[Figure]()
    for name, aim in AIMS.items():
        workload, precision = name.rsplit("_", 1)
        ours, *peers = _those(contestants, precision)
        mine, theirs = ours.rates(workload), [each.rates(workload) for each in peers]
        label = "prefix32" if name == "prefix32_16bit" else name
        found.append(Figure(f"{label}_vs_best", ratios(mine, theirs), None, "x", least=aim))
        if name in SHARES:
            shares = shares_of(ours, workload, bounds)
            found.append(Figure(f"{name}_of_bound", shares, None, "x", least=SHARES[name]))
    for each in contestants:
        most = START if each.engine == OURS else None
        starts = [run["start"] for run in each.runs]
        found.append(Figure(f"start_{_word(each)}", starts, most, "s"))
        hosts = [float(run["about"]["host batch32"]) for run in each.runs if _has_host(run)]
        found.append(Figure(f"host_{_word(each)}", hosts, HOST, "of the time"))
    others = [run["others"] for each in contestants for run in each.runs]
    found.append(Figure("others_at_work", [max(others)] if others else [], None, "of the cores"))
    return [figure for figure in found if figure.samples]


def shares_of(each: Contestant, workload: str, bounds: Bounds) -> list[float]:
    """Its rates over the bound: for one stream, over what its process could read in that turn."""
    if workload == SINGLE:
        weights = weight_bytes(each.precision)
        return [
            (turn["tokens"] - 1) * weights / turn["seconds"] / turn["read"] for turn in each.turns
        ]
    bound = bounds.get((workload, each.precision))
    return [rate / bound for rate in each.rates(workload)] if bound else []


def _has_host(run: Mapping[str, Any]) -> bool:
    return "host batch32" in run["about"]


def unmeasured(found: Sequence[Figure]) -> list[str]:
    """Figures with an aim that are missing."""
    names = {figure.name for figure in found}
    wanted = [f"{name}_vs_best" for name, aim in AIMS.items() if aim is not None]
    wanted = ["prefix32_vs_best" if each == "prefix32_16bit_vs_best" else each for each in wanted]
    wanted += [f"{name}_of_bound" for name in SHARES]
    return [name for name in wanted if name not in names]


def rows(contestants: Sequence[Contestant], bounds: Bounds) -> list[list[str]]:
    """The table: output tokens a second, and the share of the bound. A contestant that is not
    measured is a row that says why."""
    table = list[list[str]]()
    for each in contestants:
        cells = [each.engine, each.precision]
        if not each.runs:
            table.append([*cells, each.missing, *[""] * (len(NAMES) + 2)])
            continue
        about, last = each.runs[-1]["about"], each.runs[-1]
        what = f"{about['version']}: {about['computes']}"
        why = each.missing or last.get("ended", "")
        cells.append(f"{what}; {why}" if why else what)
        for name in ("start", "load"):
            cells.append(f"{median(run[name] for run in each.runs):.1f}")
        for workload in NAMES:
            rates, shares = each.rates(workload), shares_of(each, workload, bounds)
            share = f" ({median(shares):.2f})" if shares else ""
            cells.append(f"{median(rates):.4g}{share}" if rates else "-")
        table.append(cells)
    return table


def agreement(contestants: Sequence[Contestant]) -> list[str]:
    """In how many tokens each answer to `single` begins as ours in 16 bits does."""
    answers: dict[str, list[int]] = {
        each.name: each.runs[0]["answer"]
        for each in contestants
        if each.runs and "answer" in each.runs[0]
    }
    ours = answers.pop(f"{OURS} 16bit", [])
    lines = []
    for name, answer in answers.items() if ours else ():
        same = next((i for i, (a, b) in enumerate(zip(ours, answer, strict=True)) if a != b), None)
        lines.append(f"{name} {len(ours) if same is None else same} of {len(ours)}")
    return lines


def print_products(found: Sequence[Products], missing: Mapping[str, str]) -> None:
    """Milliseconds of all products of a step, by library and number of rows."""
    sizes = sorted({rows for each in found for rows in each.layers})
    table = Table(title="all products of a step, ms, by rows", title_justify="left")
    table.add_column("library")
    for size in sizes:
        table.add_column(str(size), justify="right")
    for each in found:
        times = [f"{1e3 * each.whole(rows):.4g}" if rows in each.head else "" for rows in sizes]
        table.add_row(each.library, *times)
    Console(width=120).print(table)
    for name, why in missing.items():
        print(f"not measured: {name}: {why}")


def print_rows(contestants: Sequence[Contestant], bounds: Bounds) -> None:
    table = Table(title="output tokens a second (share of the bound)", title_justify="left")
    for column in ("engine", "weights", "version: computes in", "start s", "load s", *NAMES):
        table.add_column(column)
    for row in rows(contestants, bounds):
        table.add_row(*row)
    Console(width=160).print(table)
    lines = agreement(contestants)
    if lines:
        print("the answer to single begins as headway's in 16 bits: " + ", ".join(lines))


def _those(contestants: Sequence[Contestant], precision: str) -> list[Contestant]:
    """Ours first (empty if missing), then the peers."""
    same = [each for each in contestants if each.precision == precision]
    ours = [each for each in same if each.engine == OURS] or [Contestant(OURS, precision)]
    return [*ours, *(each for each in same if each.engine != OURS)]


def _word(each: Contestant) -> str:
    return each.name.replace("-", "_").replace(" ", "_")
