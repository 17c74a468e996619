"""How many connections there may be, and how long and large what they send before an answer."""

from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, Field

from headway.errors import SettingError
from headway.server.config.sections.durations import SECOND, Limit
from headway.server.config.sections.section import Count, Number, Section


def _network(said: str) -> str:
    try:
        return str(ip_network(said))
    except ValueError:
        raise SettingError(f"{said!r} is no address and no network; write 10.0.0.0/8") from None


Network = Annotated[str, AfterValidator(_network)]


class ConnectionSettings(Section):
    """What goes beyond a size is refused with 414 or 431, and what takes too long with 408."""

    most: Annotated[
        Count,
        Field(
            description="That are being answered at once; fewer where the process has not enough "
            "descriptors. Beyond it /health and /ready are answered, and others 503."
        ),
    ] = 4_096
    per_address: Annotated[
        int,
        Field(ge=0, description="Of one client's address; loopback has no limit. 0: no limit."),
        Number,
    ] = 0
    trusted: Annotated[
        tuple[Network, ...],
        Field(description="Proxies' addresses and networks, which have no limit per address."),
    ] = ()
    target_bytes: Annotated[Count, Field(description="Of a request's path and query.")] = 8_192
    header_bytes: Annotated[Count, Field(description="Of a request's header.")] = 32_768
    header_fields: Annotated[Count, Field(description="Of a request's header.")] = 100
    header_time: Annotated[
        Limit, Field(description="Until a new connection has sent its request's header.")
    ] = 10 * SECOND
    body_time: Annotated[
        Limit,
        Field(description="From the header to the body's end; X-Headway-Timeout-Ms may say less."),
    ] = 60 * SECOND
    idle_time: Annotated[
        Limit,
        Field(description="Between two requests. Proxies keep an idle connection for 60s."),
    ] = 75 * SECOND

    def check(self) -> None:
        if self.trusted and not self.per_address:
            raise SettingError("trusted says who has no limit per address, and there is none")
