"""Problem: an error answer, with its status, OpenAI's nested error body, and a retry time."""

from collections.abc import Mapping
from json import dumps
from math import ceil
from types import MappingProxyType

from headway.errors import HeadwayError

MOST_WAIT = 120.0  # seconds; the openai client does not retry at all after longer waits
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}


class Problem(HeadwayError):
    """The exception for a request that is answered with a status other than 200.

    param: the field at fault, as a dotted path. code: a machine-readable word.
    retry: seconds until a retry makes sense, already jittered; 0: no time is given.
    final: tells the client not to retry, even if it usually does on this status.
    told: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str = "",
        code: str = "",
        retry: float = 0.0,
        final: bool = False,
        told: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.retry = min(retry, MOST_WAIT)
        self.final, self.told = final, told

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """The error body, nested as in OpenAI's and vLLM's answers."""
        kind = KINDS.get(self.status, "invalid_request_error")
        fields = {"message": str(self), "type": kind}
        return {"error": {**fields, "param": self.param or None, "code": self.code or None}}

    @property
    def json(self) -> bytes:
        """The error body's bytes."""
        return dumps(self.body).encode()

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers. retry-after has whole seconds, as its standard says; the openai
        client prefers retry-after-ms."""
        headers = {**self.told}
        if self.retry:
            headers["retry-after"] = str(ceil(self.retry))
            headers["retry-after-ms"] = str(round(self.retry * 1_000))
        if self.final:
            headers["x-should-retry"] = "false"
        return headers


def wrong(message: str, param: str = "", code: str = "") -> Problem:
    """A 400 problem: the request itself is at fault."""
    return Problem(400, message, param, code)
