"""A picture of steps: one line per request, time to the right. SVG, for light and dark pages."""

from html import escape

WIDTH, LEFT, TOP, LINE, BAR = 960, 108, 66, 25, 17  # pixels
TICK = 20_000_000  # nanoseconds between marks of the axis
# kind: light, dark, height of its bar, words
KINDS = {
    "queued": ("#8a8f98", "#9aa0a8", 4, "waits"),
    "prompt": ("#0072b2", "#4ea8de", BAR, "prompt"),
    "decode": ("#009e73", "#2fc08e", BAR, "decode"),
    "padding": ("#e69f00", "#e6a91f", BAR, "padding"),
    "held": ("#d1495b", "#e0606f", BAR, "finished slot, computed on"),
    "stalled": ("#b07aa1", "#c994bb", 7, "runs, but is not in this step"),
}
STYLE = """
  .page { fill: #ffffff } text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 } .small { font-size: 11px; fill: #57606a }
  .rule { stroke: #d8dee4; stroke-width: 1 } .step { fill: #eaeef2; stroke: #ffffff }
  .mark { fill: none; stroke: #24292f; stroke-width: 1.5 } .first { fill: #24292f }
"""
DARK = """
    .page { fill: #14181d } text { fill: #e6edf3 } .small { fill: #9da7b1 }
    .rule { stroke: #30363d } .step { fill: #2a3037; stroke: #14181d }
    .mark { stroke: #e6edf3 } .first { fill: #e6edf3 }
"""


class Canvas:
    def __init__(self, title: str, caption: str, lines: int, span: int) -> None:
        """span: nanoseconds from left to right."""
        self.title, self.caption, self.lines = title, caption, lines
        self.scale = (WIDTH - LEFT - 16) / span
        self.foot = TOP + lines * LINE  # where the steps are
        self.height = self.foot + 84
        self._parts: list[str] = []
        for time in range(0, span + 1, TICK):
            x = self._x(time)
            self._parts.append(
                f'<line class="rule" x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{self.foot + 18}"/>'
            )
            label = f"{time // 1_000_000}" + (" ms" if not time else "")
            self._write(x, TOP - 10, label, "small", "middle")
        self._write(LEFT - 10, self.foot + 13, "steps", "small", "end")

    def _x(self, time: int) -> str:
        return f"{LEFT + time * self.scale:.1f}"

    def _write(self, x: str | float, y: float, words: str, kind: str, anchor: str) -> None:
        at = f'x="{x}" y="{y}" text-anchor="{anchor}"'
        self._parts.append(f'<text class="{kind}" {at}>{escape(words)}</text>')

    def _box(self, kind: str, x: str | float, y: float, width: float, height: float) -> None:
        size = f'width="{width:.1f}" height="{height}"'
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" {size}/>')

    def lane(self, at: int, words: str) -> None:
        self._write(LEFT - 10, TOP + at * LINE + 17, words, "", "end")

    def bar(self, at: int, kind: str, began: int, ended: int) -> None:
        if ended > began:
            height = KINDS[kind][2]
            y = TOP + at * LINE + (LINE - height) / 2
            width = max(0.5, (ended - began) * self.scale - (0.6 if kind != "queued" else 0))
            self._box(kind, self._x(began), y, width, height)

    def arrival(self, at: int, time: int) -> None:
        y = TOP + at * LINE + 4
        self._parts.append(f'<path class="mark" d="M{self._x(time)} {y}v{BAR}"/>')

    def told(self, at: int, times: list[int]) -> None:
        """A dot where the caller has the first token, a ring where it has the last."""
        y = TOP + at * LINE + LINE / 2
        first, last = self._x(times[0]), self._x(times[-1])
        self._parts.append(f'<circle class="mark" cx="{last}" cy="{y}" r="5.5"/>')
        self._parts.append(f'<circle class="first" cx="{first}" cy="{y}" r="3"/>')

    def step(self, began: int, ended: int, cells: int) -> None:
        width = (ended - began) * self.scale
        self._box("step", self._x(began), self.foot + 2, width, 16)
        if width > 7 * len(str(cells)) + 2:
            middle = f"{float(self._x(began)) + width / 2:.1f}"
            self._write(middle, self.foot + 14, str(cells), "small", "middle")

    def _legend(self) -> None:
        x, y = 14.0, self.foot + 44
        for kind, (_, _, height, words) in KINDS.items():
            self._box(kind, x, y - 4 - height / 2, 16, height)
            self._write(x + 22, y, words, "", "start")
            x += 40 + 6.6 * len(words)
        x, y = 14.0, y + 24
        self._parts.append(f'<path class="mark" d="M{x + 8} {y - 12}v16"/>')
        self._write(x + 22, y, "arrives", "", "start")
        self._parts.append(f'<circle class="first" cx="{x + 92}" cy="{y - 4}" r="3"/>')
        self._write(x + 104, y, "caller has the first token", "", "start")
        self._parts.append(f'<circle class="mark" cx="{x + 268}" cy="{y - 4}" r="5.5"/>')
        self._write(x + 280, y, "caller has the last", "", "start")
        said = "B chat 8+3: prompt of 8 tokens, answer of 3. Under the steps: cells computed"
        self._write(x + 404, y, said, "small", "start")

    def text(self) -> str:
        self._legend()
        light = "".join(f"  .{kind} {{ fill: {each[0]} }}\n" for kind, each in KINDS.items())
        dark = "".join(f"    .{kind} {{ fill: {each[1]} }}\n" for kind, each in KINDS.items())
        media = f"  @media (prefers-color-scheme: dark) {{{DARK}{dark}  }}\n"
        size = f'width="{WIDTH}" height="{self.height}" viewBox="0 0 {WIDTH} {self.height}"'
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<desc>{escape(self.caption)}</desc>",
            f"<style>{STYLE}{light}{media}</style>",
            f'<rect class="page" width="{WIDTH}" height="{self.height}" rx="6"/>',
            f'<text class="title" x="14" y="22">{escape(self.title)}</text>',
            f'<text class="small" x="14" y="40">{escape(self.caption)}</text>',
        ]
        return "\n".join([*head, *self._parts, "</svg>", ""])
