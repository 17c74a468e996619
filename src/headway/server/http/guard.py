"""BrowserGuard: middleware that checks Host and Origin. Any web page can make a browser send a
request, even to a server that only this machine can reach.
"""

from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.config.config import ServerConfig
from headway.server.config.sections.server import LOOPBACK
from headway.server.http.errors import error_response
from headway.server.protocol.problem import Problem

PROBES = frozenset({"/health", "/ready"})  # not checked: orchestrators may use any host name
ALL_INTERFACES = ("0.0.0.0", "::")
ANY = "*"
PORTS = {"http": "80", "https": "443"}


class BrowserGuard:
    """Middleware that applies HostCheck to every request except probes."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app, self._check = app, HostCheck(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PROBES:
            try:
                self._check(scope)
            except Problem as problem:
                return await error_response(problem)(scope, receive, send)
        await self._app(scope, receive, send)


class HostCheck:
    """Refuses a request whose Host is not the server's, or which comes from a foreign page.

    The check is active without keys, or when server.hosts is set. Otherwise the keys protect the
    server: a foreign page does not have one.

    A page's host name can be made to resolve to this server (DNS rebinding), so the name in Host
    must be one of ours. A numeric address cannot be rebound: loopback always passes, and any if the
    server listens on all interfaces. An Origin must match Host or be allowed.
    """

    def __init__(self, config: ServerConfig) -> None:
        server = config.server
        self._is_active = bool(server.hosts or not config.keys)
        self._hosts = {each.lower() for each in (*server.hosts, server.host, *LOOPBACK)}
        self._origins = set(server.cors_origins)
        self._takes_any_address = server.host in ALL_INTERFACES

    def __call__(self, scope: Scope) -> None:
        """Raises Problem if the request is refused."""
        if not self._is_active:
            return
        hosts, origins = list[str](), list[str]()
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.decode("latin-1").lower())
            elif name == b"origin":
                origins.append(value.decode("latin-1").lower())
        for host in hosts:
            if not self._is_ours(_name(host)):
                message = f"this server is not called {_name(host)[:80]!r}; see server.hosts"
                raise Problem(403, message, code="host_not_allowed")
        for origin in origins:
            is_allowed = ANY in self._origins or origin in self._origins
            if not is_allowed and not any(is_same_origin(origin, host) for host in hosts):
                message = (
                    f"pages of {origin[:80]!r} may not call this server; see server.cors_origins"
                )
                raise Problem(403, message, code="origin_not_allowed")

    def _is_ours(self, name: str) -> bool:
        if ANY in self._hosts or name in self._hosts:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._takes_any_address


def _name(host: str) -> str:
    """The name in a Host header, without port, brackets and trailing dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def is_same_origin(origin: str, host: str) -> bool:
    """Whether the origin and the host are the same. Behind a proxy that terminates TLS our scheme
    is not known, so the default port of the origin's scheme is dropped on both sides."""
    scheme, _, place = origin.partition("://")
    port = PORTS.get(scheme)
    return port is not None and place.removesuffix(f":{port}") == host.removesuffix(f":{port}")
