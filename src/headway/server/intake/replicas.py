"""Replicas: the engines of one entry of `models`, and which of them answers a request."""

from collections.abc import Callable, Sequence

from headway.server.answering.arrival import Arrival
from headway.server.engine.handle import EngineState
from headway.server.intake.model import Model

Assignment = Callable[[Arrival], Sequence[Model]]  # the engines one of which is to answer


class Replicas:
    """Each request goes to the engine with the fewest requests that have not ended.

    A trial by share of traffic says beforehand which engine that is, and by a coin: how long an
    engine's line is may depend on the version that it runs.
    """

    def __init__(self, names: Sequence[str], models: Sequence[Model]) -> None:
        """names: that callers use, the entry's own first."""
        self.names, self.models = tuple(names), tuple(models)
        self.assignment: Assignment | None = None  # of a trial
        self._turn = 0

    @property
    def name(self) -> str:
        """The entry's own name."""
        return self.names[0]

    def pick(self, arrival: Arrival) -> Model:
        """The engine that answers. While none is ready, any; equals take turns."""
        if len(self.models) == 1:
            return self.models[0]
        among = self.assignment(arrival) if self.assignment else self.models
        if not any(map(_is_ready, among)):
            among = self.models
        self._turn += 1
        at = self._turn % len(among)
        return min((*among[at:], *among[:at]), key=_load)

    @property
    def least_loaded(self) -> Model:
        """The engine with the fewest requests."""
        return min(self.models, key=_load)


def _is_ready(model: Model) -> bool:
    return model.engine.state is EngineState.READY


def _load(model: Model) -> tuple[bool, int]:
    """What is ready goes first, then what has fewer requests, those being tokenized included."""
    admission = model.admission
    return not _is_ready(model), admission.open + admission.preparing.total()
