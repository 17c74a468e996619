"""FlatTokens: collects the rows of a step and lays their tokens end to end."""

from dataclasses import dataclass, field

import numpy as np

from headway.executor.torch.attention.step_rows import Ints, StepRows


def joined(parts: list[Ints]) -> Ints:
    """The parts, concatenated. A single one is not copied."""
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


@dataclass(slots=True)
class FlatTokens:
    """Each token's id, position and KV cell, and what attention needs to know of each row."""

    tokens: list[Ints] = field(default_factory=list)
    positions: list[Ints] = field(default_factory=list)
    cells: list[Ints] = field(default_factory=list)
    length: int = 0
    _singles: int = 0  # rows of one token
    _slots: list[Ints] = field(default_factory=list)
    _begins: list[Ints] = field(default_factory=list)
    _queries: list[Ints] = field(default_factory=list)
    _starts: list[Ints] = field(default_factory=list)
    _keys: list[Ints] = field(default_factory=list)

    def add_singles(
        self, tokens: Ints, positions: Ints, cells: Ints, slots: Ints, keys: Ints
    ) -> None:
        """Add all rows of one token; each argument has one number per row. Call it at most once,
        before `add`."""
        self._singles = len(tokens)
        self._add_row(slots, np.ones_like(tokens), keys - 1, keys)
        self._begins[-1] = np.arange(len(tokens))
        self._add_tokens(tokens, positions, cells)

    def add(self, tokens: Ints, positions: Ints, cells: Ints, slot: int, keys: int) -> None:
        """Add a row of several tokens, padding included. keys: how many its last own token sees."""
        each = (slot, len(tokens), positions[0], keys)
        self._add_row(*(np.array([number], dtype=np.int64) for number in each))
        self._add_tokens(tokens, positions, cells)

    def rows(self) -> StepRows:
        """All rows, for attention."""
        columns = (self._slots, self._begins, self._queries, self._starts, self._keys)
        return StepRows(self._singles, *map(joined, columns))

    def _add_row(self, slots: Ints, queries: Ints, starts: Ints, keys: Ints) -> None:
        self._slots.append(slots)
        self._begins.append(np.array([self.length], dtype=np.int64))
        self._queries.append(queries)
        self._starts.append(starts)
        self._keys.append(keys)

    def _add_tokens(self, tokens: Ints, positions: Ints, cells: Ints) -> None:
        self.tokens.append(tokens)
        self.positions.append(positions)
        self.cells.append(cells)
        self.length += len(tokens)
