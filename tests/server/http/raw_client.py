"""A client that sends any bytes as HTTP, over a socket of its own."""

import json
import socket
from urllib.parse import urlsplit

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Hostile:
    def __init__(self, url):
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname, place.port), timeout=30)

    def say(self, *parts):
        """Send as much as the server takes. It may have closed the connection."""
        try:
            for part in parts:
                self.socket.sendall(part)
        except OSError:
            pass
        return self

    def heard(self):
        """Read until the server closes, then close."""
        said = b""
        try:
            while part := self.socket.recv(65_536):
                said += part
        except ConnectionResetError:
            pass
        finally:
            self.close()
        return said

    def answer(self):
        """The status and error code of the only answer, after which the server closes; 0 and ""
        without an answer."""
        head, _, body = self.heard().partition(b"\r\n\r\n")
        if not head:
            return 0, ""
        return int(head.split()[1]), json.loads(body)["error"]["code"]

    def status(self):
        """The status of an answer that has begun."""
        return int(self.socket.recv(12).split()[1])

    def close(self):
        self.socket.close()


def body(size):
    """The header of a request whose body has `size` bytes."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % size
