"""Eta: the arrival times that a call is promised, as its client is told."""

from collections.abc import Sequence

from headway.core.request import NEVER


class Eta:
    """When the first token of a call is expected, and when all its requests will have ended."""

    def __init__(self, arrived: int, before: int = 0) -> None:
        """arrived: nanoseconds, on the clock of the promises. before: nanoseconds for which the
        client had waited then, for a route's earlier attempts."""
        self._arrived, self._before = arrived, before
        self._first, self._done = NEVER, arrived

    def hear(self, promise: Sequence[int]) -> None:
        """Take in one request's promise (Event.promise): its first token and its end. An empty one
        changes nothing."""
        if promise:
            first, done = promise
            self._first, self._done = min(self._first, first), max(self._done, done)

    @property
    def ms(self) -> dict[str, float]:
        """Milliseconds from the call's arrival, of those times that are known."""
        return self._since(self._arrived)

    @property
    def told(self) -> dict[str, float]:
        """The same, from the arrival of the client's request."""
        return self._since(self._arrived - self._before)

    def _since(self, begin: int) -> dict[str, float]:
        found = dict[str, float]()
        if self._first != NEVER:
            found["first"] = round((self._first - begin) / 1e6, 1)
        if self._done > self._arrived:
            found["done"] = round((self._done - begin) / 1e6, 1)
        return found

    @property
    def headers(self) -> dict[str, str]:
        """The header, in whole milliseconds; empty while no time is known."""
        told = ", ".join([f"{name}={value:.0f}" for name, value in self.told.items()])
        return {"x-headway-eta-ms": told} if told else {}
