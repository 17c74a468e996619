"""A tenant: who a request comes from, and which lanes and models it may use."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who a request comes from, and what it may do."""

    name: str  # cancel and supersede are scoped to it
    key: str  # the name of the key that was shown, never the key
    lanes: frozenset[str]  # that may be used
    default_lane: str
    salt: str  # root of the prefix cache's chain: tenants cannot probe each other's prompts
    models: frozenset[str] | None = None  # models and routes that may be used; None: all
    is_admin: bool = False  # it may change which version of the configuration is in force

    def may_use(self, model: str) -> bool:
        """Whether it may use this model or route, by its own name."""
        return self.models is None or model in self.models
