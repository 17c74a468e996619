"""In words, why a server did not do what a command asked of it."""

import json
from http.client import HTTPException
from urllib.error import HTTPError, URLError

from headway.errors import first_line

UNAUTHORISED = (401, 403)


def refusal(error: HTTPError, key: str) -> str:
    """The server's own message, or else its status. key: how the command is given a key, such as
    `$HEADWAY_API_KEY`; it is named if the server wants one or another one."""
    try:
        said = str(json.load(error)["error"]["message"])
    except (HTTPException, OSError, ValueError, RecursionError, KeyError, TypeError):
        said = f"status {error.code}"
    return f"{said}; this command takes its key from {key}" if error.code in UNAUTHORISED else said


def unreachable(error: Exception) -> str:
    """Why there was no answer, without what urllib writes around it."""
    reason = error.reason if isinstance(error, URLError) else error
    return first_line(reason) if isinstance(reason, BaseException) else reason
