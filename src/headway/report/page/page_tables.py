"""The tables of report.html, cell by cell, as text."""

from collections.abc import Callable, Sequence
from statistics import median_low

from headway.core.request import NEVER
from headway.figures.lane_figures import LaneFigures
from headway.figures.percentile import Quantile
from headway.report.analysis import Analysis, Comparison, Guardrail, spread
from headway.report.formatting import (
    NOT_SAID,
    duration,
    milliseconds,
    per_mille,
    per_second,
    points_less,
    pressure_text,
    share,
)
from headway.report.verdict import limited

Table = tuple[list[str], list[list[str]]]  # its head, and its rows

PERCENTS = (50, 90, 95, 99)
NOTHING = "Nothing that these rows show."
LATENCY = [
    *("strategy", "n", "in budget", "good/s"),
    *(f"{metric} p{percent}" for metric in ("TTFT", "TPOT", "queue") for percent in PERCENTS),
]
PROMISES = ["strategy", "n", "error p50", "of TTFT", "kept"]
THROUGHPUT = [
    *("strategy", "n", "served", "not served", "s", "req/s", "output tok/s", "slots used", "busy"),
    *("device ms / token", "cost / M tokens", "cost / 1,000 good"),
]
RESOURCES = [
    *("strategy", "padding", "held", "discarded", "recomputed", "KV mean", "KV peak"),
    *("preemptions", "prefix hits"),
]
METRICS = {"queue": "Queue time", "ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
WORSE = 1.1  # times: a smaller ratio is no difference


def latency(found: Analysis, lane: str) -> Table:
    """Latency in milliseconds. Several repeats give the median, the minimum and the maximum."""
    rows = []
    for name in found.strategies:
        each = found.latency[name][lane]

        def quantiles(of: str, each: Sequence[LaneFigures] = each) -> list[str]:
            columns = [[getattr(one, f"{of}_p{p}") for one in each] for p in PERCENTS]
            return [quantile(column) for column in columns]

        offered = each[0].offered
        rows.append(
            [
                found.title(name),
                f"{offered:,}",
                spread_of([one.attainment for one in each], share) if offered else NOT_SAID,
                spread_of(found.goodput(name, lane), per_second),
                *quantiles("ttft"),
                *quantiles("tpot"),
                *quantiles("queue"),
            ]
        )
    return LATENCY, rows


def promises(found: Analysis, lane: str) -> Table:
    """How well promised times were kept, a row for each strategy that promises."""
    rows = []
    for name in found.strategies:
        if known := [each for each in found.promises[name][lane] if each is not None]:
            shares = [each.error_share_p50 for each in known if each.error_share_p50 is not None]
            covered = [each.coverage for each in known if each.coverage is not None]
            error = quantile([each.error_p50 for each in known])
            share_text = spread_of(shares, lambda each: per_mille(round(each)))
            count = spread_of([each.firsts for each in known], "{:,.0f}".format)
            rows.append([found.title(name), count, error, share_text, spread_of(covered, share)])
    return PROMISES, rows


def said_only(table: Table) -> Table:
    """Drop the columns that are empty in every row, such as percentiles of too few requests."""
    head, rows = table
    kept = [k for k in range(len(head)) if not rows or any(row[k] != NOT_SAID for row in rows)]
    return [head[k] for k in kept], [[row[k] for k in kept] for row in rows]


def summary(found: Analysis, names: Sequence[str]) -> tuple[list[tuple[str, int]], Table]:
    """The first table: shares in budget and TTFT, with a group of columns per endpoint and a row
    per strategy, in the given order."""
    lanes = limited(found)
    every = [one for name in names for lane in lanes for one in found.latency[name][lane]]
    tails = [getattr(one, f"ttft_p{found.tail}") for one in every]
    percents = (50, found.tail) if any(value is not None for value in tails) else (50,)
    head, groups = [found.noun], [("", 1)]
    for lane in lanes:
        head += ["in budget", "TTFT p50", f"p{found.tail}"][: 1 + len(percents)]
        budget = found.report.lanes[lane].budget
        limit = f", TTFT within {duration(budget.ttft)}" if budget.ttft != NEVER else ""
        groups.append((f"{lane}{limit}", 1 + len(percents)))
    rows = []
    for name in names:
        is_compared = name == found.baseline and len(found.strategies) > 1
        row = [f"{found.title(name)}{' (baseline)' if is_compared else ''}"]
        for lane in lanes:
            each = found.latency[name][lane]
            row.append(share(median_low(one.attainment for one in each)))
            for percent in percents:
                values = [getattr(one, f"ttft_p{percent}") for one in each]
                known = [value for value in values if value is not None]
                row.append(_milliseconds(median_low(known)) if known else NOT_SAID)
        rows.append(row)
    return groups, (head, rows)


def throughput(found: Analysis) -> Table:
    """What each strategy served, how fast, and at what price."""
    rows = []
    for name in found.strategies:
        engine, money = found.engine[name], found.money(name)
        rows.append(
            [
                found.title(name),
                f"{engine[0].served + engine[0].unserved:,}",
                spread_of([each.served for each in engine], "{:,.0f}".format),
                spread_of([each.unserved for each in engine], "{:,.0f}".format),
                spread_of([each.seconds for each in engine], "{:.1f}".format),
                spread_of([each.requests_per_second for each in engine], per_second),
                spread_of([each.tokens_per_second for each in engine], "{:,.0f}".format),
                spread_of([each.slots for each in engine], "{:.1f}".format),
                spread_of([each.busy for each in engine], share),
                f"{found.used(name)['device time per answered token'] / 1e6:.3g}",
                price([each.per_million for each in money]),
                price([each.per_good for each in money], 1_000),
            ]
        )
    return THROUGHPUT, rows


def resources(found: Analysis) -> Table:
    """Where the computing and the memory went."""
    rows = []
    for name in found.strategies:
        engine, blocks = found.engine[name], found.num_blocks
        shares = [
            [getattr(each, kind) for each in engine]
            for kind in ("padding", "held", "discarded", "recomputed")
        ]
        shares += [
            [each.kv_mean(blocks) for each in engine],
            [each.kv_peak(blocks) for each in engine],
        ]
        rows.append(
            [
                found.title(name),
                *[spread_of(each, share) for each in shares],
                spread_of([each.preemptions for each in engine], "{:,.0f}".format),
                spread_of([each.cached for each in engine], share),
            ]
        )
    return RESOURCES, rows


def quantile(values: Sequence[Quantile]) -> str:
    """A quantile of several runs with its spread, or NOT_SAID unless every run has it."""
    known = [value for value in values if value is not None]
    return spread_of(known, _milliseconds) if len(known) == len(values) else NOT_SAID


def spread_of(values: Sequence[float], words: Callable[[float], str]) -> str:
    """One value, or the median with the minimum and the maximum."""
    if not values:
        return NOT_SAID
    middle, least, most = (words(value) for value in spread(values))
    return middle if least == most else f"{middle} ({least}..{most})"


def _milliseconds(value: float) -> str:
    return milliseconds(NEVER if value >= NEVER else round(value))


def price(values: Sequence[float | None], times: int = 1) -> str:
    """So many times a cost, of several runs. NOT_SAID if a run had nothing to price; 0 is said."""
    known = [times * value for value in values if value is not None]
    if len(known) < len(values):
        return NOT_SAID
    return spread_of(known, lambda cost: f"{cost:,.3g}" if cost < 1_000 else f"{cost:,.0f}")


# -- a pressure card, line by line


def card(found: Analysis, compared: Comparison) -> list[tuple[str, str]]:
    """What a strategy relieves and creates, who pays for it, and what to watch."""
    relieved, created = compared.card.relieved, compared.card.created
    lines = [
        ("Relieved", _sentence(pressure_text(relieved)) if relieved else NOTHING),
        ("Created", _sentence(pressure_text(created)) if created else NOTHING),
        ("Endpoint that pays", payer(found, compared)),
        ("Resource that pays", resource(found, compared)),
    ]
    if guard := compared.guardrail:
        lines += [("Watch", watch(guard)), ("Roll back when", rollback(guard, compared.other))]
    return lines


def payer(found: Analysis, compared: Comparison) -> str:
    """Say which endpoint loses most under the strategy."""
    loss = compared.payer
    if not loss:
        return "None: no endpoint has a smaller share inside its budget."
    own, other = loss.own, loss.others
    pairs = [
        (name, mine, theirs)
        for name, mine, theirs in (
            ("TTFT p95", own.ttft_p95, other.ttft_p95),
            ("TTFT p50", own.ttft_p50, other.ttft_p50),
            ("TPOT p95", own.tpot_p95, other.tpot_p95),
            ("TPOT p50", own.tpot_p50, other.tpot_p50),
        )
        if mine is not None and theirs is not None and mine > theirs
    ]
    worst = max(pairs, key=lambda pair: pair[1] / max(1, pair[2]), default=None)
    worst_text = (
        f"; its {worst[0]} is {duration(worst[1])} instead of {duration(worst[2])}" if worst else ""
    )
    return (
        f"{loss.lane}: {share(own.attainment)} of its requests are inside their budget instead of "
        f"{share(other.attainment)}, {points_less(100 * loss.points)}{worst_text}."
        f"{_repeats(found.points(compared, loss.lane))}"
    )


def _repeats(points: Sequence[float]) -> str:
    if len(points) == 1:
        return ""
    middle, least, most = spread(points)
    return f" In {len(points)} repeats: {middle:.0f} points ({least:.0f}..{most:.0f})."


def resource(found: Analysis, compared: Comparison) -> str:
    """Say which resources the strategy uses more of than the other one."""
    own, other = (found.used(name) for name in (compared.name, compared.other))
    worse = []
    for name, words in (
        ("device time per answered token", duration),
        ("waste", share),
        ("KV in use", share),
    ):
        mine, theirs = own[name], other[name]
        if mine > max(WORSE * theirs, 0.01):
            worse.append(f"{name} {words(mine)} instead of {words(theirs)}")
    return _sentence("; ".join(worse)) if worse else "None."


def watch(guard: Guardrail) -> str:
    """Say what to watch. Never utilisation: it looks the same on both sides of the knee."""
    what, budget = f"{guard.lane} {METRICS[guard.metric]} p{guard.percent}", duration(guard.limit)
    if guard.own == NEVER:
        return f"{what}: most did not come within the run; its budget is {budget}."
    if guard.nearness > 1:
        return f"{what}: {duration(guard.own)}, already {guard.nearness:,.1f} x its {budget}."
    spent = share(guard.nearness)
    return f"{what}: {duration(guard.own)}, {spent} of its {budget}: the first that will break."


def rollback(guard: Guardrail, other: str) -> str:
    """Say when to go back to the other strategy."""
    which = "its budget" if guard.trigger == guard.limit else f"what {other} does"
    return (
        f"{guard.lane} {METRICS[guard.metric]} p{guard.percent} of the last {guard.requests} "
        f"requests is over {duration(guard.trigger)}, {which}."
    )


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."


# -- what was run


def endpoints(found: Analysis) -> Table:
    """The endpoints with their arrivals and limits."""
    head = ["endpoint", "serves", "arrivals", "n", "TTFT within", "TPOT within", "others"]
    rows = []
    for each in found.report.about["endpoints"]:
        budget = found.report.lanes[each["name"]].budget
        others = [
            f"{name.upper()} {duration(limit)}"
            for name, limit in (("e2e", budget.e2e), ("queue", budget.queue))
            if limit != NEVER
        ]
        limits = [duration(x) if x != NEVER else NOT_SAID for x in (budget.ttft, budget.tpot)]
        rest = ", ".join(others) or NOT_SAID
        rows.append(
            [each["name"], each["serves"], each["source"], f"{each['offered']:,}", *limits, rest]
        )
    return head, rows
