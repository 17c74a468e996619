"""The first contact with a server: whether it is there, its model, and what it understands."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headway.errors import SettingError
from headway.runs.corpus import read_corpus, split_text
from headway.runs.remote.answer_stream import error_text, parsed, tokens_of
from headway.runs.remote.connection import Broken, Exchange
from headway.runs.remote.connections import Connections
from headway.runs.remote.target import Target
from headway.runs.remote.wording import Wording, http_request

# What to try, the most first: fields that fix an answer's length, and whether tokens are counted.
FORMS = (
    (("ignore_eos", "min_tokens"), True),
    (("ignore_eos",), True),
    (("min_tokens",), True),
    ((), True),
    ((), False),
)
MODELS = "/v1/models"
TEXT_FIELDS = ("prompt", "content")  # of /tokenize: vLLM's and headway's, and llama.cpp's
PIECES, AT_ONCE = 160, 4  # pieces of the shipped text to tokenize: in all, and in one call
SAMPLE = 100  # words (or token ids) of the prompt that is tried
NOT_UNDERSTOOD = (400, 422)  # statuses for a field that a server does not know
PATIENCE = 120.0  # seconds for one answer
LOADING = 503  # what a server answers while it loads its model
LOADED_WITHIN, AGAIN = 300.0, 1.0  # seconds: in all, and between two tries


class Contact:
    """Asks a server what it can do."""

    def __init__(
        self,
        target: Target,
        headers: Mapping[str, str],
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        """tell: called with messages for a waiting user."""
        self.target, self.headers, self.tell = target, headers, tell
        self.connections = Connections(target)

    async def wording(self, model: str, chat: bool, text: bool) -> Wording:
        """Find out how to ask the server.

        model: its name; empty: the server's only model. text: use text prompts even if the server
        takes token ids. Raises SettingError if the server cannot be asked.
        """
        try:
            name, context = await self._model(model)
            base = Wording(self.target, name, chat, context=context, headers=self.headers)
            if not chat and not text and (ids := await self.ids(name)):
                return await self._tried(replace(base, text=ids))
            words = read_corpus().split()
            return await self._tried(replace(base, words=words, text=range(len(words))))
        finally:
            await self._close()

    async def check(self) -> None:
        """Raise SettingError if the server does not answer. Any answer will do."""
        try:
            await self._ask_once(http_request(self.target, "GET", MODELS, b"", self.headers))
        finally:
            await self._close()

    async def _close(self) -> None:
        self.connections.close()
        await asyncio.sleep(0)  # the sockets are closed in the loop's next turn

    async def ids(self, model: str) -> tuple[int, ...]:
        """The shipped text in the server's own tokens; empty: the server does not tokenize."""
        half_pages = split_text(read_corpus())[:PIECES]
        pieces = ["".join(half_pages[at : at + AT_ONCE]) for at in range(0, PIECES, AT_ONCE)]
        for field in TEXT_FIELDS:
            found = [await self._tokenized(model, field, pieces[0])]
            if found[0]:
                found += [await self._tokenized(model, field, each) for each in pieces[1:]]
                return _joined(found) if all(found) else ()
        return ()

    async def _tokenized(self, model: str, field: str, text: str) -> list[int]:
        """The token ids of a text; empty: the server cannot tokenize it."""
        status, plain = await self._call("POST", "/tokenize", {"model": model, field: text})
        tokens = plain.get("tokens") if status == 200 else None
        return tokens if isinstance(tokens, list) and all(map(_is_id, tokens)) else []

    async def _model(self, wanted: str) -> tuple[str, int]:
        """The model's name and context in tokens (0: not known). Raises SettingError if the model
        is not there, or not clear."""
        status, plain = await self._call("GET", MODELS)
        listed = plain.get("data") if status == 200 else None
        models = {
            str(each["id"]): each
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, dict) and each.get("id") and str(each["id"]).isprintable()
        }
        url, has = self.target.url, ", ".join(models)
        plain_names = [name for name in models if _base(name, models) == name]
        if not wanted and not models:
            said = "it names no model" if status == 200 else f"it answers with status {status}"
            raise SettingError(f"{url}{MODELS}: {said}{_why(plain)}; say --model")
        if not wanted and len(plain_names) != 1:
            raise SettingError(f"{url} has {has}: say which with --model")
        if wanted and models and _base(wanted, models) not in models:
            raise SettingError(f"{url} has no model {wanted}; it has {has}")
        name = wanted or plain_names[0]
        return name, _context(models.get(_base(name, models), {}))

    async def _tried(self, wording: Wording) -> Wording:
        """The wording with as many extras as the server takes. Each try asks for one token."""
        prompt, status, said = wording.text[:SAMPLE], 0, ""
        for extras, counts in FORMS:
            tried = replace(wording, extras=extras, counts=counts)
            exchange = await self._ask(tried.request(prompt, 1))
            status, said = exchange.status, error_text(exchange.body)
            if status == 200:
                return await self._measured(tried, exchange)
            if status not in NOT_UNDERSTOOD:
                break
        reason = f": {said}" if said else ""
        url = f"{self.target.url}{wording.path}"
        raise SettingError(f"{url} answers with status {status}{reason}")

    async def _measured(self, wording: Wording, exchange: Exchange) -> Wording:
        """The wording with what an answer showed: whether the server counts tokens, and the words
        per token. Raises SettingError if the answer failed or is not a stream."""
        if not exchange.streams and (said := error_text(exchange.body)):
            raise SettingError(f"{self.target.url} fails: {said}")
        if not exchange.streams:
            raise SettingError(f"{self.target.url} answers as a whole where a stream was asked for")
        if exchange.stream.error:
            raise SettingError(f"{self.target.url} fails: {exchange.stream.error}")
        usage = exchange.stream.usage
        if tokens_of(usage, "completion_tokens") is None:
            wording = replace(wording, counts=False)
        if wording.exact:
            return wording
        tokens = tokens_of(usage, "prompt_tokens") or await self._prompt_tokens(wording)
        return replace(wording, words_per_token=SAMPLE / tokens) if tokens else wording

    async def _prompt_tokens(self, wording: Wording) -> int:
        """The sample's token count, from an unstreamed answer; 0: the server does not say."""
        body = wording.body(wording.text[:SAMPLE], 1) | {"stream": False}
        body.pop("stream_options", None)
        _, plain = await self._call("POST", wording.path, body)
        usage = plain.get("usage")
        return (tokens_of(usage, "prompt_tokens") or 0) if isinstance(usage, dict) else 0

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """The status and the JSON object of the answer; the object is empty if there is none."""
        said = json.dumps(body).encode() if body else b""
        exchange = await self._ask(http_request(self.target, method, path, said, self.headers))
        return exchange.status, parsed(exchange.body)

    async def _ask(self, request: bytes) -> Exchange:
        """The answer. While the server loads its model, it is asked again. Raises SettingError if
        that takes longer than LOADED_WITHIN."""
        now, end = asyncio.get_running_loop().time, None
        while (exchange := await self._ask_once(request)).status == LOADING:
            reason = error_text(exchange.body)
            said = f"{self.target.url} answers with status {LOADING}{reason and ': ' + reason}"
            if end is None:
                end = now() + LOADED_WITHIN
                self.tell(f"{said}. It is asked again for at most {LOADED_WITHIN:g} s.")
            if now() >= end:
                raise SettingError(f"{said}, still after {LOADED_WITHIN:g} s")
            await asyncio.sleep(AGAIN)
        return exchange

    async def _ask_once(self, request: bytes) -> Exchange:
        exchange = Exchange()
        try:
            async with asyncio.timeout(PATIENCE):
                await self.connections.ask(request, exchange)
                return exchange
        except Broken as broken:
            raise SettingError(f"{self.target.url} does not answer: {broken}") from broken
        except TimeoutError as error:
            raise SettingError(
                f"{self.target.url} has not answered within {PATIENCE:g} s"
            ) from error


def _base(name: str, models: Collection[str]) -> str:
    """The model in name@lane, as `headway serve` names lanes. If there is no such model, the whole
    name, because elsewhere an @ may be part of a model's name."""
    base = name.partition("@")[0]
    return base if base in models else name


def _context(model: Mapping[str, Any]) -> int:
    """Tokens that a request may have, by vLLM's and headway's field or by llama.cpp's; 0: none."""
    meta = model.get("meta")
    for fields, name in ((model, "max_model_len"), (meta, "n_ctx")):
        if isinstance(fields, dict) and (tokens := tokens_of(fields, name)):
            return tokens
    return 0


def _joined(pieces: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The pieces as one text. A token that all begin with marks the beginning and is left out."""
    marked = len({piece[0] for piece in pieces}) == 1
    return tuple(token for piece in pieces for token in piece[marked:])


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _why(plain: Mapping[str, Any]) -> str:
    text = error_text(json.dumps(plain).encode())
    return f" ({text})" if text else ""
