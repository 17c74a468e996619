"""Charts as SVG. Colours come from the page, so they follow its light or dark scheme."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 360, 230  # of the drawing, which is shown about this wide to keep text readable
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 12, 36

DECADES = 7  # of a logarithmic axis with a label at each; of more, labels would touch
SPAN = 16  # an axis is logarithmic if the largest value is at least this many times the smallest


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from low to high, linear or logarithmic."""

    low: float
    high: float
    label: str
    log: bool = False

    def share(self, value: float) -> float:
        """The value's place on the axis: 0 at low, 1 at high. Values outside go to the edge."""
        low, high = self.low, self.high
        value = low if value < low else high if value > high else value
        if self.log:
            return log10(value / low) / log10(high / low)
        return (value - low) / (high - low)

    def ticks(self) -> list[tuple[float, str]]:
        """The values at which the axis is labelled, with their labels."""
        if self.log:
            first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
            every = 1 + (last - first) // DECADES
            return [(10.0**power, _short(10.0**power)) for power in range(first, last + 1, every)]
        step = _round_up((self.high - self.low) / 5)
        count = floor((self.high - self.low) / step + 1e-9)
        return [(self.low + k * step, _short(self.low + k * step)) for k in range(count + 1)]


def log_axis(values: Iterable[float], label: str) -> Axis:
    """A logarithmic axis of whole decades around the positive values."""
    positive = [value for value in values if value > 0]
    low = 10.0 ** floor(log10(min(positive, default=1)))
    high = 10.0 ** ceil(log10(max(positive, default=10)))
    return Axis(low, max(high, 10 * low), label, log=True)


def axis_of(values: Iterable[float], label: str) -> Axis:
    """An axis from 0 on, or a logarithmic one if the values span a wide range."""
    known = sorted(values)
    least, most = (known[0], known[-1]) if known else (0.0, 1.0)
    if least > 0 and most >= SPAN * least:
        return log_axis(known, label)
    return Axis(0, most or 1.0, label)


class Chart:
    """Marks inside two axes, drawn in the order of the calls."""

    def __init__(
        self, title: str, x: Axis, y: Axis, height: int = HEIGHT, width: int = WIDTH
    ) -> None:
        """Set up an empty chart. An x axis without a label gets no room for one."""
        self.title, self.x, self.y, self.height, self.width = title, x, y, height, width
        self.bottom = BOTTOM if x.label else BOTTOM - 14
        self._wide, self._tall = width - LEFT - RIGHT, height - TOP - self.bottom
        self._marks: list[str] = []

    def at(self, x: float, y: float) -> str:
        """The place of a point in the picture, as "x y" in units of the viewBox."""
        across = LEFT + self.x.share(x) * self._wide
        return f"{across:.1f} {TOP + (1 - self.y.share(y)) * self._tall:.1f}"

    def line(self, points: Sequence[tuple[float, float]], series: str, hint: str) -> None:
        """Draw a line through these points. The hint is shown when the pointer is on it."""
        path = "L".join(self.at(x, y) for x, y in points)
        self._marks.append(
            f'<path class="line {series}" d="M{path}"><title>{escape(hint)}</title></path>'
        )

    def area(self, points: Sequence[tuple[float, float, float]], series: str, hint: str) -> None:
        """Fill an area. points: (x, low y, high y)."""
        upper = [self.at(x, high) for x, _, high in points]
        lower = [self.at(x, low) for x, low, _ in reversed(points)]
        path = "L".join(upper + lower)
        self._marks.append(
            f'<path class="area {series}" d="M{path}Z"><title>{escape(hint)}</title></path>'
        )

    def dots(self, points: Iterable[tuple[float, float]], series: str) -> None:
        """Draw a dot at each of these points."""
        dots = "".join(f"M{self.at(x, y)}h0" for x, y in points)
        self._marks.append(f'<path class="dots {series}" d="{dots}"/>')

    def limit(self, x: float, label: str) -> None:
        """Draw a vertical line at x with a label."""
        top, bottom = self.at(x, self.y.high), self.at(x, self.y.low)
        across = float(top.split()[0])
        right = across > (self.width + LEFT) / 2
        anchor, shift = ("end", -4) if right else ("start", 4)
        self._marks.append(
            f'<path class="limit" d="M{top}L{bottom}"/><text class="limit" text-anchor="{anchor}" '
            f'x="{across + shift:.1f}" y="{self.height - self.bottom - 6}">{escape(label)}</text>'
        )

    def level(self, y: float, label: str, at_left: bool = False) -> None:
        """Draw a horizontal line at y with a label."""
        left, right = self.at(self.x.low, y), self.at(self.x.high, y)
        up = float(left.split()[1])
        below = up < TOP + 14
        anchor, x = ("start", LEFT + 3) if at_left else ("end", self.width - RIGHT - 2)
        self._marks.append(
            f'<path class="limit" d="M{left}L{right}"/><text class="limit" text-anchor="{anchor}" '
            f'x="{x}" y="{up + (11 if below else -4):.1f}">'
            f"{escape(label)}</text>"
        )

    def draw(self, kind: str) -> str:
        """The chart as an SVG element. The kind becomes one of its classes."""
        parts = [
            f'<svg class="chart {kind}" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.title)}">'
        ]
        for value, label in self.x.ticks():
            across = float(self.at(value, self.y.low).split()[0])
            at_edge = across > self.width - RIGHT - 10
            where = f'"end" x="{self.width - 3}"' if at_edge else f'"middle" x="{across}"'
            parts.append(
                f'<path class="grid" d="M{across} {TOP}V{self.height - self.bottom}"/>'
                f'<text text-anchor={where} y="{self.height - self.bottom + 14}">{label}</text>'
            )
        for value, label in self.y.ticks():
            up = float(self.at(self.x.low, value).split()[1])
            parts.append(
                f'<path class="grid" d="M{LEFT} {up}H{self.width - RIGHT}"/>'
                f'<text text-anchor="end" x="{LEFT - 5}" y="{up + 3.5:.1f}">{label}</text>'
            )
        middle = (TOP + self.height - self.bottom) / 2
        parts.append(
            f'<text class="label" text-anchor="middle" x="{(LEFT + self.width - RIGHT) / 2}" '
            f'y="{self.height - 6}">{escape(self.x.label)}</text>'
            f'<text class="label" text-anchor="middle" transform="translate(10 {middle}) '
            f'rotate(-90)">{escape(self.y.label)}</text>'
        )
        return "".join([*parts, *self._marks, "</svg>"])


def _round_up(step: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if step <= 0:
        return 1.0
    power = 10.0 ** floor(log10(step))
    return next(k * power for k in (1, 2, 5, 10) if k * power >= step * (1 - 1e-9))


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"
