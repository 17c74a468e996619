"""Tenant: the sender of a request, and the lanes and models that it may use."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tenant:
    """The sender of a request, and what it may do."""

    name: str  # cancel and supersede are scoped to it
    key: str  # the name of the key that the request carried, never the key itself
    lanes: frozenset[str]  # lanes that it may use
    default_lane: str
    salt: str  # root of the prefix cache's chain, so tenants cannot probe each other's prompts
    models: frozenset[str] | None = None  # models and routes that it may use; None: all
    is_admin: bool = False  # whether it may change which configuration version is in force

    def may_use(self, model: str) -> bool:
        """Whether it may use this model or route, given by its own name (not an alias)."""
        return self.models is None or model in self.models
