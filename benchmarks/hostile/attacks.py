"""The attacks on the server. Each runs in a process of its own that ends by itself.

    python -m benchmarks.hostile.attacks NAME HOST PORT

Each is bounded in count and time, and prints `over` when it ends.
"""

import socket
import sys
from collections.abc import Callable
from time import monotonic, sleep

from benchmarks.hostile.calls import scores, texts
from benchmarks.hostile.target import BODY, MIB, PIECE, Target, head_of, pieces, send

HEAD = head_of(b"/v1/completions")
CONNECTIONS, CROWD = 2_000, 500  # the second for a server with few descriptors
EACH = 0.2  # seconds between two bytes on one connection


def streams(target: Target, count: int, head: bytes, size: int) -> None:
    """Open these connections; then they stay, and send no more."""
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
    """A byte on each connection at a time; a connection that is closed is opened again."""
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
    "texts": texts,
    "scores": scores,
}


if __name__ == "__main__":
    ATTACKS[sys.argv[1]](Target(sys.argv[2], int(sys.argv[3])))
    print("over")
