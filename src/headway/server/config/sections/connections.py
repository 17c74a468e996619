"""`server.connections`: how many there may be, and limits on each one's bytes and times."""

from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, Field

from headway.errors import SettingError
from headway.server.config.durations import SECOND, Limit
from headway.server.config.sections.section import Count, Number, Section


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError:
        raise SettingError(f"{text!r} is not an address or a network; write 10.0.0.0/8") from None


Network = Annotated[str, AfterValidator(_network)]


class ConnectionSettings(Section):
    """Bounds of a connection. Too large a request gets 414 or 431, too slow a one gets 408."""

    most: Annotated[
        Count,
        Field(
            description="Connections that may be answered at once; fewer if the process has "
            "not enough descriptors. Beyond it /health and /ready are still "
            "answered, other requests get a 503."
        ),
    ] = 4_096
    per_address: Annotated[
        int,
        Field(
            ge=0,
            description="Connections from one client address; 0: no limit. Loopback has no limit.",
        ),
        Number,
    ] = 0
    trusted: Annotated[
        tuple[Network, ...],
        Field(description="Addresses and networks of proxies, which are exempt from per_address."),
    ] = ()
    target_bytes: Annotated[Count, Field(description="Size of a request's path and query.")] = 8_192
    header_bytes: Annotated[Count, Field(description="Size of a request's header.")] = 32_768
    header_fields: Annotated[
        Count, Field(description="Number of fields in a request's header.")
    ] = 100
    header_time: Annotated[
        Limit, Field(description="Time from a new connection to the end of its first header.")
    ] = 10 * SECOND
    body_time: Annotated[
        Limit,
        Field(
            description="Time from the end of the header to the end of the body; "
            "X-Headway-Timeout-Ms may shorten it."
        ),
    ] = 60 * SECOND
    idle_time: Annotated[
        Limit,
        Field(
            description="Time that a connection may be idle between two requests. Proxies "
            "keep theirs for 60s."
        ),
    ] = 75 * SECOND

    def check(self) -> None:
        if self.trusted and not self.per_address:
            raise SettingError("trusted exempts from per_address, and no limit per address is set")
