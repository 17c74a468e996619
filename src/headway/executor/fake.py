"""FakeExecutor, for tests: no model, but a real paged memory.

Like KV, the state it keeps for a token depends on that token and on all tokens before it. Like
attention, it reads the past only through its block table. So a block that is published too early,
freed too soon, missing from the table, or shared with the wrong prefix changes the answer.
"""

from collections.abc import Callable
from struct import pack

from headway.core.batch import UNKNOWN, Batch, Begun, Logprob, Output, Row, Want
from headway.core.kv.blocks import SCRATCH
from headway.core.request import Pooling
from headway.core.sampling import Sampling
from headway.engine import Executor
from headway.errors import first_line
from headway.executor.traits import Traits

ROOT = 17
VOCABULARY = 97


def mix(state: int, token: int) -> int:
    """The state after one more token."""
    return (state * 31 + token + 1) % 1_000_003


def next_token(states: list[int], prompt: int, sampling: Sampling) -> int:
    """The 'model': a token from all states so far. It depends on seed and position, not on slot."""
    total = mix(ROOT + sampling.seed, len(states))
    for state in states:
        total = mix(total, state)
    token = total % VOCABULARY
    while token in sampling.stop_tokens and len(states) - prompt < sampling.min_tokens:
        token = (token + 1) % VOCABULARY
    return token


def pooled(states: list[int], pooling: str) -> bytes:
    """A stand-in for the vector of a prompt with these states."""
    high, low = divmod(states[-1] if pooling == Pooling.LAST else sum(states), 4_096)
    return pack("<2f", high, low)


def score(state: int, token: int) -> Logprob:
    """A stand-in for the log-probability of a token after a state."""
    return Logprob(-float(mix(state, token)))


class FakeExecutor(Executor):
    """Compute states instead of logits, in a paged memory.

    burst: tokens per step, as if all but the first had been drafted and accepted. begins: called
    for each sequence that begins; if it raises, only the rows of that sequence become errors.
    steps_in_flight: for the traits.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        burst: int = 1,
        begins: Callable[[Begun], object] = lambda begun: None,
        steps_in_flight: int = 1,
    ) -> None:
        self.traits = Traits(
            "the fake executor",
            logprobs=False,
            grammars=False,
            steps_in_flight=steps_in_flight,
            drafted=burst - 1,
            poolings=(Pooling.LAST, Pooling.MEAN),
            width=2,
        )
        self.block_size, self.burst, self._begins = block_size, burst, begins
        self.memory = [[-1] * block_size for _ in range(num_blocks + 1)]
        self.tables: dict[int, list[int]] = {}
        self.begun: dict[int, Begun] = {}
        self.states: dict[int, list[int]] = {}  # sequence -> its rows' states so far, if pooled
        self.sampled: dict[int, int] = {}  # sequence -> the token that it sampled last
        self.refused: dict[int, str] = {}  # sequence -> why it could not begin
        self.computed = 0  # cells, including wasted ones
        self._outputs: dict[int, Output] = {}

    def submit(self, batch: Batch) -> int:
        for sequence in batch.ended:
            self._end(sequence)
        for begun in batch.begun:
            self._begin(begun)
        rows = [row for row in batch.rows if row.sequence not in self.refused]
        for row in rows:
            self.tables[row.sequence] += row.blocks
        # Read everything before writing anything: a row may only rely on earlier steps.
        states = {row.sequence: self._compute(row) for row in rows}
        for row in batch.rows:
            known = states.get(row.sequence, [])
            for position in range(row.start, len(known)):
                block, offset = self._cell(row.sequence, position)
                self.memory[block][offset] = known[position]
            self._waste(max(batch.width, len(row.tokens)) - len(known[row.start :]))
        self._waste(batch.width * batch.held)
        self._outputs[batch.step] = self._output(batch, states)
        return batch.step

    def _begin(self, begun: Begun) -> None:
        assert begun.sequence not in self.tables, "begun twice"
        try:
            self._begins(begun)
        except Exception as error:
            self.refused[begun.sequence] = first_line(error)
        else:
            self.tables[begun.sequence], self.begun[begun.sequence] = [], begun

    def _end(self, sequence: int) -> None:
        if not self.refused.pop(sequence, ""):
            del self.tables[sequence], self.begun[sequence]
            self.states.pop(sequence, None)
            self.sampled.pop(sequence, None)

    def _output(self, batch: Batch, states: dict[int, list[int]]) -> Output:
        tokens, errors, scores = list[tuple[int, ...]](), dict[int, str](), {}
        vectors = dict[int, bytes]()
        for i, row in enumerate(batch.rows):
            if row.sequence in self.refused:
                errors[i] = self.refused[row.sequence]
                tokens.append(())
                continue
            known = states[row.sequence]
            tokens.append(self._sample(row.sequence, known) if row.want & Want.LAST else ())
            if tokens[-1]:
                self.sampled[row.sequence] = tokens[-1][-1]
            if row.want & Want.PROMPT:
                scores[i] = self._score(row, known)
            if row.want & Want.VECTOR:
                vectors |= self._pool(i, row, known)
        return Output(tuple(tokens), errors=errors, prompt_logprobs=scores, vectors=vectors)

    def _pool(self, i: int, row: Row, known: list[int]) -> dict[int, bytes]:
        """The vector, if this row ends the prompt. It pools the states that the rows computed."""
        begun = self.begun[row.sequence]
        states = self.states.setdefault(row.sequence, [])
        states += known[row.start :]
        return {i: pooled(states, begun.pooling)} if len(known) == begun.prompt else {}

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket)

    def _compute(self, row: Row) -> list[int]:
        assert row.tokens, "a row that computes nothing has no logits"
        cells = (self._cell(row.sequence, position) for position in range(row.start))
        states = [self.memory[block][offset] for block, offset in cells]
        *known, last = row.tokens
        last = self.sampled[row.sequence] if last == UNKNOWN else last
        for token in (*known, last):
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
        assert block != SCRATCH or sequence < 0, "no request's past lies in the scratch block"
        return block, position % self.block_size
