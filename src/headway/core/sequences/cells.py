"""The tokens of a request whose prompt is a range (Cells)."""

from collections.abc import MutableSequence
from typing import Any


class Cells(MutableSequence[int]):
    """A prompt that is a range, and the tokens generated after it.

    The prompt is not copied, so it takes no memory however long it is. Only the generated tokens
    can be changed.
    """

    def __init__(self, prompt: range) -> None:
        self._prompt, self._generated = prompt, list[int]()

    def __len__(self) -> int:
        return len(self._prompt) + len(self._generated)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            start, stop, _ = at.indices(len(self))
            return list(self.part(start, stop))
        place, known = range(len(self))[at], len(self._prompt)
        return self._prompt[place] if place < known else self._generated[place - known]

    def part(self, start: int, stop: int) -> tuple[int, ...] | range:
        """The tokens from `start` to `stop`, not copied if all are of the prompt."""
        prompt, known = self._prompt, len(self._prompt)
        if stop <= known:
            return prompt[start:stop]
        return (*prompt[start:], *self._generated[max(0, start - known) : stop - known])

    def __setitem__(self, at: Any, token: Any) -> None:
        self._generated[at - len(self._prompt)] = token

    def __delitem__(self, at: Any) -> None:
        start, stop, _ = at.indices(len(self))
        known = len(self._prompt)
        del self._generated[start - known : stop - known]

    def insert(self, at: int, token: int) -> None:
        self._generated.insert(at - len(self._prompt), token)
