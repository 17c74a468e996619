"""Models: which entry of `models` answers a request. Nobody else decides that."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from headway.server.config.tenant import Tenant
from headway.server.engine.handle import Backend
from headway.server.intake.model import Model
from headway.server.intake.model_and_lane import model_of
from headway.server.protocol.problem import wrong


class Found(NamedTuple):
    """What the `model` of a request means."""

    model: Model
    name: str  # as the caller knows it: its own name, an alias or an adapter
    lane: str  # of NAME@LANE; empty: it names none


class Models:
    """All entries, in the order of the file. functions: by their names."""

    def __init__(self, models: Sequence[Model], functions: Mapping[str, Backend]) -> None:
        self._models, self.functions = tuple(models), functions
        self._by_name = {name: model for model in models for name in model.names}
        self._names = tuple(self._by_name)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models)

    @property
    def first(self) -> Model:
        """The model of requests that name none, if their key may use it."""
        return self._models[0]

    @property
    def is_one(self) -> bool:
        """Whether there is a single model and nothing beside it."""
        return len(self._models) == 1 and not self.functions

    @property
    def backends(self) -> dict[str, Backend]:
        """What answers, models and then functions, by the entries' names."""
        return {each.name: each.engine for each in self._models} | dict(self.functions)

    def usable(self, tenant: Tenant) -> list[Model]:
        """The models that a tenant may use."""
        return [each for each in self._models if tenant.may_use(each.name)]

    def find(self, requested: str, lanes: Collection[str], tenant: Tenant) -> Found:
        """The model that is meant; the tenant's first one where none is named. Raises Problem."""
        if requested in self.functions and tenant.may_use(requested):
            why = f"{requested!r} is a function: POST /v1/functions/{requested}"
            raise wrong(why, "model", "not_a_model")
        names: Sequence[str] = self._names
        if tenant.models is not None:
            names = [name for each in self.usable(tenant) for name in each.names]
        name, lane = model_of(requested, names, lanes)
        return Found(self._by_name[name], name, lane)
