"""Circuit (circuit breaker): a target that fails repeatedly is not asked for a while."""

from dataclasses import dataclass
from enum import StrEnum

from headway.core.request import NEVER
from headway.errors import SettingError


class CircuitState(StrEnum):
    """Whether a target may be asked."""

    CLOSED = "closed"  # it may
    OPEN = "open"  # it may not
    HALF_OPEN = "half_open"  # one request at a time probes whether it answers again


@dataclass(frozen=True, slots=True)
class CircuitSettings:
    """When a circuit opens, and for how long. Nygard, Release It! (2007)."""

    failures: int = 5  # in a row
    pause: float = 10.0  # seconds until one request tries it again

    def __post_init__(self) -> None:
        if self.failures < 1 or not 0 < self.pause < 1e9:
            raise SettingError(f"a circuit cannot open after {self.failures} for {self.pause} s")


USUAL = CircuitSettings()


class Circuit:
    """The circuit breaker of one target. Times are nanoseconds; `now` is handed in.

    closed --failures in a row--> open --pause--> half open --answer--> closed
                                    ^------------failure-----'
    """

    def __init__(self, settings: CircuitSettings) -> None:
        self._settings = settings
        self._failures = 0  # in a row
        self._until = 0  # open until this time
        self._is_probed = False  # a probe is under way

    def state(self, now: int) -> CircuitState:
        """The state at `now`. While a probe is under way, the circuit is open."""
        if self._failures < self._settings.failures:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self._until or self._is_probed else CircuitState.HALF_OPEN

    def opens_at(self, now: int) -> int:
        """The time when the target may be asked again."""
        return max(now, self._until)

    def begun(self, now: int) -> None:
        """Note that the target is asked. In the half-open state, this request is the probe."""
        if self.state(now) is CircuitState.HALF_OPEN:
            self._is_probed = True

    def answered(self) -> None:
        """Note that the target has answered, and close the circuit."""
        self._failures, self._until, self._is_probed = 0, 0, False

    def failed(self, now: int) -> None:
        """Note that the target has failed, or did not answer in time."""
        self._failures += 1
        self._is_probed = False
        if self._failures >= self._settings.failures:
            self._until = now + int(self._settings.pause * 1e9)

    def left(self) -> None:
        """Note that the probe ended without a result: the target refused, or the caller left."""
        self._is_probed = False


class Closed(Circuit):
    """A circuit that never opens."""

    def __init__(self) -> None:
        super().__init__(CircuitSettings(NEVER))
