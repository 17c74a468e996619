"""listen: the socket that a server listens on."""

import socket
import sys
from errno import EADDRNOTAVAIL

from headway.errors import SettingError

BESIDES = 256  # descriptors for everything other than connections
NO_HOST = EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL
UNREAD = 60_000  # milliseconds for which a peer may acknowledge nothing that it is sent


def listen(host: str, port: int) -> socket.socket:
    """The listening socket. It is opened before the model is loaded, so that a port in use is
    reported at once. Raises SettingError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        why = str(error.strerror or error).partition(" (while")[0]  # the rest repeats the address
        option = "--host" if error.errno in NO_HOST else "--port"
        raise SettingError(
            f"cannot listen on {host}:{port}: {why}; choose another with {option}"
        ) from error
    if sys.platform == "linux":  # else a peer that stopped reading would keep its buffers for ever
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD)
    return listening
