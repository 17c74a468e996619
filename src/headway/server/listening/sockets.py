"""The socket that a server listens on (listen)."""

import socket
import sys
from errno import EADDRNOTAVAIL

from headway.errors import SettingError

BESIDES = 256  # descriptors for all that is no connection
NO_HOST = EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL
UNREAD = 60_000  # milliseconds for which a peer may take nothing of what it is sent


def listen(host: str, port: int) -> socket.socket:
    """Taken before the model is loaded, so that a port in use is said at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        why = str(error.strerror or error).partition(" (while")[0]  # which names it once more
        option = "--host" if error.errno in NO_HOST else "--port"
        raise SettingError(
            f"cannot listen on {host}:{port}: {why}; choose another with {option}"
        ) from error
    if sys.platform == "linux":  # who stopped reading, and stays, would keep its buffers for ever
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD)
    return listening
