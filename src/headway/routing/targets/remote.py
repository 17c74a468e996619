"""RemoteTarget: a model behind an OpenAI-compatible API, at any URL."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from headway.core.request import NEVER
from headway.errors import DeadlineError, EngineDownError, EngineError, SettingError, first_line
from headway.llm.answer import Delta
from headway.routing.attempts import loop_now
from headway.routing.bill import Bill
from headway.routing.price import DEVICE_TIME, Price
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.targets.learned import Learned
from headway.routing.targets.remote_body import (
    answer_of,
    body_of,
    count_of,
    encoded,
    is_chat,
    piece_of,
)
from headway.routing.targets.remote_reading import body_of_answer, lines, parsed, problem
from headway.routing.targets.target import Estimate, TargetLoad

if TYPE_CHECKING:
    from httpx2 import Response

DATA, DONE = "data:", "[DONE]"
CONNECT = 5.0  # seconds to open a connection
SOON = 1_000_000  # nanoseconds: the least time left that is sent for a due time already past
SECRET, HIDDEN = 8, "[the key]"  # characters of a key that is hidden in messages, and instead of it


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
            from httpx2 import AsyncClient, InvalidURL, Limits, Timeout
        except ImportError as error:
            raise SettingError("remote targets need httpx2: pip install httpx2") from error
        if not url.startswith(("http://", "https://")):
            raise SettingError(f"{url!r} is no URL: it begins with http:// or https://")
        if not all("!" <= each <= "~" for each in key):
            raise SettingError(
                "the key has a space, a line's end or a letter that no header can hold"
            )
        self.name, self._model, self._fields, self._price = name or model, model, fields, price
        self._key = key
        headers = {"content-type": "application/json"}
        headers |= {"authorization": f"Bearer {key}"} if key else {}
        given: dict[str, Any] = {
            "headers": headers,
            "timeout": Timeout(None, connect=CONNECT),  # routes have deadlines and timeouts
            "limits": Limits(),  # as many connections as requests: routes and servers have limits
        }
        try:
            self._client = AsyncClient(base_url=url.rstrip("/"), **given)
        except InvalidURL as error:
            raise SettingError(f"{url!r} is no URL: {first_line(error)}") from error
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
        sent = encoded(body)
        self._outstanding += 1
        try:
            found = await self._answer(request, sent)
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
        chat, body = is_chat(request), body_of(request, self._model, self._fields)
        sent = encoded(body | {"stream": True, "stream_options": {"include_usage": True}})
        usage: Any = None
        began, ended, paused = loop_now(), False, 0  # paused: nanoseconds that the reader took
        self._outstanding += 1
        try:
            async with aclosing(self._events(request, sent)) as events:
                async for found in events:
                    piece = piece_of(found, chat)
                    usage, ended = found.get("usage") or usage, ended or bool(piece.finish)
                    if piece.text or piece.finish:
                        given = loop_now()
                        yield piece
                        paused += loop_now() - given
            if not ended:
                raise EngineError(f"{self.name}: the stream broke off")
        finally:
            self._outstanding -= 1
            prompt, answer = [
                count_of(usage, f"{each}_tokens") for each in ("prompt", "completion")
            ]
            self._charge(bill, began, prompt, answer)
        self._learned.see(answer, loop_now() - began - paused, bill.nanoseconds, bill.cost)

    async def _answer(self, request: RouteRequest, sent: bytes) -> dict[str, Any]:
        async with self._asked(request, sent) as response:
            found = parsed(await body_of_answer(response), "answer")
        if not isinstance(found, dict):
            raise EngineError("the server's answer is not of OpenAI's form")
        return found

    async def _events(self, request: RouteRequest, sent: bytes) -> AsyncGenerator[Any]:
        """The JSON of each event of a stream."""
        async with self._asked(request, sent) as response:
            async for line in lines(response):
                data = line[len(DATA) :].strip() if line.startswith(DATA) else ""
                if data in ("", DONE):  # no data, or its end
                    continue
                if '"error"' in data:
                    data = self._without_key(data)
                yield parsed(data, "stream")

    @asynccontextmanager
    async def _asked(self, request: RouteRequest, sent: bytes) -> AsyncGenerator["Response"]:
        """The response of status 200, whose body is still to be read. Raises as `ask` does, also
        for connections that break while it is read."""
        from httpx2 import DecodingError, HTTPError

        path, headers = _path(is_chat(request)), _headers(request)
        try:
            async with self._client.stream("POST", path, content=sent, headers=headers) as response:
                if response.status_code != 200:
                    body = (await body_of_answer(response)).decode(errors="replace")
                    said = response.status_code, response.headers, self._without_key(body)
                    raise problem(*said, self.name)
                yield response
        except DecodingError as error:
            raise EngineError(f"{self.name}: the answer is not compressed as it says") from error
        except HTTPError as error:
            raise self._unreachable(error) from error

    def _without_key(self, text: str) -> str:
        """A server's text for a message. Some servers repeat the key that they reject."""
        return text.replace(self._key, HIDDEN) if len(self._key) >= SECRET else text

    def _unreachable(self, error: Exception) -> EngineDownError:
        from httpx2 import ConnectError, ConnectTimeout

        said = str(error) or type(error).__name__
        if isinstance(error, ConnectError | ConnectTimeout):
            return EngineDownError(f"{self.name} cannot be reached: {said}")
        return EngineDownError(f"{self.name}: the connection broke: {said}")

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
