"""What a call is promised, as its client is told (Eta)."""

from collections.abc import Sequence

from headway.core.request import NEVER


class Eta:
    """When the first token of a call comes, and by when all of its requests have ended."""

    def __init__(self, arrived: int) -> None:
        """arrived: nanoseconds, on the clock of the promises."""
        self._arrived = arrived
        self._first, self._done = NEVER, arrived

    def hear(self, promise: Sequence[int]) -> None:
        """Take in the promise of one of its requests (Event.promise), if it is one."""
        if promise:
            first, done = promise
            self._first, self._done = min(self._first, first), max(self._done, done)

    @property
    def ms(self) -> dict[str, float]:
        """Milliseconds from its arrival; without what is not known."""
        found = dict[str, float]()
        if self._first != NEVER:
            found["first"] = round((self._first - self._arrived) / 1e6, 1)
        if self._done > self._arrived:
            found["done"] = round((self._done - self._arrived) / 1e6, 1)
        return found

    @property
    def headers(self) -> dict[str, str]:
        """The header, with whole milliseconds; none while nothing is known."""
        told = ", ".join([f"{name}={value:.0f}" for name, value in self.ms.items()])
        return {"x-headway-eta-ms": told} if told else {}
