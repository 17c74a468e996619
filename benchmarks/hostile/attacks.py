"""What is done to the server, each by a process of its own that ends by itself.

    python -m benchmarks.hostile.attacks NAME HOST PORT

Each is bounded in count and time, and prints `over` when it ends.
"""

import selectors
import socket
import sys
from collections.abc import Callable, Iterator
from time import monotonic, sleep

SECONDS = 15.0  # that an attack goes on for, at most
PIECE = b"y" * 65_536
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
MIB = 1 << 20
BODY = 8 * MIB
CONNECTIONS, CROWD = 2_000, 500  # the second for a server with few descriptors
EACH = 0.2  # seconds between two bytes on one connection


class Target:
    """Where it goes."""

    def __init__(self, host: str, port: int) -> None:
        self.place, self.ends = (host, port), monotonic() + SECONDS

    def connect(self) -> socket.socket | None:
        """None: it is not taken."""
        try:
            made = socket.create_connection(self.place, timeout=1.0)
        except OSError:
            return None
        made.setblocking(False)
        return made

    def wait(self) -> None:
        sleep(max(0.0, self.ends - monotonic()))


def send(target: Target, sends: dict[socket.socket, Iterator[bytes]]) -> None:
    """To each what it is to have, as fast as it is taken, until all have had it or closed."""
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


def pieces(head: bytes, size: int) -> Iterator[bytes]:
    yield head
    while size > 0:
        yield PIECE[:size]
        size -= len(PIECE)


def streams(target: Target, count: int, head: bytes, size: int) -> None:
    """Then they stay, and say no more."""
    made = [each for _ in range(count) if (each := target.connect())]
    send(target, {each: pieces(head, size) for each in made})
    target.wait()


def header(target: Target) -> None:
    streams(target, 1, HEAD + b"X: ", 256 * MIB)


def headers(target: Target) -> None:
    streams(target, 10, HEAD + b"X: ", 30 * MIB)


def bodies(target: Target) -> None:
    about = b"X-Headway-Timeout-Ms: 1000\r\nContent-Length: %d\r\n\r\n" % BODY
    streams(target, 40, HEAD + about, BODY - 1)


def silent(target: Target) -> None:
    streams(target, CONNECTIONS, b"", 0)


def crowd(target: Target) -> None:
    streams(target, CROWD, b"", 0)


def trickle(target: Target) -> None:
    """A byte on each connection at a time; one that is closed is made anew."""
    made: list[socket.socket | None] = [None] * CONNECTIONS
    sent, at = [0] * CONNECTIONS, 0
    while monotonic() < target.ends:
        sock = made[at] = made[at] or target.connect()
        if sock:
            byte = (HEAD + b"X: " + PIECE)[sent[at] :][:1]
            try:
                sent[at] += sock.send(byte)
            except OSError:
                sock.close()
                made[at], sent[at] = None, 0
        at = (at + 1) % CONNECTIONS
        if not at:
            sleep(EACH)


ATTACKS: dict[str, Callable[[Target], None]] = {
    "header": header,
    "headers": headers,
    "bodies": bodies,
    "silent": silent,
    "trickle": trickle,
    "crowd": crowd,
}


if __name__ == "__main__":
    ATTACKS[sys.argv[1]](Target(sys.argv[2], int(sys.argv[3])))
    print("over")
