"""How long groups are held for more requests: one time, or a range that follows the load (Window).

window: 30                    # ms
window: {between: [5, 50]}    # ms; follows the load between the two
"""

from dataclasses import dataclass
from typing import Any

from headway.core.policies.join import Dynamic, Join
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.yaml_values import known, number


@dataclass(frozen=True, slots=True)
class Window:
    """How long the oldest request may be held, in nanoseconds."""

    high: int = NEVER  # the upper end; NEVER: no window is set
    low: int = NEVER  # the lower end of a window that follows the load; NEVER: it is fixed

    @property
    def follows(self) -> bool:
        """Whether the window follows the load."""
        return self.low != NEVER

    @property
    def text(self) -> str:
        """The window in milliseconds, for people."""
        low = f"{self.low / 1e6:.0f} to " if self.follows else ""
        return f"{low}{self.high / 1e6:.0f} ms"

    def is_in(self, join: Join, lane: str) -> bool:
        """Whether the join policy holds requests of the lane, or of all lanes, by this window."""
        if not isinstance(join, Dynamic):
            return False
        own = join.windows.get(lane, NEVER), join.lows.get(lane, NEVER)
        of_all = join.window, join.lows.get("", NEVER)
        return (self.high, self.low) in (own, of_all)


def read_window(value: Any, where: str) -> Window:
    """Read a window from its YAML value. SettingError names the place in the file."""
    if not isinstance(value, dict):
        return Window(round(number(value, where) * 1e6))
    known(value, ("between",), where)
    both = value.get("between")
    if not isinstance(both, list) or len(both) != 2:
        raise SettingError(f"{where}: between is two numbers of milliseconds")
    low, high = (round(number(each, f"{where}: between") * 1e6) for each in both)
    if low > high:
        raise SettingError(
            f"{where}: a window between {low / 1e6:g} and {high / 1e6:g} ms: the first must not "
            "exceed the second"
        )
    return Window(high, low)
