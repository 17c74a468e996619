"""How long a call of a function takes, learned from earlier calls (CallCost)."""

MEMORY = 64  # calls after which most of what was learned has faded
SURELY = 2.0  # mean deviations above the line that nearly all calls stay below
OUTLIER = 4  # a call counts as this many times its prediction at most
YOUNG = 8  # calls before which the line is too new to judge outliers and deviations by


class CallCost:
    """A line through the recent calls: nanoseconds = base + rate x cells.

    Least squares whose past fades. Cells are the items' costs and their padding. BentoML's batcher
    fits the same line every 5 seconds; here each call updates it.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self.deviation = 0.0  # mean of |measured - predicted|, in nanoseconds

    @property
    def is_known(self) -> bool:
        """Whether a call has been seen."""
        return self._calls > 0

    @property
    def line(self) -> tuple[float, float]:
        """Base and rate: nanoseconds of a call, and of each cell in it. Neither is negative.

        While all calls have had one size, the base is 0 and the cells share the whole call.
        """
        if not self._weight:
            return 0.0, 0.0
        x, y = self._x / self._weight, self._y / self._weight
        spread = self._xx / self._weight - x * x
        if spread <= 1e-9 * x * x:
            return 0.0, y / x
        rate = (self._xy / self._weight - x * y) / spread
        if rate <= 0:
            return y, 0.0
        if rate * x >= y:
            return 0.0, y / x
        return y - rate * x, rate

    def see(self, cells: int, nanoseconds: int) -> None:
        """Learn from a call that had this many cells and took this many nanoseconds."""
        base, rate = self.line
        expected = base + rate * cells
        measured = float(nanoseconds)
        if self._calls >= YOUNG:
            measured = min(measured, OUTLIER * expected)
        self._calls += 1
        keep = 1 - 1 / MEMORY
        if self._calls > YOUNG:
            step = 1 / min(MEMORY, self._calls - YOUNG)
            self.deviation += (abs(measured - expected) - self.deviation) * step
        self._weight = self._weight * keep + 1
        self._x = self._x * keep + cells
        self._y = self._y * keep + measured
        self._xx = self._xx * keep + cells * cells
        self._xy = self._xy * keep + cells * measured

    def surely(self, cells: int) -> int:
        """Nanoseconds that nearly all calls of this many cells do not exceed; 0: not known yet."""
        base, rate = self.line
        return int(base + rate * cells + SURELY * self.deviation) if self._calls else 0
