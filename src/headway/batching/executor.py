"""FunctionExecutor: an executor whose step is a call of a function, or the next stream pieces."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

from headway.batching.calling import Calling, ProcessDiedError, WrongResultsError
from headway.batching.item import Item
from headway.batching.stream import DONE
from headway.core.batch import Batch, Output, Row
from headway.engine import Executor
from headway.errors import first_line
from headway.executor.traits import Traits
from headway.live.clock import WallClock

MORE, END = 0, 1  # the tokens of a stream: another piece, and the end
DROPPED = "the item was cancelled"
TRAITS = Traits(
    "a function",
    "function",
    logprobs=False,
    prompt_logprobs=False,
    grammars=False,
    steps_in_flight=2,
    tells_back=True,
)
Pad = Callable[[Any, int], Any]


class FunctionExecutor(Executor):
    """Call the function with the items of a step's rows, in a separate thread. So the engine takes
    in items and answers callers while the function runs. Anything the function raises becomes its
    items' error, even SystemExit, which would otherwise end the engine.

    The first token of an item's prompt is its number. The other tokens only stand for its cost. An
    item of a plain function ends with its prompt; an item of a generator has one token per piece.
    """

    def __init__(
        self,
        calling: Calling,
        items: Mapping[str, Item],
        *,
        streams: bool,
        bisect: bool,
        pad: Pad | None,
        begun: Callable[[list[Item]], object],
    ) -> None:
        """begun: called with the items that begin in each step, when it is submitted."""
        self.traits = TRAITS
        self._calling, self._items, self._pad, self._begun = calling, items, pad, begun
        self._streams, self._bisect, self._clock = streams, bisect, WallClock()
        self._thread = ThreadPoolExecutor(1, "headway-function")
        self._outputs: dict[int, Future[Output]] = {}
        self._tell: Callable[[], object] = lambda: None  # called when a step is back
        self._stream: Iterator[Sequence[Any]] = iter(())
        self._closed = False
        # By sequence: the place in the streaming call, and the item.
        self._places: dict[int, tuple[int, Item]] = {}

    def submit(self, batch: Batch) -> int:
        begins = [row for row in batch.rows if row.start == 0 and row.sequence >= 0]
        items = [self._items[str(row.tokens[0])] for row in begins]
        if self._streams:
            for sequence in batch.ended:
                self._places.pop(sequence, None)
        self._begun(items)
        begins_now = not self._outputs
        started = Lock()
        started.acquire()
        output = self._thread.submit(self._compute, batch, begins, items, started)
        self._outputs[batch.step] = output
        output.add_done_callback(lambda _: self._tell())
        # Wait for the function's thread to start. Otherwise the engine would keep the GIL and tell
        # callers first.
        if begins_now:
            started.acquire()
        return batch.step

    def on_back(self, tell: Callable[[], object]) -> None:
        self._tell = tell

    def is_back(self, ticket: int) -> bool:
        return self._outputs[ticket].done()

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket).result()

    def _compute(self, batch: Batch, begins: list[Row], items: list[Item], started: Lock) -> Output:
        started.release()
        began = self._clock.now()
        output = self._output(batch, begins, items)
        return replace(output, took=self._clock.now() - began)

    def _output(self, batch: Batch, begins: list[Row], items: list[Item]) -> Output:
        if batch.rows[0].sequence < 0:  # GuardedExecutor's probe: do steps work at all?
            return Output(((END,),))
        if not self._streams:
            errors = {at: DROPPED for at, each in enumerate(items) if each.dropped}
            if wanted := [each for at, each in enumerate(items) if at not in errors]:
                self._call(wanted, batch)
            errors |= {at: first_line(each.error) for at, each in enumerate(items) if each.error}
            return Output(((),) * len(batch.rows), errors=errors)
        if begins:
            self._close_stream()
            self._stream = self._pieces(items, batch)
            self._places = {
                row.sequence: (at, item)
                for at, (row, item) in enumerate(zip(begins, items, strict=True))
            }
        return self._next(batch.rows)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._thread.submit(self._end).result()
            self._thread.shutdown()

    def _end(self) -> None:
        self._close_stream()
        self._calling.close()

    def _values(self, items: list[Item], batch: Batch) -> list[Any]:
        values = [item.value for item in items]
        if self._pad is None or not batch.width:
            return values
        return [self._pad(value, batch.width) for value in values]

    def _call(self, items: list[Item], batch: Batch) -> None:
        """Give each item its result or its error."""
        try:
            self._call_part(items, self._values(items, batch))
        except BaseException as error:  # raised by `pad`
            _log(f"a call of {len(items)} items", error)
            for item in items:
                item.fail(_own(error, len(items)))

    def _call_part(self, items: list[Item], values: list[Any]) -> None:
        if (error := self._try(items, values)) is None:
            return
        count = len(items)
        whole = isinstance(error, ProcessDiedError | WrongResultsError | KeyboardInterrupt)
        if count > 1 and self._bisect and not whole:
            middle = count // 2
            self._call_part(items[:middle], values[:middle])
            self._call_part(items[middle:], values[middle:])
            return
        _log(f"a call of {count} items", error)
        for item in items:
            item.fail(_own(error, count))

    def _try(self, items: list[Item], values: list[Any]) -> BaseException | None:
        """Call the function and give items their results. Returns what it raised, or None."""
        try:
            results = self._calling.call(values)
        except BaseException as error:
            return error
        for item, result in zip(items, results, strict=True):
            if isinstance(result, BaseException):
                item.fail(result)
            else:
                item.result = result
        return None

    def _pieces(self, items: list[Item], batch: Batch) -> Iterator[Sequence[Any]]:
        """Pad the items and call the generator. Padding happens when the first piece is asked for,
        so an error in `pad` is handled like one in the function."""
        yield from self._calling.stream(self._values(items, batch))

    def _next(self, rows: tuple[Row, ...]) -> Output:
        """The output of a step: the next piece of each row's item."""
        places = [self._places[row.sequence] for row in rows]
        try:
            pieces = next(self._stream)
        except StopIteration:
            return Output(((END,),) * len(rows))
        except BaseException as error:
            _log(f"a call of {len(rows)} items", error)
            for _, item in places:
                item.fail(_own(error, len(rows)))
            why = first_line(error)
            return Output(((),) * len(rows), errors=dict.fromkeys(range(len(rows)), why))
        tokens, errors = list[tuple[int, ...]](), dict[int, str]()
        for row, (place, item) in enumerate(places):
            piece = pieces[place]
            if isinstance(piece, BaseException):
                item.fail(piece)
                errors[row] = first_line(piece)
                tokens.append(())
            elif piece is DONE:
                tokens.append((END,))
            else:
                item.pieces.append(piece)
                tokens.append((MORE,))
        return Output(tuple(tokens), errors=errors)

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, iter(())
        try:
            if close := getattr(stream, "close", None):
                close()
        except BaseException as error:  # its items have ended, so there is no caller left to tell
            _log("the end of a stream", error)


def _own(error: BaseException, count: int) -> BaseException:
    """One item's own error, where `count` items share the cause. If one exception were raised for
    all of them, it would collect all their tracebacks."""
    if count == 1:
        return error
    own = SharedError(f"the call of {count} items failed: {first_line(error)}")
    own.__cause__ = error
    return own


class SharedError(Exception):
    """The whole call failed, so all of its items failed. __cause__ is what the function raised."""


def _log(what: str, error: BaseException) -> None:
    """Log one line without a traceback: each caller gets the exception itself."""
    why = f"{type(error).__name__}: {first_line(error)}"
    logging.getLogger("headway.batching").warning("%s failed: %s", what, why)
