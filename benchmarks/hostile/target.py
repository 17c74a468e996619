"""The server that an attack aims at, and how bytes are sent to it."""

import selectors
import socket
from collections.abc import Iterator
from time import monotonic, sleep

SECONDS = 15.0  # that an attack may last
PIECE = b"y" * 65_536
MIB = 1 << 20
BODY = 8 * MIB  # bytes that a body may have


class Target:
    """The server's address, and when the attack ends."""

    def __init__(self, host: str, port: int) -> None:
        self.place, self.ends = (host, port), monotonic() + SECONDS

    def connect(self) -> socket.socket | None:
        """Open a connection; None if it is not accepted."""
        try:
            made = socket.create_connection(self.place, timeout=1.0)
        except OSError:
            return None
        made.setblocking(False)
        return made

    def wait(self) -> None:
        sleep(max(0.0, self.ends - monotonic()))


def send(target: Target, sends: dict[socket.socket, Iterator[bytes]]) -> None:
    """Send each socket its bytes as fast as it takes them, until all are sent or it is closed."""
    left: dict[socket.socket, memoryview] = {}
    with selectors.DefaultSelector() as ready:
        for each in sends:
            ready.register(each, selectors.EVENT_WRITE)
        while ready.get_map() and monotonic() < target.ends:
            for key, _ in ready.select(0.1):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                part = left.get(sock) or memoryview(next(sends[sock], b""))
                try:
                    left[sock] = part[sock.send(part) :]
                    done = not part
                except BlockingIOError:
                    continue
                except OSError:
                    done = True
                if done:
                    ready.unregister(sock)


def head_of(path: bytes) -> bytes:
    """The head of a request with a body, without its end."""
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path


def pieces(head: bytes, size: int) -> Iterator[bytes]:
    yield head
    while size > 0:
        yield PIECE[:size]
        size -= len(PIECE)
