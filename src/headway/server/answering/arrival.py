"""Arrival: an HTTP request as it arrived, with its tenant, time and headers."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway.server.config.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Arrival:
    """Created once the key is known, before any of the body is read."""

    tenant: Tenant
    headers: Mapping[str, str]  # as received; names are case-insensitive
    at: int  # nanoseconds
