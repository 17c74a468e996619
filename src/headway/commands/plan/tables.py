"""A plan on a terminal: the head, the tables with their assumptions, and burstiness."""

from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.commands.plan.estimate.burstiness import Burstiness
from headway.commands.plan.estimate.checked_estimate import CheckedEstimate
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.costing.calibration import Calibration
from headway.report.formatting import duration

NOT_ASKED = "-"
ALIKE = 1.1  # times: two rates that are closer count as one


def print_head(
    console: Console,
    calibration: Calibration,
    traffic: PlannedTraffic,
    headline: Sequence[str],
    notes: Sequence[str],
) -> None:
    """Print the answer, then the machine, the traffic and the notes."""
    for line in headline:
        console.print(Text(line, "bold" if not line.startswith("-") else ""))
    console.print()
    of = "computed from data sheets" if calibration.analytical else "measured"
    _say(
        console,
        f"{calibration.model} in {calibration.dtype} on {calibration.device}, {of}; "
        f"{calibration.slots} slots, {calibration.num_blocks:,} KV blocks of "
        f"{calibration.block_size} tokens used; {calibration.fit:,} fit.",
    )
    _say(
        console,
        f"{traffic.name}: {traffic.rate:.4g} requests/s, mean {traffic.prompt:,.0f} prompt tokens "
        f"and {traffic.answer:,.0f} answer tokens.",
    )
    for note in notes:
        _say(console, f"{_capital(note)}.")


def print_answers(console: Console, title: str, answers: Sequence[CheckedEstimate]) -> None:
    """Print both answers to each question as a table, and below it what each formula assumes."""
    if not answers:
        return
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0
    )
    table.add_column("question")
    for column in ("formula", "simulator", "off by", "unit"):
        table.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    for each in answers:
        one = each.estimate
        simulated = NOT_ASKED if each.simulated is None else number_text(each.simulated)
        mark = " *" if one.outside else ""
        row = (
            f"{one.question}{mark}",
            number_text(one.value),
            simulated,
            difference_text(each),
            one.unit,
        )
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for _, alike in groupby(answers, key=_rests_on):
        _explain(console, list(alike))


def _rests_on(checked: CheckedEstimate) -> tuple[str, ...]:
    one = checked.estimate
    return one.assumes, one.source, one.holds, one.outside, checked.method


def _explain(console: Console, alike: Sequence[CheckedEstimate]) -> None:
    """Print a formula's basis once for all estimates that share it."""
    assumes, source, holds, outside, method = _rests_on(alike[0])
    text = Text()
    for each in alike:
        text.append(f"{_capital(each.estimate.question)}: ", "bold")
        text.append(f"{each.estimate.formula}. ")
    basis = f"Assumes: {assumes}. Source: {source}. Valid: {holds}. Simulator: {method}."
    text.append(basis, "dim")
    console.print(text)
    if outside:
        console.print(Text(f"* Outside its valid range: {outside}.", style="yellow"))
    console.print()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def print_burstiness(console: Console, burstiness: Burstiness) -> None:
    """Print how much burstier than Poisson the trace is, and how much capacity that costs."""
    table = Table(
        title="Burstiness", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0
    )
    table.add_column("arrivals in a window of")
    table.add_column("variance / mean", justify="right")
    table.add_column("Poisson", justify="right")
    for window, value in burstiness.dispersion.items():
        table.add_row(duration(window), f"{value:.1f}" if value else NOT_ASKED, "1")
    console.print(table)
    _say(
        console,
        f"{burstiness.requests:,} requests of the trace ({burstiness.span:,.0f} s) were sped up "
        "and slowed down.",
    )
    _say(console, verdict(burstiness))


def verdict(burstiness: Burstiness) -> str:
    """Say in a sentence or two how much bursts lower the sustainable rate."""
    if not burstiness.recorded:
        return (
            "The trace breaks the budget at every rate down to a thousandth of the formula's: "
            "its requests arrive in clumps. A plan by mean rates is useless here."
        )
    promised = f"The formula promises {burstiness.formula:.4g} requests/s"
    kept = f"{burstiness.recorded:.4g} that can be sustained"
    if 1 / ALIKE < burstiness.times < ALIKE:
        return f"The formula is good enough here: within a tenth of the {kept}."
    if burstiness.times < 1:
        return f"{promised}, less than the {kept}."
    text = f"{promised}, {burstiness.times:.1f} times the {kept}."
    if not burstiness.poisson:
        return text
    return (
        f"{text} Bursts account for {burstiness.poisson / burstiness.recorded:.2f} times, and the "
        f"machine's limits that the formula ignores for "
        f"{burstiness.formula / burstiness.poisson:.2f} times."
    )


def number_text(value: float) -> str:
    """Format a number with four significant digits, and without decimals from 1,000 on."""
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def difference_text(checked: CheckedEstimate) -> str:
    """The formula's signed error against the simulator."""
    difference = checked.difference
    return NOT_ASKED if difference is None else f"{difference:+.1%}"


def _say(console: Console, text: str) -> None:
    console.print(Text(text))
