"""Tokenizing and detokenizing. Long texts are handled in a thread, off the event loop."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from headway.core.grammar import Grammar
from headway.errors import PromptError
from headway.executor.grammars.grammar_check import grammar_problem
from headway.server import heap
from headway.server.heap import BodyTrimmer
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.request import Pair, Prompt
from headway.server.protocol.retry_after import SOON, jittered
from headway.text.tokenizer import Message, Tokenizer

T = TypeVar("T")

LONG = 4_000  # characters; shorter texts are encoded faster than a thread could be asked
LONG_IDS = 1_000  # the same bound for ids to decode
LARGE = 100_000  # characters; longer texts leave enough freed memory to be worth giving back
TURN = 64  # characters that each chat message counts for beside its text
CHECKED = 16  # ids checked in the time that encoding one character takes
DEFAULT_BYTES = 2 << 20  # the least bound on one text when the operator sets none
FITTING = 16  # bytes of text per token of context, when that is more than DEFAULT_BYTES
DECODED = 4  # bytes of text that an id to decode counts as
MOST_HELD = 64 << 20  # bytes of all bodies that are tokenized at once


class HeldText:
    """Bounds the text that all models together tokenize at once. Runs on the event loop's thread.
    trimmer: told the size of each body once it is done."""

    def __init__(self) -> None:
        self.trimmer = BodyTrimmer()
        self.size = 0  # bytes of the bodies that are being tokenized or detokenized

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count a body's bytes while it is tokenized or detokenized. Raises Problem if the bodies
        in progress would exceed MOST_HELD together; a single body always passes."""
        if self.size and self.size + size > MOST_HELD:
            message = "too much text is waiting to be tokenized"
            raise Problem(429, message, code="too_much_text", retry=jittered(SOON))
        self.size += size
        try:
            yield
        finally:
            self.size -= size
            self.trimmer.add(size)


