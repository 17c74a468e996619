"""Steps of the executor alone, driven by hand: as many in flight as it takes."""

from itertools import count
from time import perf_counter

from benchmarks.gpu.bound import wait
from headway.core.batch import UNKNOWN, Batch, Begun, Row, Want
from headway.core.sampling import Sampling
from headway.executor.torch.load import LoadedModel

WARM, TRIALS = 8, 5


class Steps:
    """Rows whose past is whatever lies in their blocks: only its size matters."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded, self.executor = loaded, loaded.executor
        self.device, self.size = loaded.executor.model.device, loaded.plan.block_size
        self.depth = loaded.executor.traits.steps_in_flight
        self._numbers, self._step = count(1 << 40), count(1)  # of no engine's sequence

    def decode_seconds(self, rows: int, held: int, steps: int) -> list[float]:
        """Seconds of a step of rows that hold about so many tokens: means of `steps` in a row."""
        per_row = -(-(held + steps) // self.size)
        begun = [Begun(next(self._numbers), held, Sampling()) for _ in range(rows)]
        found = []
        for trial in range(-1, TRIALS):  # the first only warms up
            batches = []
            for i in range(steps if trial >= 0 else WARM):
                token = 7 if i == 0 or self.depth == 1 else UNKNOWN
                batches.append(
                    Batch(
                        next(self._step),
                        tuple(
                            Row(each.sequence, held - 1 + i, (token,), blocks, Want.LAST)
                            for each, blocks in zip(
                                begun, self._blocks(rows, per_row, trial + i), strict=True
                            )
                        ),
                        tuple(begun) if trial < 0 and not i else (),
                    )
                )
            found.append(self._seconds(batches) / len(batches))
        self._end([each.sequence for each in begun])
        return found[1:]

    def prefill_seconds(self, tokens: int) -> list[float]:
        """Seconds of a step that computes one prompt."""
        found = []
        for _ in range(TRIALS + 1):
            number, need = next(self._numbers), -(-tokens // self.size)
            prompt = tuple(i % 500 for i in range(tokens))
            row = Row(number, 0, prompt, tuple(range(1, need + 1)), Want.LAST)
            begun = Begun(number, tokens, Sampling())
            found.append(self._seconds([Batch(next(self._step), (row,), (begun,))]))
            self._end([number])
        return found[1:]

    def _blocks(self, rows: int, per_row: int, at: int) -> list[tuple[int, ...]]:
        """Each row's own blocks, told with its very first step (at == -1)."""
        if at >= 0:
            return [()] * rows
        return [tuple(range(1 + i * per_row, 1 + (i + 1) * per_row)) for i in range(rows)]

    def _seconds(self, batches: list[Batch]) -> float:
        wait(self.device)
        began, tickets = perf_counter(), list[int]()
        for batch in batches:
            tickets.append(self.executor.submit(batch))
            if len(tickets) == self.depth:
                assert not self.executor.collect(tickets.pop(0)).errors
        for ticket in tickets:
            assert not self.executor.collect(ticket).errors
        return perf_counter() - began

    def _end(self, sequences: list[int]) -> None:
        """End sequences with the next step: a step of one token in the scratch block."""
        number = next(self._numbers)
        row, begun = Row(number, 0, (1,), (0,), Want.LAST), Begun(number, 1, Sampling())
        self.executor.collect(
            self.executor.submit(Batch(next(self._step), (row,), (begun,), tuple(sequences)))
        )
