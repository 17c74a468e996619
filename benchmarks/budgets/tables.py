"""What the ablation says: tables for people and for the document, figures for machines."""

from collections.abc import Mapping, Sequence
from math import nan

from benchmarks.budgets.ablation import CAPACITY_OF, Ablation
from benchmarks.budgets.kept import Pair, least_ratio
from benchmarks.budgets.variants import (
    ALONE,
    FIRST_COME,
    IMPATIENT,
    LADDER,
    MORE,
    ORDERS,
    SLOW,
    TIMEOUT,
    WITHOUT,
)
from benchmarks.report import Figure
from benchmarks.textbook.part import SIMULATED, Part, Table

JUDGED_MIX, JUDGED_LOAD, OURS = "bursty", 1.5, "budgets"
BASELINES = (FIRST_COME, TIMEOUT)
LEAST_RATIO = {FIRST_COME: 2.5, TIMEOUT: 1.05}  # at the judged load of the judged mix
LEAST_POINTS, LEAST_CAPACITY = -1.0, 1.4
LEAST_WINDOWS = 5  # with fewer a lower bound is not judged: of one window it is the value itself
ALIKE = 0.01  # a mix of which all variants keep nearly everything, within this, tells none apart
NONE = "-"  # not run


def part_of(found: Ablation) -> Part:
    """A table for each mix, one of the parts, and one of the lanes."""
    tables, figures = list[Table](), dict[str, float]()
    for mix in found.windows:
        rows = [_row(found, mix, title) for title in (*BASELINES, *LADDER)]
        head = ["% of requests inside budget", *[f"load {load:g}" for load in found.loads]]
        tables.append(Table(head, rows, mix))
    tables.append(_details(found))
    if JUDGED_MIX in found.windows:
        tables.append(_lanes(found))
    for mix in found.windows:
        for load in found.loads:
            for title in (*BASELINES, *LADDER, *ALONE, *WITHOUT, *MORE, *ORDERS, *SLOW):
                if name := found.name(mix, load, title):
                    figures[_key(mix, title, load)] = 100 * found.kept.share(mix, load, name)
    return Part(SIMULATED, tables, figures)


def _key(mix: str, title: str, load: float) -> str:
    words = title.replace("+ ", "with ").replace(",", "").replace(" ", "_")
    return f"{mix}_{words}_{load:g}".replace(".", "_")


def _row(found: Ablation, mix: str, title: str) -> list[str]:
    """One variant's row. Where several were tried, the best is named."""
    cells = list[str]()
    for load in found.loads:
        name = found.name(mix, load, title)
        searched = name.removeprefix(title).replace(" chunk ", ", ").strip(" ,")
        said = f"{100 * found.kept.share(mix, load, name):.1f}" if name else NONE
        cells.append(f"{said} ({searched})" if name and searched else said)
    return [title, *cells]


def _details(found: Ablation) -> Table:
    """Each mix at one load: how many points more or less than budgets has."""
    load, rows = found.detailed, list[list[str]]()
    titles = (LADDER[0], IMPATIENT, *LADDER[1:-1], *ALONE, *WITHOUT, *MORE, *ORDERS, *SLOW)
    mixes = [mix for mix in found.windows if not _is_alike(found, mix, load, titles)]
    for title in titles:
        cells = list[str]()
        for mix in mixes:
            found_pair = pair(found, mix, load, title)
            if found_pair is None:
                cells += [NONE, NONE]
                continue
            share = 100 * found.kept.share(mix, load, found.name(mix, load, title))
            low, points, high = (
                found_pair.least_points,
                found_pair.points,
                -found_pair.swapped.least_points,
            )
            shown = [f"{round(each, 1) + 0:+.1f}" for each in (points, low, high)]  # no -0.0
            cells += [f"{share:.1f}", f"{shown[0]} ({shown[1]} to {shown[2]})"]
        rows.append([title, *cells])
    head = [f"% inside budget, load {load:g}"]
    for mix in mixes:
        head += [mix, "budgets has more"]
    return Table(head, rows, "parts")