class AsyncTokenizer:
    """A tokenizer that handles short texts on the event loop and long ones in a thread.

    One thread handles one text at a time. When a caller is cancelled, only the text in progress is
    wasted: the caller's other texts are never started.
    """

    def __init__(self, tokenizer: Tokenizer, folder: Path) -> None:
        """folder: where the tokenizer's files are."""
        self.inner, self.folder = tokenizer, folder
        self._worker = ThreadPoolExecutor(1, "headway-tokenizer")
        # The loop's own threads look up names, for webhooks, and may be held up by that for long.
        self._grammars = ThreadPoolExecutor(1, "headway-grammars")  # checks one at a time
        self._spelled: dict[int, str] = {}

    def close(self) -> None:
        """Cancel the texts that wait to be tokenized, without waiting for those under way."""
        for each in (self._worker, self._grammars):
            each.shutdown(wait=False, cancel_futures=True)

    async def encode(self, *prompts: Prompt, most: Sequence[int] = ()) -> list[tuple[int, ...]]:
        """Token ids of each prompt: a text, a pair, a chat, or ids, which are only checked.

        most: the tokens that each text, pair or list of ids is cut to, at its end; 0: it is not
        cut; empty: no prompt is cut. Chats are never cut. Raises PromptError.
        """
        each = list(zip(prompts, most or [0] * len(prompts), strict=True))
        if sum(map(length, prompts)) < LONG:
            return [_encode(self.inner, prompt, cut) for prompt, cut in each]
        return [await self._beside(_encoded, self.inner, prompt, cut) for prompt, cut in each]

    async def decode(self, *prompts: Sequence[int], skip_special: bool) -> list[str]:
        """The text of each prompt's ids."""
        if sum(map(len, prompts)) < LONG_IDS:
            return [self.inner.decode(ids, skip_special) for ids in prompts]
        return [await self._beside(self.inner.decode, ids, skip_special) for ids in prompts]

    async def spellings(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Every way to spell the words in tokens, as Tokenizer.spellings returns it."""
        if 3 * sum(map(len, words)) < LONG:  # each is encoded three times
            return self.inner.spellings(words)
        return await self._beside(self.inner.spellings, words)

    async def _beside(self, work: Callable[..., T], *given: object) -> T:
        return await _made_in(self._worker, partial(work, *given))

    async def check_grammar(self, grammar: Grammar, limit: int) -> str:
        """Why a grammar cannot be used, in one line; empty if it can. limit: nanoseconds that
        compiling it may take."""
        check = partial(grammar_problem, grammar, self.folder, limit / 1e9)
        return await _made_in(self._grammars, check)

    @property
    def special(self) -> frozenset[int]:
        """The ids of the special tokens."""
        return self.inner.special

    def verbatim(self, ids: Sequence[int]) -> str:
        """The text of ids, with special tokens spelled out."""
        return self.inner.decode(ids, skip_special=False)

    def spell(self, id: int) -> str:
        """The text of one token inside a text, special or not; U+FFFD where it is part of a
        character."""
        text = self._spelled.get(id)
        if text is None:
            once, twice = self.verbatim((id,)), self.verbatim((id, id))
            # SentencePiece drops the space at the beginning of a text.
            text = twice[len(once) :] if twice.startswith(once) else once
            self._spelled[id] = text
        return text


async def _made_in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Do the work in the thread. Work that is given up before its turn is dropped at once, with the
    text that it holds: the executor itself would keep it until the thread is free."""
    waiting = [work]
    try:
        make = partial(_first, waiting)
        return await asyncio.get_running_loop().run_in_executor(thread, make)
    finally:
        waiting.clear()


def _first(waiting: list[Callable[[], T]]) -> T:
    return carried(waiting.pop())


def carried(work: Callable[..., T], *given: object) -> T:
    """Do the work in a thread. A StopIteration, which a future cannot carry, and a BaseException,
    which no error handler would catch, are raised as RuntimeError."""
    try:
        return work(*given)
    except BaseException as error:  # the thread's edge
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def length(prompt: Prompt) -> int:
    """The time a prompt takes to encode, as an equivalent number of plain-text characters."""
    texts = _texts(prompt)
    if not texts:
        return len(prompt) // CHECKED
    each = 0 if isinstance(prompt, str) else TURN
    return sum([each + len(text) for text in texts])


def characters(prompt: Prompt) -> int:
    """Characters of a prompt's texts, without what a template adds; 0 for ids."""
    return sum(map(len, _texts(prompt)))


def most_bytes(configured: int, capacity: int) -> int:
    """The most UTF-8 bytes that one text may have. configured: the operator's bound; 0: none."""
    return configured or max(DEFAULT_BYTES, FITTING * capacity)


def check_size(prompt: Prompt, most: int, field: str) -> None:
    """Raises Problem if a prompt's texts have more than `most` bytes of UTF-8.

    The tokenizer needs 130 to 220 bytes of memory per byte of text. A text cannot be tokenized in
    parts: an unbroken run of one character is a single word.
    """
    if (size := sum(map(_bytes, _texts(prompt)))) > most:
        raise _too_long(f"the text has {size} bytes", most, field)


def check_count(ids: Sequence[int], most: int, field: str) -> None:
    """Check ids to decode as check_size checks texts: one id may be a hundred characters long."""
    if len(ids) > most // DECODED:
        raise _too_long(
            f"{len(ids)} tokens count as {DECODED * len(ids)} bytes of text", most, field
        )


def _too_long(what: str, most: int, field: str) -> Problem:
    return wrong(
        f"{what}; {most} are the most of one: see server.limits.text_bytes", field, "text_too_long"
    )


def _texts(prompt: Prompt) -> Sequence[str]:
    """A prompt's texts: its text, both of a pair, or a chat's messages; none for ids."""
    if isinstance(prompt, str):
        return (prompt,)
    if isinstance(prompt, Pair):
        return prompt[:2]
    if not prompt or isinstance(prompt[0], int):
        return ()
    messages: tuple[Message, ...] = prompt
    return [each["content"] for each in messages]


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _encoded(words: Tokenizer, prompt: Prompt, most: int) -> tuple[int, ...]:
    """Encode in a thread. The tokenizer uses hundreds of bytes per character, which malloc would
    keep, so the memory of a large prompt is given back."""
    ids = _encode(words, prompt, most)
    if length(prompt) >= LARGE:
        heap.give_back()
    return ids


def _encode(words: Tokenizer, prompt: Prompt, most: int) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return words.encode(prompt, most)
    if isinstance(prompt, Pair):
        return words.encode_pair(prompt.first, prompt.second, most, prompt.most)
    if prompt and not isinstance(prompt[0], int):
        messages: tuple[Message, ...] = prompt
        return words.chat(messages)
    ids: tuple[int, ...] = prompt  # type: ignore[assignment]
    if ids and max(ids) >= words.vocab:
        raise PromptError(
            f"a prompt has the token {max(ids)}; the model has 0 to {words.vocab - 1}"
        )
    return ids[:most] if most else ids
