"""`server`: where it listens, which browsers and hosts it answers, and how it shuts down."""

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from headway.errors import SettingError
from headway.server.config.durations import SECOND, Duration
from headway.server.config.sections.connections import ConnectionSettings
from headway.server.config.sections.limits import LimitSettings
from headway.server.config.sections.section import Number, Section

DEFAULT_PORTS = {"http": ":80", "https": ":443"}
LOOPBACK = ("localhost", "::1")  # and 127.0.0.0/8


def _address(text: str) -> str:
    """Refuse a text that cannot be looked up as a host name."""
    try:
        is_name = b"\0" not in text.encode("idna")
    except UnicodeError:
        is_name = False
    if not is_name:
        raise SettingError(f"{text!r} is no host name and no address")
    return text


def _as_sent(origin: str) -> str:
    """The origin as browsers send it: in lower case, without its scheme's own port."""
    if "*" in origin[1:]:
        raise SettingError(f"{origin}: a * stands alone, for all origins; name each one in full")
    scheme = origin.partition(":")[0]
    return origin.lower().removesuffix(DEFAULT_PORTS.get(scheme, ""))


Origin = Annotated[
    str, StringConstraints(pattern=r"^(\*|https?://[^/\s]+)$"), AfterValidator(_as_sent)
]
Host = Annotated[str, StringConstraints(pattern=r"^(\*|[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+)$")]


class ServerSettings(Section):
    """The `server` section."""

    host: Annotated[
        str,
        StringConstraints(min_length=1),
        AfterValidator(_address),
        Field(description="Address to listen on; 0.0.0.0 for all."),
    ] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65_535, description="Port to listen on; 0: any free one."), Number
    ] = 8_000
    default_lane: Annotated[
        str,
        Field(description="Lane of requests that name none. Default: standard, or the first lane."),
    ] = ""
    drain_timeout: Annotated[
        Duration,
        Field(description="Time that running requests have to end after SIGTERM; then they fail."),
    ] = 30 * SECOND
    cors_origins: Annotated[
        tuple[Origin, ...],
        Field(
            description="Origins of web pages that may call the API from a browser; * for "
            "all. Default: none."
        ),
    ] = ()
    hosts: Annotated[
        tuple[Host, ...],
        Field(
            description="Names that clients may use in the Host header; * for any. Default: "
            "without keys, loopback's names and `host`; with keys, any."
        ),
    ] = ()
    connections: ConnectionSettings = ConnectionSettings()
    limits: LimitSettings = LimitSettings()

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can reach the server."""
        return not (self.host.startswith("127.") or self.host in LOOPBACK)
