"""Which engine a request goes to while two share the traffic of a trial (Split)."""

from collections.abc import Sequence
from hashlib import blake2b
from random import SystemRandom

from headway.errors import SettingError
from headway.server.answering.arrival import Arrival
from headway.server.intake.model import Model

WORKFLOW, TENANT, REQUEST = "workflow", "tenant", "request"  # what keeps its engine
DIGITS = 6  # bytes of a digest: a float holds them exactly
_RANDOM = SystemRandom()


class Split:
    """Sends the same share of requests to each of the first two engines, the rest to any others.

    The state of an engine does not matter, so a slow version keeps its share. The two shares are
    equal, because an engine with less to do is faster, whichever version it runs. A digest of the
    key chooses the engine, so a key keeps its engine. A request without a key goes at random.
    """

    def __init__(self, engines: Sequence[Model], share: float, sticky: str, seed: int) -> None:
        self._engines, self._share = tuple(engines), share
        self._sticky, self._seed = sticky, seed

    def as_json(self) -> dict[str, object]:
        return {"share": self._share, "sticky": self._sticky}

    def __call__(self, arrival: Arrival) -> Sequence[Model]:
        """The engines that the request may go to, as Replicas.assignment has them."""
        at = self._point(arrival)
        if at < self._share:
            return self._engines[:1]
        return self._engines[1:2] if at < 2 * self._share else self._engines[2:]

    def _point(self, arrival: Arrival) -> float:
        """A number uniform in [0, 1): of the key's digest or, without a key, random."""
        key = arrival.headers.get("x-headway-workflow", "") if self._sticky == WORKFLOW else ""
        if self._sticky == REQUEST or (self._sticky == WORKFLOW and not key):
            return _RANDOM.random()
        said = f"{self._seed}\n{arrival.tenant.name}\n{key}"
        digest = blake2b(said.encode(), digest_size=DIGITS).digest()
        return int.from_bytes(digest) / (1 << 8 * DIGITS)


def split_for(
    engines: Sequence[Model], share: float | None, sticky: str | None, seed: int
) -> Split | None:
    """How the engines share the traffic of a trial; None: there is one engine. Raises
    SettingError."""
    if len(engines) == 1 and share is None and sticky is None:
        return None
    return Split(engines, share_of(len(engines), share), sticky or WORKFLOW, seed)


def share_of(engines: int, wanted: float | None) -> float:
    """The share of the traffic that each version gets. wanted: None if it is not set. Raises
    SettingError."""
    if engines == 1:
        raise SettingError("share and sticky are of several engines: set `replicas` of the model")
    if engines == 2 and wanted not in (None, 0.5):
        raise SettingError(
            f"share: with two replicas it is 0.5, not {wanted:g}: both versions need the same load "
            "to be compared. A third replica would take the rest"
        )
    if wanted is not None and not 0 < wanted <= 0.5:
        raise SettingError(f"share is above 0 and at most 0.5, not {wanted:g}")
    return 1 / engines if wanted is None else wanted
