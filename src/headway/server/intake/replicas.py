"""Replicas: the engines of one entry of `models`, and the choice of one for each request."""

from collections.abc import Callable, Sequence

from headway.server.answering.arrival import Arrival
from headway.server.engine.handle import EngineState
from headway.server.intake.model import Model

Assignment = Callable[[Arrival], Sequence[Model]]  # the engines to choose from


class Replicas:
    """Sends each request to the engine with the fewest open requests.

    A trial by share of traffic first limits the choice to some engines, by a coin flip: the length
    of an engine's line may depend on the version it runs.
    """

    def __init__(self, names: Sequence[str], models: Sequence[Model]) -> None:
        """names: the names that callers use, the entry's own first."""
        self.names, self.models = tuple(names), tuple(models)
        self.assignment: Assignment | None = None  # set during a trial
        self._turn = 0

    @property
    def name(self) -> str:
        """The entry's own name."""
        return self.names[0]

    def pick(self, arrival: Arrival) -> Model:
        """The engine that answers. Engines with equal load take turns. If no engine of the trial's
        assignment is ready, all engines are considered."""
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
    """The sort key: ready engines first, then those with fewer requests, including requests being
    tokenized."""
    admission = model.admission
    return not _is_ready(model), admission.open + admission.preparing.total()
