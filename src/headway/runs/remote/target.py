"""A server, given by its URL (Target)."""

import re
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from headway.errors import SettingError

PORTS = {"http": 80, "https": 443}
PLAIN = re.compile(r"[\x21-\x7e]*")  # the characters that a request line may have


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server is."""

    url: str  # as given, without a trailing /v1
    scheme: str
    host: str
    port: int
    prefix: str  # of every path; usually empty

    @property
    def name(self) -> str:
        """The server's name in reports."""
        return self.url.partition("://")[2]

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def tls(self) -> ssl.SSLContext | None:
        """A context that checks certificates; None for http."""
        return ssl.create_default_context() if self.scheme == "https" else None


def read_target(url: str) -> Target:
    """Read a URL such as http://127.0.0.1:8000 or https://host/v1.

    SettingError names what is wrong with it.
    """
    wrong = f"{url!r} is no URL of a server: say http://HOST:PORT"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise SettingError(f"{wrong} ({error})") from error
    if parts.scheme not in PORTS or not host or not PLAIN.fullmatch(url):
        raise SettingError(wrong)
    try:
        host.encode("idna")  # as the resolver does
    except UnicodeError as error:
        raise SettingError(f"{wrong} (a part of {host} is empty or too long)") from error
    if port == 0:
        raise SettingError(f"{wrong} (nobody listens on port 0)")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingError(f"{wrong}, without a user, a query or a fragment")
    prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    address = f"{parts.scheme}://{parts.netloc}{prefix}"
    return Target(address, parts.scheme, host, port or PORTS[parts.scheme], prefix)
