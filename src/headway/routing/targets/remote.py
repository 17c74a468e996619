"""RemoteTarget: a model behind an OpenAI-compatible API, at any URL."""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Self

from headway.core.request import NEVER
from headway.errors import (
    DeadlineError,
    EngineDownError,
    EngineError,
    HeadwayError,
    PromptError,
    RefusedError,
    SettingError,
)
from headway.llm.answer import Delta
from headway.routing.attempts import loop_now
from headway.routing.bill import Bill
from headway.routing.price import DEVICE_TIME, Price
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.targets.learned import Learned
from headway.routing.targets.remote_body import answer_of, body_of, count_of, is_chat, piece_of
from headway.routing.targets.target import Estimate, TargetLoad

if TYPE_CHECKING:
    from httpx2 import Response

CALLERS_FAULT = 400, 413, 422  # statuses
TOO_LONG = "context_length_exceeded"  # a code of 400: another model may hold the prompt
LATE, REFUSED = (408, 504), (429, 503)
DATA, DONE = "data:", "[DONE]"
CONNECT = 5.0  # seconds to open a connection
SOON = 1_000_000  # nanoseconds: the least time left that is sent for a due time already past
SHOWN = 300  # characters of a server's message


class RemoteTarget:
    """Asks `url`/chat/completions for a chat, `url`/completions for a text or token ids. Needs
    httpx2. An async context manager: leaving it closes the connections.

    url: up to and including /v1. key: sent as a bearer token. fields: added to every request's
    JSON, over what the options say. The device time is not known, so the time until the answer
    stands in for it, as an estimate. Cancelling closes the connection, which tells the server.

    Raises SettingError.
    """

    streams = True

    def __init__(
        self,
        url: str,
        model: str,
        *,
        name: str = "",
        key: str = "",
        fields: Mapping[str, Any] = {},
        price: Price = DEVICE_TIME,
    ) -> None:
        try:
            from httpx2 import AsyncClient, Timeout
        except ImportError as error:
            raise SettingError("remote targets need httpx2: pip install httpx2") from error
        if not url.startswith(("http://", "https://")):
            raise SettingError(f"{url!r} is no URL: it begins with http:// or https://")
        self.name, self._model, self._fields, self._price = name or model, model, fields, price
        headers = {"authorization": f"Bearer {key}"} if key else {}
        limits = Timeout(None, connect=CONNECT)  # routes have deadlines and timeouts
        self._client = AsyncClient(base_url=url.rstrip("/"), headers=headers, timeout=limits)
        self._outstanding = 0
        self._learned = Learned()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    @property
    def load(self) -> TargetLoad:
        """The requests asked through this target. The server's other clients are not known."""
        return TargetLoad(self._outstanding)

    def estimate(self, request: RouteRequest) -> Estimate:
        """The estimate by a line through the recent answers over their tokens, waits included."""
        options = request.options
        expected = options.expected_tokens or self._learned.size
        if options.max_tokens is not None:
            expected = min(expected, options.max_tokens)
        return self._learned.estimate(expected, 0)

    async def ask(self, request: RouteRequest, bill: Bill) -> RouteAnswer:
        """Return the answer; its value is the response's JSON.

        Raises PromptError (400, 413, 422), RefusedError (429, 503 with their Retry-After; a prompt
        that is too long for the model), DeadlineError (408, 504), EngineDownError (no connection),
        EngineError (any other status, or an answer not in OpenAI's form).
        """
        chat, body = is_chat(request), body_of(request, self._model, self._fields)
        began, prompt, answer = loop_now(), 0, RouteAnswer(None)
        self._outstanding += 1
        try:
            response = await self._post(request, body)
            found = _json(response)
            answer = answer_of(found, chat)
            prompt = count_of(found.get("usage"), "prompt_tokens")
            return answer
        finally:
            self._outstanding -= 1
            self._charge(bill, began, prompt, answer.tokens)
            if answer.value is not None:
                self._learned.see(answer.tokens, loop_now() - began, bill.nanoseconds, bill.cost)

    async def stream(self, request: RouteRequest, bill: Bill) -> AsyncGenerator[Delta]:
        """Yield Deltas with text, but without tokens. Raises as `ask` does."""
        from httpx2 import HTTPError

        chat, body = is_chat(request), body_of(request, self._model, self._fields)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        usage: Any = None
        began, ended = loop_now(), False
        self._outstanding += 1
        try:
            async with self._client.stream(
                "POST", _path(chat), json=body, headers=_headers(request)
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise problem(response, self.name)
                async for line in _lines(response):
                    data = line[len(DATA) :].strip() if line.startswith(DATA) else ""
                    if data in ("", DONE):  # no data, or its end
                        continue
                    found = json.loads(data)
                    piece = piece_of(found, chat)
                    usage, ended = found.get("usage") or usage, ended or bool(piece.finish)
                    if piece.text or piece.finish:
                        yield piece
                if not ended:
                    raise EngineError(f"{self.name}: the stream broke off")
        except HTTPError as error:
            raise self._unreachable(error) from error
        except ValueError as error:
            raise EngineError(f"{self.name}: the server's stream is no JSON") from error
        finally:
            self._outstanding -= 1
            names = "prompt_tokens", "completion_tokens"
            self._charge(bill, began, *[count_of(usage, name) for name in names])

    async def _post(self, request: RouteRequest, body: dict[str, Any]) -> "Response":
        from httpx2 import HTTPError

        try:
            response = await self._client.post(
                _path(is_chat(request)), json=body, headers=_headers(request)
            )
        except HTTPError as error:
            raise self._unreachable(error) from error
        if response.status_code != 200:
            raise problem(response, self.name)
        return response

    def _unreachable(self, error: Exception) -> EngineDownError:
        said = str(error) or type(error).__name__
        return EngineDownError(f"{self.name} cannot be reached: {said}")

    def _charge(self, bill: Bill, began: int, prompt: int, answer: int) -> None:
        spent = loop_now() - began
        bill.close(spent, self._price.cost(spent, prompt, answer), measured=False)


def _path(chat: bool) -> str:
    return "/chat/completions" if chat else "/completions"


def _headers(request: RouteRequest) -> dict[str, str]:
    """The request's due time and deadline as headers. headway's servers drop requests that cannot
    end in time and schedule by the due time; other servers ignore both."""
    now, found = loop_now(), dict[str, str]()
    if request.due != NEVER:  # it may be past
        found["x-headway-due-ms"] = f"{max(SOON, request.due - now) / 1e6:.3f}"
    if request.deadline != NEVER:
        left = request.deadline - now
        if left <= 0:
            raise DeadlineError("the deadline was over before the server was asked")
        found["x-headway-timeout-ms"] = f"{left / 1e6:.3f}"
    return found


async def _lines(response: "Response") -> AsyncGenerator[str]:
    """The lines of a stream of events. They end with a line feed or a carriage return alone: httpx2
    also ends them at U+2028 and the like, which JSON may hold as they are."""
    rest = b""
    async for data in response.aiter_bytes():
        lines, rest = (rest + data).splitlines(), b""
        if lines and not data.endswith((b"\n", b"\r")):
            rest = lines.pop()
        for line in lines:
            yield line.decode(errors="replace")
    yield rest.decode(errors="replace")


def _json(response: "Response") -> Any:
    try:
        found = response.json()
    except ValueError as error:
        raise EngineError("the server's answer is no JSON") from error
    if not isinstance(found, dict):
        raise EngineError("the server's answer is not of OpenAI's form")
    return found


def problem(response: "Response", name: str) -> HeadwayError:
    """The error of a response whose status is not 200, with the server's own message."""
    status, message, code = response.status_code, response.text[:SHOWN], ""
    try:
        error = response.json()["error"]
        message, code = str(error["message"])[:SHOWN], str(error.get("code") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # not of OpenAI's form: the text as it is
    said = f"{name}: {status}: {message}"
    if code == TOO_LONG:
        return RefusedError(said, NEVER)
    if status in CALLERS_FAULT:
        return PromptError(said)
    if status in LATE:
        return DeadlineError(said)
    if status in REFUSED:
        return RefusedError(said, _retry_at(response.headers))
    return EngineError(said)


def _retry_at(headers: Mapping[str, str]) -> int:
    """The time to ask again; NEVER: the server names none as a number."""
    for name, unit in (("retry-after-ms", 1e6), ("retry-after", 1e9)):
        try:
            return loop_now() + max(0, int(float(headers[name]) * unit))
        except (KeyError, ValueError, OverflowError):
            continue
    return NEVER
