"""Format figures for people: times, shares and pressure cards."""

from decimal import Decimal
from math import floor, inf, isfinite

from headway.core.cost.promises import SURE
from headway.core.request import NEVER
from headway.figures.capacity import REQUIRED_ATTAINMENT
from headway.figures.percentile import Quantile
from headway.figures.pressure import Pressure, PressureCard

NOT_SAID = "-"  # for a percentile of too few values
REQUIRED = (REQUIRED_ATTAINMENT, SURE)  # required shares: requests in budget, promises kept


def milliseconds(value: Quantile) -> str:
    """Format nanoseconds as milliseconds, without the unit."""
    if value is None:
        return NOT_SAID
    if value == NEVER:
        return "never"
    return f"{value / 1e6:.1f}" if value < 9_950_000 else f"{value / 1e6:,.0f}"


def duration(nanoseconds: float) -> str:
    """Format nanoseconds with a unit, to about three figures."""
    if nanoseconds >= NEVER:
        return "never"
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if nanoseconds >= size:
            number = nanoseconds / size
            return f"{number:.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def threads(count: int) -> str:
    """Format a number of threads."""
    return f"{count} thread{'' if count == 1 else 's'}"


def figures(value: float, count: int = 3) -> str:
    """Format a number to `count` figures, or in full where it has more before the point. It has no
    exponent: 12,000 requests must not read as 1.2e+04."""
    if abs(value) >= 10**count - 0.5 or not isfinite(value):
        return f"{value:,.0f}"
    return format(Decimal(f"{value:.{count}g}"), "f")


def per_second(value: float, decimals: int = 2) -> str:
    """Format an amount per second with so many decimals, or to two figures where these would all
    be 0."""
    return figures(value, 2) if 0 < value < 10**-decimals else f"{value:.{decimals}f}"


def share(value: float) -> str:
    """Format a share of one in percent. Only all and nothing become 100 % and 0 %.

    A share just below a required one gets a decimal: 94.9 % must not read as 95 %.
    """
    if any(bound - 0.005 <= value < bound for bound in REQUIRED):
        return tenths(value)
    percent = 100 * value
    if 0 < percent < 0.5 or 99.5 <= percent < 100:
        return f"{min(max(percent, 0.1), 99.9):.1f} %"
    return f"{percent:.0f} %"


def tenths(value: float) -> str:
    """Format a share in percent with one decimal, rounded down: 94.96 % must not read as 95.0 %."""
    return f"{floor(1_000 * value + 1e-6) / 10:.1f} %"


def per_mille(value: int | None) -> str:
    """Format a share of a thousand in percent."""
    return NOT_SAID if value is None else share(value / 1_000)


def points_less(points: float) -> str:
    """Format a loss in points of a hundred."""
    count = f"{points:.0f}"
    return f"{'under 1' if count == '0' else count} point{'' if count in '01' else 's'} less"


def pressed(card: PressureCard) -> str:
    """Format the pressure card in one line."""
    relieved = f"relieved {pressure_text(card.relieved)}" if card.relieved else "relieved nothing"
    created = f"created {pressure_text(card.created)}" if card.created else "created nothing"
    return f"{relieved}; {created}"


def pressure_text(pressure: Pressure) -> str:
    """Say which pressure is relieved or created, by which figure, compared with which strategy."""
    own, other, ratio = pressure.strategy, pressure.other, pressure.ratio
    words = duration if pressure.gauge.unit == "ns" else share
    read = {name: words(value) for name, value in pressure.readings.items()}
    rest = [f"; {name} {value}" for name, value in read.items() if name not in (own, other)]
    if 0 < ratio < inf:
        size = f"{_times(max(ratio, 1 / ratio))} times{' less than' if ratio < 1 else ''}"
        compared = f"{read[own]}: {size} {other}'s {read[other]}{''.join(rest)}"
    else:
        compared = f"{read[own]}, {other}'s {read[other]}{''.join(rest)}"
    return f"{pressure.gauge.what} ({pressure.gauge.figure} {compared})"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"
