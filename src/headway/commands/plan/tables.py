"""The tables of a plan, for a terminal of 80 columns or more."""

from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.commands.plan.estimate.burstiness import Burst
from headway.commands.plan.estimate.checked_estimate import Answered
from headway.commands.plan.estimate.planned_traffic import Work
from headway.costing.calibration import Calibration
from headway.report.words import duration

NOT_ASKED = "-"


def print_head(
    console: Console,
    calibration: Calibration,
    work: Work,
    headline: Sequence[str],
    notes: Sequence[str],
) -> None:
    """The answer first; then what was asked of which machine."""
    for line in headline:
        console.print(Text(line, "bold" if not line.startswith("-") else ""))
    console.print()
    of = "worked out from data sheets" if calibration.analytical else "measured"
    _say(
        console,
        f"{calibration.model} in {calibration.dtype} on {calibration.device}, {of}; "
        f"{calibration.slots} slots, {calibration.num_blocks:,} KV blocks of "
        f"{calibration.block_size} tokens, {calibration.fit:,} that fit.",
    )
    _say(
        console,
        f"{work.name}: {work.rate:.4g} requests/s, on average {work.prompt:,.0f} prompt tokens "
        f"and {work.answer:,.0f} of an answer.",
    )
    for note in notes:
        _say(console, f"{_capital(note)}.")


def print_answers(console: Console, title: str, answers: Sequence[Answered]) -> None:
    """A table of figures, and under it what each rests on."""
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
        simulated = NOT_ASKED if each.simulated is None else figure(each.simulated)
        mark = " *" if one.outside else ""
        row = (f"{one.question}{mark}", figure(one.value), simulated, off(each), one.unit)
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for _, alike in groupby(answers, key=_rests_on):
        _explain(console, list(alike))


def _rests_on(answered: Answered) -> tuple[str, ...]:
    one = answered.estimate
    return one.assumes, one.source, one.holds, one.outside, answered.asked


def _explain(console: Console, alike: Sequence[Answered]) -> None:
    """What several rest on alike is said once."""
    assumes, source, holds, outside, asked = _rests_on(alike[0])
    text = Text()
    for each in alike:
        text.append(f"{_capital(each.estimate.question)}: ", "bold")
        text.append(f"{each.estimate.formula}. ")
    text.append(f"Assumes: {assumes}. Source: {source}. Holds: {holds}. Simulator: {asked}.", "dim")
    console.print(text)
    if outside:
        console.print(Text(f"* Outside its range: {outside}.", style="yellow"))
    console.print()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def print_burst(console: Console, burst: Burst) -> None:
    """How much burstier the trace is than Poisson, and what that costs."""
    table = Table(
        title="Burstiness", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0
    )
    table.add_column("arrivals in a window of")
    table.add_column("variance / mean", justify="right")
    table.add_column("Poisson", justify="right")
    for window, value in burst.dispersion.items():
        table.add_row(duration(window), f"{value:.1f}" if value else NOT_ASKED, "1")
    console.print(table)
    _say(
        console,
        f"Of the trace, {burst.requests:,} requests were played faster or slower, "
        f"{burst.span:,.0f} s of it.",
    )
    _say(console, verdict(burst))


def verdict(burst: Burst) -> str:
    if burst.recorded is None:
        return (
            f"No rate breaks the budget, {burst.requests:,} requests at once keep it: the trace "
            "is too short to say. Take a longer one, or a smaller --ttft."
        )
    if not burst.recorded:
        return (
            "At no rate down to a thousandth of the formula's does the trace keep the budget: "
            "its bursts come at once. A plan by mean rates says nothing here."
        )
    if burst.times < 1.1:
        return "Here the formula's plan suffices: these bursts are shorter than the budget."
    said = (
        f"A plan by the formula under-provisions {burst.times:.1f} times: it promises "
        f"{burst.formula:.4g} requests/s where {burst.recorded:.4g} can be kept."
    )
    if not burst.poisson:
        return said
    return (
        f"{said} Of that, {burst.poisson / burst.recorded:.2f} times is the bursts' doing, and "
        f"{burst.formula / burst.poisson:.2f} times what the formula does not know of the machine."
    )


def figure(value: float) -> str:
    """To four places or so."""
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def off(answered: Answered) -> str:
    difference = answered.difference
    return NOT_ASKED if difference is None else f"{difference:+.1%}"


def _say(console: Console, text: str) -> None:
    console.print(Text(text))
