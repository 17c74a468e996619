"""Tokenizing beside the event loop, and the spelling of single tokens."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path

from headway.core.grammar import Grammar
from headway.errors import PromptError
from headway.executor.trial import problem
from headway.server.protocol.wish import Prompt
from headway.text import Message, Tokenizer

MOST = 60.0  # seconds of compiling, whatever the configuration allows
LONG = 4_000  # characters; fewer are encoded in less time than the way to a thread and back


class Texts:
    """Two copies of one tokenizer, each used by one thread alone: encoding sets switches in it.

    near: the event loop's. far: a worker's, for long prompts, one after another.
    """

    def __init__(self, tokenizer: Tokenizer, folder: Path) -> None:
        """folder: where the tokenizer was read."""
        self.folder = folder
        self.near, self._far = tokenizer, deepcopy(tokenizer)
        self._worker = ThreadPoolExecutor(1, "headway-tokenizer")
        self._spelled: dict[int, str] = {}

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Ids of a text, of a chat, or as they are. Raises PromptError."""
        if length(prompt) < LONG:
            return _encode(self.near, prompt)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, _encode, self._far, prompt)

    async def problem(self, grammar: Grammar, limit: int) -> str:
        """Why it cannot be obeyed, in a line; empty if it can. limit: nanoseconds to compile."""
        return await asyncio.to_thread(problem, grammar, self.folder, min(limit / 1e9, MOST))

    def verbatim(self, ids: Sequence[int]) -> str:
        """With special tokens spelled out."""
        return self.near.decode(ids, skip_special=False)

    def spell(self, id: int) -> str:
        """One token's own text; half a character is U+FFFD."""
        text = self._spelled.get(id)
        if text is None:
            text = self._spelled[id] = self.near.decode((id,), skip_special=False)
        return text


def length(prompt: Prompt) -> int:
    """Characters that are to be encoded."""
    if isinstance(prompt, str):
        return len(prompt)
    return sum([0 if isinstance(each, int) else len(each["content"]) for each in prompt])


def _encode(words: Tokenizer, prompt: Prompt) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return words.encode(prompt)
    if prompt and not isinstance(prompt[0], int):
        messages: tuple[Message, ...] = prompt
        return words.chat(messages)
    ids: tuple[int, ...] = prompt  # type: ignore[assignment]
    if ids and max(ids) >= words.vocab:
        raise PromptError(
            f"a prompt has the token {max(ids)}; the model has 0 to {words.vocab - 1}"
        )
    return ids
