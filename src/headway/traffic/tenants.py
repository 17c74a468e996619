"""The tenants that send the requests of an endpoint (Tenants)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from headway.costing.request_spec import RequestSpec
from headway.errors import SettingError
from headway.yaml_values import mapping, number


@dataclass(frozen=True, slots=True)
class Tenants:
    """The names of tenants, and the proportion of an endpoint's requests that each sends."""

    names: tuple[str, ...] = ()  # none: requests have no tenant
    parts: tuple[float, ...] = ()  # relative to each other

    def dealt(self, specs: Sequence[RequestSpec], seed: str) -> Sequence[RequestSpec]:
        """The requests with a tenant drawn for each. The same seed draws the same tenants."""
        if not self.names:
            return specs
        drawn = Random(seed).choices(self.names, self.parts, k=len(specs))
        return [replace(spec, tenant=name) for spec, name in zip(specs, drawn, strict=True)]


NOBODY = Tenants()


def read_tenants(value: Any, where: str) -> Tenants:
    """Read a mapping of names to parts. SettingError names the place in the file."""
    parts = {str(k): number(v, f"{where}: {k}") for k, v in mapping(value, where).items()}
    if parts and not any(parts.values()):
        raise SettingError(f"{where}: nobody sends anything")
    return Tenants((*parts,), (*parts.values(),))
