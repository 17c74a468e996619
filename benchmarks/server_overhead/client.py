"""Readers of streams in one process that does little else, so that the client costs little.
Bytes are kept as they come and parsed when all of them are there.

    python -m benchmarks.server_overhead.client HOST PORT < bodies, a JSON list

Each body goes to /v1/completions on a connection of its own, all at once. Prints one JSON object.
"""

import json
import selectors
import socket
import sys
from time import perf_counter, process_time
from typing import Any

END = b"0\r\n\r\n"  # of a chunked body
MOST = 1 << 16  # bytes of a read
PATIENCE = 120.0  # seconds without a byte on any connection


class Reader:
    """One request and the bytes of its answer."""

    def __init__(self, host: str, port: int, body: dict[str, Any]) -> None:
        said = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(said)}\r\n"
        self.asked = f"{head}Content-Type: application/json\r\n\r\n".encode() + said
        self.socket = socket.create_connection((host, port))
        self.parts: list[bytes] = []
        self._tail = b""

    def read(self) -> bool:
        """Whether the answer has ended."""
        part = self.socket.recv(MOST)
        self.parts.append(part)
        self._tail = (self._tail + part)[-len(END) :]
        return self._tail == END or not part

    def events(self) -> list[dict[str, Any]]:
        """Of the stream, without its [DONE]."""
        head, _, body = b"".join(self.parts).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"a request was not answered: {head!r} {body[:500]!r}")
        lines = _whole(body).decode().split("\n\n")
        said = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert said[-1] == "[DONE]", said[-1]
        return [json.loads(line) for line in said[:-1]]


def _whole(chunked: bytes) -> bytes:
    """size in hex, CRLF, so many bytes, CRLF, and again, until the size is 0."""
    parts, at = list[bytes](), 0
    while True:
        line = chunked.index(b"\r\n", at)
        size = int(chunked[at:line], 16)
        if not size:
            return b"".join(parts)
        parts.append(chunked[line + 2 : line + 2 + size])
        at = line + 2 + size + 2


def load(host: str, port: int, bodies: list[dict[str, Any]]) -> dict[str, float]:
    readers = [Reader(host, port, body) for body in bodies]
    with selectors.DefaultSelector() as ready:
        for reader in readers:
            ready.register(reader.socket, selectors.EVENT_READ, reader)
        began, spent = perf_counter(), process_time()
        for reader in readers:
            reader.socket.sendall(reader.asked)
        left = len(readers)
        while left:
            if not (news := ready.select(PATIENCE)):
                raise SystemExit(f"{left} streams say nothing any more")
            for key, _ in news:
                if key.data.read():
                    ready.unregister(key.fileobj)
                    left -= 1
        seconds, spent = perf_counter() - began, process_time() - spent
    answers = [reader.events() for reader in readers]
    texts = ["".join(e["choices"][0]["text"] for e in each if e["choices"]) for each in answers]
    return {
        "seconds": seconds,
        "cpu": spent,  # seconds
        "tokens": sum(each[-1]["usage"]["completion_tokens"] for each in answers),
        "chunks": sum(len(each) - 1 for each in answers),
        "reads": sum(len(reader.parts) for reader in readers),
        "characters": sum(map(len, texts)),
    }


if __name__ == "__main__":
    print(json.dumps(load(sys.argv[1], int(sys.argv[2]), json.load(sys.stdin))))
