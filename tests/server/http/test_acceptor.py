"""The options of accepted sockets: no part of a stream waits for an acknowledgement."""

import socket

import httpx2

from headway.server.config.config import ServerConfig
from headway.server.listening.bounded_protocol import BoundedProtocol
from tests.server.running_server import fake, serving


def test_accepted_sockets_have_nagles_algorithm_off(monkeypatch):
    """A stream's head and its first token are two writes. With Nagle's algorithm the second write
    waits until the client acknowledges the first, which takes up to 40 ms."""
    found, made = [], BoundedProtocol.connection_made

    def seen(protocol, transport):
        accepted = transport.get_extra_info("socket")
        found.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(protocol, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", seen)
    with serving(ServerConfig(), fake) as (url, _):
        assert httpx2.get(f"{url}/health", timeout=30).status_code == 200
    assert found and all(found)
