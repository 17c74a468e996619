"""A client for the versions of a running server."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from headway.errors import HeadwayError

PATH = "/v1/versions"
PATIENCE = 60.0  # seconds: a rollback waits until the trial has ended


class VersionsError(HeadwayError):
    """The server refused, or did not answer."""


def ask(
    url: str, key: str, path: str = "", body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """GET below /v1/versions, or POST if there is a body. VersionsError has the server's message.

    url: of the server, such as http://127.0.0.1:8000.
    """
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    if not url.startswith(("http://", "https://")):
        raise VersionsError(f"--url {url}: write http://HOST:PORT")
    request = Request(f"{url.rstrip('/')}{PATH}{path}", data, headers)
    try:
        with urlopen(request, timeout=PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except HTTPError as error:
        raise VersionsError(_words(error)) from None
    except (URLError, TimeoutError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise VersionsError(f"{url} does not answer: {reason}") from None


def _words(error: HTTPError) -> str:
    try:
        said = str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        said = f"status {error.code}"
    hint = ": was the server started with --versions?" if error.code == 404 else ""
    return f"{said}{hint}" if "version" not in said else said
