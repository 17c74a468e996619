"""Tokenizing and detokenizing, beside the event loop where it takes long."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
from headway.tokenizer import Message, Tokenizer

T = TypeVar("T")

LONG = 4_000  # characters; fewer are encoded faster than a thread could be asked
LONG_IDS = 1_000  # the same bound on ids to be decoded
LARGE = 100_000  # characters; more leave enough freed memory behind to be worth giving back
TURN = 64  # characters that an empty message of a chat counts as
CHECKED = 16  # ids that are checked in the time that one character takes
DEFAULT_BYTES = 2 << 20  # that one text may have, where the operator gives no bound
FITTING = 16  # bytes of text per token of the context, which may be more than DEFAULT_BYTES
DECODED = 4  # bytes of text that an id to be decoded counts as
MOST_HELD = 64 << 20  # bytes of bodies that are turned into tokens at once


class HeldText:
    """How much text is being turned into tokens at once, by all models together. On the event
    loop's thread. trimmer: told of bodies that leave freed memory behind."""

    def __init__(self) -> None:
        self.trimmer = BodyTrimmer()
        self.size = 0  # bytes of the bodies that are being tokenized or detokenized

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count a body's bytes while it is tokenized or detokenized. Raises Problem when all such
        bodies together would exceed MOST_HELD; a body alone is always let through."""
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
    """A tokenizer that works on the event loop where the text is short, else in a thread.

    One thread does one text after another. When a caller is cancelled, only the text that is being
    worked on is wasted: its other texts are never begun.
    """

    def __init__(self, tokenizer: Tokenizer, folder: Path) -> None:
        """folder: where the tokenizer's files are."""
        self.inner, self.folder = tokenizer, folder
        self._worker = ThreadPoolExecutor(1, "headway-tokenizer")
        self._spelled: dict[int, str] = {}

    def close(self) -> None:
        """Cancel the texts that wait to be tokenized, without waiting for those under way."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def encode(self, *prompts: Prompt, most: Sequence[int] = ()) -> list[tuple[int, ...]]:
        """Token ids of each prompt: a text, a pair, a chat, or ids, which are only checked.

        most: for each prompt, how many a text, a pair or ids are cut to at the end; 0: not at all;
        empty: none is cut. Raises PromptError.
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
        """Every way to spell the words in tokens, as Tokenizer.spellings has it."""
        if 3 * sum(map(len, words)) < LONG:  # each is encoded three times
            return self.inner.spellings(words)
        return await self._beside(self.inner.spellings, words)

    async def _beside(self, work: Callable[..., T], *given: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, _carried, work, *given)

    async def check_grammar(self, grammar: Grammar, limit: int) -> str:
        """Why a grammar cannot be obeyed, in one line; empty if it can be. limit: nanoseconds that
        compiling it may take."""
        return await asyncio.to_thread(_carried, grammar_problem, grammar, self.folder, limit / 1e9)

    def verbatim(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelled out."""
        return self.inner.decode(ids, skip_special=False)

    def spell(self, id: int) -> str:
        """The text of one token, special or not; U+FFFD where it is part of a character."""
        text = self._spelled.get(id)
        if text is None:
            text = self._spelled[id] = self.inner.decode((id,), skip_special=False)
        return text


def _carried(work: Callable[..., T], *given: object) -> T:
    """Do the work in a thread. What a future cannot carry (StopIteration) or no error handler would
    catch (a BaseException) is raised as a RuntimeError."""
    try:
        return work(*given)
    except BaseException as error:  # the thread's edge
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def length(prompt: Prompt) -> int:
    """How long a prompt takes to encode, as a number of characters of plain text."""
    texts = _texts(prompt)
    if not texts:
        return len(prompt) // CHECKED
    each = 0 if isinstance(prompt, str) else TURN
    return sum([each + len(text) for text in texts])


def characters(prompt: Prompt) -> int:
    """Characters of a prompt's texts, without those that a template adds; 0 for ids."""
    return sum(map(len, _texts(prompt)))


def most_bytes(configured: int, capacity: int) -> int:
    """UTF-8 bytes that one text may have. configured: the operator's bound; 0: none."""
    return configured or max(DEFAULT_BYTES, FITTING * capacity)


def check_size(prompt: Prompt, most: int, field: str) -> None:
    """Raises Problem if a prompt's texts have more than `most` bytes of UTF-8.

    The tokenizer takes 130 to 220 bytes of memory for each of them, and a text cannot be tokenized
    in parts: an unbroken run of one character is one word.
    """
    if (size := sum(map(_bytes, _texts(prompt)))) > most:
        raise _too_long(f"the text has {size} bytes", most, field)


def check_count(ids: Sequence[int], most: int, field: str) -> None:
    """As check_size, for ids to be decoded: one id may stand for a hundred characters."""
    if len(ids) > most // DECODED:
        raise _too_long(
            f"{len(ids)} tokens count as {DECODED * len(ids)} bytes of text", most, field
        )


def _too_long(what: str, most: int, field: str) -> Problem:
    return wrong(
        f"{what}; {most} are the most of one: see server.limits.text_bytes", field, "text_too_long"
    )


def _texts(prompt: Prompt) -> Sequence[str]:
    """A prompt's text, or those of a chat's messages; none where it is ids."""
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
    """In a thread. The tokenizer takes hundreds of bytes a character, which malloc would keep."""
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
