"""By which names the server may be called, and from which web pages: a browser sends what any page
asks it to, also to servers that only this machine can reach.
"""

from collections.abc import Collection, Iterator
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.config.config import ServerConfig
from headway.server.config.sections.server import LOOPBACK
from headway.server.http.errors import answer
from headway.server.protocol.problem import Problem

PROBES = frozenset({"/health", "/ready"})  # orchestrators call a server by any name
EVERYWHERE = ("0.0.0.0", "::")
ANY = "*"
PORTS = {"http": "80", "https": "443"}


class Guard:
    """For a server without keys, or one whose names are configured. Elsewhere the key is the guard:
    no foreign page has it.

    A page's own name could lead here (DNS rebinding), so the name in Host must be one of ours;
    numeric addresses cannot be rebound. An Origin must be that of the Host, or be allowed.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        server = config.server
        self._app = app
        self._on = bool(server.hosts or not config.keys)
        self._hosts = {each.lower() for each in (*server.hosts, server.host, *LOOPBACK)}
        self._origins = {each.lower() for each in server.cors_origins}
        self._any_address = server.host in EVERYWHERE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._on and scope["type"] == "http" and scope["path"] not in PROBES:
            hosts, origins = _said(scope, b"host"), _said(scope, b"origin")
            try:
                self._check(list(hosts), list(origins))
            except Problem as problem:
                return await answer(problem)(scope, receive, send)
        await self._app(scope, receive, send)

    def _check(self, hosts: Collection[str], origins: Collection[str]) -> None:
        """Raises Problem."""
        for host in hosts:
            if not self._is_ours(_name(host)):
                said = f"this server is not called {_name(host)[:80]!r}; see server.hosts"
                raise Problem(403, said, code="host_not_allowed")
        for origin in origins:
            allowed = ANY in self._origins or origin in self._origins
            if not allowed and not any(_same(origin, host) for host in hosts):
                said = f"pages of {origin[:80]!r} may not call this server; see server.cors_origins"
                raise Problem(403, said, code="origin_not_allowed")

    def _is_ours(self, name: str) -> bool:
        if ANY in self._hosts or name in self._hosts:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._any_address


def _said(scope: Scope, name: bytes) -> Iterator[str]:
    return (value.decode("latin-1").lower() for key, value in scope["headers"] if key == name)


def _name(host: str) -> str:
    """Without port, brackets, and a last dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _same(origin: str, host: str) -> bool:
    """Where a proxy ends TLS the scheme is not known here, so a port that goes without saying is
    that of either."""
    scheme, _, place = origin.partition("://")
    port = PORTS.get(scheme)
    return port is not None and _bare(place, port) == _bare(host, port)


def _bare(place: str, port: str) -> str:
    return place.removesuffix(f":{port}")


class Heads:
    """HEAD is answered as GET; the server below leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
