"""A client for the versions of a running server."""

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from headway.commands.server_answers import refusal, unreachable
from headway.errors import HeadwayError

PATH = "/v1/versions"
KEY = "$HEADWAY_ADMIN_KEY"
OBJECTS = ("list", "version")  # the types of its answers
PATIENCE = 60.0  # seconds: a rollback waits until the trial has ended


class VersionsError(HeadwayError):
    """The server refused, or did not answer."""


def ask(
    url: str, key: str, path: str = "", body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """GET below /v1/versions, or POST if there is a body. VersionsError has the server's message.

    url: of the server, such as http://127.0.0.1:8000 or, as the server prints it, with /v1.
    """
    if not url.startswith(("http://", "https://")):
        raise VersionsError(f"--url {url}: write http://HOST:PORT")
    base = url.rstrip("/").removesuffix("/v1")
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    try:
        data = None if body is None else json.dumps(body).encode()
    except TypeError as error:
        raise VersionsError(f"the proposal is not JSON: {error}") from None
    try:
        request = Request(f"{base}{PATH}{path}", data, headers)
        with urlopen(request, timeout=PATIENCE) as answer:
            found = json.load(answer)
    except HTTPError as error:
        raise VersionsError(_words(error)) from None
    except (URLError, HTTPException, OSError) as error:
        raise VersionsError(f"{base} does not answer: {unreachable(error)}") from None
    except UnicodeEncodeError:
        raise VersionsError("the key or --url has a character that cannot be sent") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("object") not in OBJECTS:
        raise VersionsError(f"{base} does not answer as a server of headway does")
    return found


def _words(error: HTTPError) -> str:
    said = refusal(error, KEY)
    if error.code == 404 and PATH in said:  # the path itself is unknown
        return "the server keeps no versions: start it with --versions STORE"
    return said
