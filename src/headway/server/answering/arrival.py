"""An HTTP request as it arrived: who sent it, when, and with which headers."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway.server.config.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Arrival:
    """Made once the key is known, before anything of the body is read."""

    tenant: Tenant
    headers: Mapping[str, str]  # as they came; names in any case
    at: int  # nanoseconds
