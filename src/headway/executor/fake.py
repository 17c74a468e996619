"""An executor for tests: no model, but a real paged memory.

What it keeps for a token depends on that token and on all before it, as KV does, and it reaches
the past only through its block table, as attention does. So a block that is published too early,
freed too soon, never told of, or shared by the wrong prefix changes the answer.
"""

from headway.core.batch import Batch, Begun, Logprob, Output, Row, Want
from headway.core.blocks import SCRATCH
from headway.core.sampling import Sampling

ROOT = 17
VOCABULARY = 97


def mix(state: int, token: int) -> int:
    return (state * 31 + token + 1) % 1_000_003


def next_token(states: list[int], prompt: int, sampling: Sampling) -> int:
    """The head of the 'model': reads every kept state. Keyed by seed and position, not by slot."""
    total = mix(ROOT + sampling.seed, len(states))
    for state in states:
        total = mix(total, state)
    token = total % VOCABULARY
    while token in sampling.stop_tokens and len(states) - prompt < sampling.min_tokens:
        token = (token + 1) % VOCABULARY
    return token


def score(state: int, token: int) -> Logprob:
    """What stands for the log-probability of a token behind a state."""
    return Logprob(-float(mix(state, token)))


class FakeExecutor:
    """It says `burst` tokens at once, as if it had drafted all but the first of them rightly."""

    def __init__(self, num_blocks: int, block_size: int, burst: int = 1) -> None:
        self.block_size, self.burst = block_size, burst
        self.memory = [[-1] * block_size for _ in range(num_blocks + 1)]
        self.tables: dict[int, list[int]] = {}
        self.begun: dict[int, Begun] = {}
        self.computed = 0  # cells, wasted ones too
        self._outputs: dict[int, Output] = {}

    def submit(self, batch: Batch) -> int:
        for sequence in batch.ended:
            del self.tables[sequence], self.begun[sequence]
        for begun in batch.begun:
            assert begun.sequence not in self.tables, "begun twice"
            self.tables[begun.sequence], self.begun[begun.sequence] = [], begun
        for row in batch.rows:
            self.tables[row.sequence] += row.blocks
        # Read everything before writing anything: a row may rely on earlier steps only.
        states = [self._compute(row) for row in batch.rows]
        for row, known in zip(batch.rows, states, strict=True):
            for position in range(row.start, len(known)):
                block, offset = self._cell(row.sequence, position)
                self.memory[block][offset] = known[position]
            self._waste(batch.width - len(row.tokens))
        self._waste(batch.width * batch.held)
        tokens, scores = [], {}
        for i, (row, known) in enumerate(zip(batch.rows, states, strict=True)):
            tokens.append(self._sample(row.sequence, known) if row.want & Want.LAST else ())
            if row.want & Want.PROMPT:
                scores[i] = self._score(row, known)
        self._outputs[batch.step] = Output(tuple(tokens), prompt_logprobs=scores)
        return batch.step

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket)

    def _compute(self, row: Row) -> list[int]:
        assert row.tokens, "a row that computes nothing has no logits"
        cells = (self._cell(row.sequence, position) for position in range(row.start))
        states = [self.memory[block][offset] for block, offset in cells]
        for token in row.tokens:
            states.append(mix(states[-1] if states else ROOT, token))
        self.computed += len(row.tokens)
        return states

    def _sample(self, sequence: int, known: list[int]) -> tuple[int, ...]:
        tokens, begun = list[int](), self.begun[sequence]
        for _ in range(self.burst):
            tokens.append(next_token(known, begun.prompt, begun.sampling))
            known = [*known, mix(known[-1], tokens[-1])]
        return tuple(tokens)

    def _score(self, row: Row, known: list[int]) -> tuple[Logprob, ...]:
        begun = self.begun[row.sequence]
        last = min(len(known), begun.prompt - 1)
        return tuple([score(known[p], begun.tokens[p + 1]) for p in range(row.start, last)])

    def _waste(self, cells: int) -> None:
        for i in range(cells):
            old = self.memory[SCRATCH][i % self.block_size]
            self.memory[SCRATCH][i % self.block_size] = mix(old, i)
            self.computed += 1

    def _cell(self, sequence: int, position: int) -> tuple[int, int]:
        block = self.tables[sequence][position // self.block_size]
        assert block != SCRATCH, "nobody's past lies in the scratch block"
        return block, position % self.block_size
