"""FunctionExecutor: an executor whose step is a call of a function, or the next stream pieces."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Lock, get_ident
from typing import Any

from headway.batching.calling import Calling, ProcessDiedError, WrongResultsError
from headway.batching.item import Item
from headway.batching.stream import DONE
from headway.core.batch import Batch, Output, Row
from headway.engine import Executor
from headway.errors import EngineError, first_line
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
Called = tuple[Item, Any]  # an item, and its value as the function gets it
NOWHERE = -1  # the place of an item that failed before its streaming call


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
        self._ident = 0  # of that thread
        self._outputs: dict[int, Future[Output]] = {}
        self._tell: Callable[[], object] = lambda: None  # called when a step is back
        self._stream: Iterator[Sequence[Any]] = iter(())
        self._closed = False
        self._streaming = set[Item]()  # of the generator's call: those that have not ended
        self._ending: Future[None] = Future()  # of the latest generator whose items have all ended
        self._ending.set_result(None)
        # By sequence: the place in the streaming call, and the item.
        self._places: dict[int, tuple[int, Item]] = {}

    def submit(self, batch: Batch) -> int:
        begins = [row for row in batch.rows if row.start == 0 and row.sequence >= 0]
        items = [self._items[str(row.tokens[0])] for row in begins]
        if self._streams:
            for sequence in batch.ended:
                self._places.pop(sequence, None)
            if begins:
                self._streaming = set(items)
        self._begun(items)
        begins_now = not self._outputs and self._ending.done()
        started = Lock()
        started.acquire()
        output = self._thread.submit(self._compute, batch, begins, items, started)
        self._outputs[batch.step] = output
        output.add_done_callback(lambda _: self._tell())
        # Wait for the function's thread to start, if it is free. Otherwise the engine would keep
        # the GIL and tell callers first.
        if begins_now:
            started.acquire()
        return batch.step

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is in the function's thread, which calls nothing while it waits."""
        return get_ident() == self._ident

    def on_back(self, tell: Callable[[], object]) -> None:
        self._tell = tell

    def is_back(self, ticket: int) -> bool:
        return self._outputs[ticket].done()

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket).result()

    def _compute(self, batch: Batch, begins: list[Row], items: list[Item], started: Lock) -> Output:
        self._ident = get_ident()
        started.release()
        began = self._clock.now()
        output = self._output(batch, begins, items)
        return replace(output, took=self._clock.now() - began)

    def _output(self, batch: Batch, begins: list[Row], items: list[Item]) -> Output:
        if batch.rows[0].sequence < 0:  # GuardedExecutor's probe: do steps work at all?
            return Output(((END,),))
        if not self._streams:
            self._call(self._padded(items, batch.width))
            return Output(((),) * len(batch.rows), errors=_errors(items))
        if begins:
            self._close_stream()
            called = self._padded(items, batch.width)
            self._stream = self._calling.stream([value for _, value in called])
            places = {item: at for at, (item, _) in enumerate(called)}
            self._places = {
                row.sequence: (places.get(item, NOWHERE), item)
                for row, item in zip(begins, items, strict=True)
            }
        return self._next(batch.rows)

    def ended(self, item: Item) -> None:
        """Hear, in the engine's thread, that an item has ended. After the last one of its call, the
        generator is closed, in the function's thread."""
        if item in self._streaming:
            self._streaming.remove(item)
            if not self._streaming:
                self._ending = self._thread.submit(self._close_stream)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._thread.submit(self._end).result()
            self._thread.shutdown()
            self._ident = 0  # another thread may have it now

    def _end(self) -> None:
        self._close_stream()
        self._calling.close()

    def _padded(self, items: list[Item], width: int) -> list[Called]:
        """The items that are still wanted, padded. An item that `pad` raises for fails alone."""
        called = list[Called]()
        for item in filter(_is_wanted, items):
            try:
                padded = self._pad(item.value, width) if self._pad and width else item.value
            except BaseException as error:
                _log("the padding of an item", error)
                item.fail(error)
            else:
                called.append((item, padded))
        return called

    def _call(self, called: list[Called]) -> None:
        """Give each item its result or its error. A call that raises is repeated in halves, without
        the items that were dropped meanwhile."""
        called = [each for each in called if _is_wanted(each[0])]
        if not called or (error := self._try(called)) is None:
            return
        count = len(called)
        whole = isinstance(error, ProcessDiedError | WrongResultsError | KeyboardInterrupt)
        if count > 1 and self._bisect and not whole:
            middle = count // 2
            self._call(called[:middle])
            self._call(called[middle:])
            return
        _log(f"a call of {count} items", error)
        for item, _ in called:
            item.fail(_own(error, count))

    def _try(self, called: list[Called]) -> BaseException | None:
        """Call the function and give items their results. Returns what it raised, or None."""
        try:
            results = self._calling.call([value for _, value in called])
        except BaseException as error:
            return error
        for (item, _), result in zip(called, results, strict=True):
            if isinstance(result, BaseException):
                item.fail(result)
            else:
                item.result = result
        return None

    def _next(self, rows: tuple[Row, ...]) -> Output:
        """The output of a step: the next piece of each row's item."""
        places = [self._places[row.sequence] for row in rows]
        called = [item for place, item in places if place != NOWHERE]
        pieces: Sequence[Any] | None = None  # the generator has ended
        try:
            if called:
                pieces = next(self._stream, None)
        except BaseException as error:
            _log(f"a call of {len(called)} items", error)
            for item in called:
                item.fail(_own(error, len(called)))
        tokens = list[tuple[int, ...]]()
        for place, item in places:
            piece = DONE if pieces is None or place == NOWHERE else pieces[place]
            if isinstance(piece, BaseException):
                item.fail(piece)
            elif piece is not DONE:
                item.pieces.append(piece)
            tokens.append(() if item.error else (END,) if piece is DONE else (MORE,))
        return Output(tuple(tokens), errors=_errors([item for _, item in places]))

    def _close_stream(self) -> None:
        """Close the generator, if there is one, and keep nothing of its items."""
        stream, self._stream, self._places = self._stream, iter(()), {}
        try:
            if close := getattr(stream, "close", None):
                close()
        except BaseException as error:  # its items have ended, so there is no caller left to tell
            _log("the end of a stream", error)


def _is_wanted(item: Item) -> bool:
    """Whether the item was not dropped. One that was has an error from now on."""
    if item.dropped:
        item.fail(EngineError(DROPPED))
    return item.error is None


def _errors(items: list[Item]) -> dict[int, str]:
    """What failed, by the place of the item."""
    return {at: first_line(each.error) for at, each in enumerate(items) if each.error}


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