def _is_alike(found: Ablation, mix: str, load: float, titles: Sequence[str]) -> bool:
    """Whether each of these variants that was run keeps nearly everything of the mix."""
    names = [name for title in titles if (name := found.name(mix, load, title))]
    return all(found.kept.share(mix, load, name) >= 1 - ALIKE for name in names)


def pair(found: Ablation, mix: str, load: float, title: str) -> Pair | None:
    """Budgets beside this variant; None where one of them was not run on all windows."""
    both = OURS, found.name(mix, load, title)
    if not all(found.kept.has_all(mix, load, each, found.windows[mix]) for each in both):
        return None
    ours, theirs = (found.kept.windows(mix, load, each) for each in both)
    return Pair(ours, theirs)


def _lanes(found: Ablation) -> Table:
    """Which lanes pay: each lane of the judged mix at one load."""
    load, rows, lanes = found.detailed, list[list[str]](), list[str]()
    for title in (*BASELINES, *LADDER):
        if not (name := found.name(JUDGED_MIX, load, title)):
            continue
        windows = found.kept.windows(JUDGED_MIX, load, name)
        lanes = sorted({lane for score in windows for lane in score.offered})
        cells = list[str]()
        for lane in lanes:
            good = sum(score.good.get(lane, 0) for score in windows)
            cells.append(f"{100 * good / sum(score.offered.get(lane, 0) for score in windows):.1f}")
        rate = sum(score.untimed for score in windows) / len(windows)
        rows.append([title, *cells, f"{rate:,.0f}"])
    head = [f"% inside budget, {JUDGED_MIX}, load {load:g}", *lanes, "offline, tokens a second"]
    return Table(head, rows, "lanes")


def judged(found: Ablation) -> list[Figure]:
    """The aims hold for lower 95 % bounds over the windows. A figure falls short where a variant
    that is judged was not run on all of them."""
    figures = list[Figure]()
    for mix, windows in found.windows.items():
        for title in BASELINES:
            pairs = {load: pair(found, mix, load, title) for load in found.loads}
            for load, each in pairs.items():
                is_judged = (mix, load) == (JUDGED_MIX, JUDGED_LOAD)
                key, least = f"over_{_key(mix, title, load)}", LEAST_RATIO[title]
                if each:
                    figures.append(Figure(key, [each.ratio]))
                    least_of = least if is_judged else None
                    figures.append(_bound(key, each.least_ratio, least_of, len(windows)))
                elif is_judged:
                    figures.append(Figure(f"{key}_least", [nan], least=least))
            if mix == JUDGED_MIX:
                figures += _worst(title, pairs, len(windows))
    return figures


def _worst(title: str, pairs: Mapping[float, Pair | None], windows: int) -> list[Figure]:
    """At the load where budgets has the fewest points more."""
    key = f"worst_points_over_{title.replace(' ', '_')}"
    ran = [each for each in pairs.values() if each]
    if len(ran) < len(pairs):
        return [Figure(f"{key}_least", [nan], least=LEAST_POINTS)]
    worst = min(each.least_points for each in ran)
    return [
        Figure(key, [min(each.points for each in ran)]),
        _bound(key, worst, LEAST_POINTS, windows),
    ]


def _bound(key: str, value: float, least: float | None, windows: int) -> Figure:
    return Figure(f"{key}_least", [value], least=least if windows >= LEAST_WINDOWS else None)


def capacity(ours: list[float], theirs: list[float]) -> list[Figure]:
    """Loads at which each lane keeps 95 %, window by window."""
    ratio, low = sum(ours) / sum(theirs), least_ratio(ours, theirs)
    key = f"{CAPACITY_OF}_capacity"
    return [
        Figure(f"{key}_budgets", ours, unit="load"),
        Figure(f"{key}_first_come", theirs, unit="load"),
        Figure(f"{key}_ratio", [ratio]),
        _bound(f"{key}_ratio", low, LEAST_CAPACITY, len(ours)),
    ]
