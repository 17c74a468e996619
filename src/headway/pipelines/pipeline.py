"""Pipeline: stages in a row, each with its own batches, and one deadline for the whole."""

import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import count
from typing import Any, Self

from headway.batching.item import (
    Deliveries,
    Failure,
    FutureSink,
    LoopQueueSink,
    LoopSink,
    News,
    Piece,
    QueueSink,
    Result,
    Sink,
)
from headway.batching.mapping import mapped
from headway.core.request import NEVER, Finish
from headway.errors import EngineDownError, EngineError, RefusedError, SettingError
from headway.live.clock import WallClock
from headway.pipelines.building import gives_pieces, live_places, streams
from headway.pipelines.course import Course
from headway.pipelines.graph import Program
from headway.pipelines.learned import learned_plan
from headway.pipelines.ports import BatcherPort, Ears
from headway.pipelines.row import WorkflowRow
from headway.pipelines.simulated.plan import Plan
from headway.pipelines.split import Learned, Splitting
from headway.pipelines.workflow import Outcome, Work, Workflow

LEARNED = Learned()
Rows = Callable[[WorkflowRow], object]


class Pipeline:
    """Runs each item through all stages. An item, with all that becomes of it, is a workflow.

    graph: stages chained by `>>` (pipelines.graph). deadline: seconds after which a workflow's
    result is of no use, unless the call sets its own; 0: none. split: how a deadline is divided
    over the stages. rows: gets the row of each workflow, in a stage's thread. It must be short, and
    must not call the pipeline.

    A context manager. Raises SettingError.
    """

    def __init__(
        self,
        graph: Any,
        *,
        deadline: float = 0,
        split: Splitting = LEARNED,
        rows: Rows = lambda row: None,
    ) -> None:
        program = Program.of(graph)
        self._deadline, self._rows = _checked(deadline), rows
        self._clock, self._numbers = WallClock(), count(1)
        self._changed = threading.Condition()
        self._closed = False
        self._stages = ExitStack()
        try:
            places = live_places(program, Ears(self._ended, self._piece), self._stages)
            split.check(len(places))
        except BaseException:
            self._stages.close()
            raise
        self._streams, self._in_pieces = streams(places[-1]), gives_pieces(program, places[-1])
        self._course = Course(program, places, split, self._keep)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let all workflows end, then close the batchers that the pipeline made. Batchers and LLMs
        that it was given stay open."""
        self._check_thread()
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._course.open)
        self._stages.close()

    def submit(self, item: Any, *, deadline: float | None = None) -> "Future[Any]":
        """A future of the item's result. Cancelling it ends the workflow.

        deadline: seconds; None: the pipeline's; 0: none. Once it is over, the workflow ends with
        DeadlineError, and its items in the stages are dropped. If one item of a workflow fails, the
        whole workflow fails with that error.
        Raises RefusedError if the line of any stage is full. The error's retry_at says when to try
        again, on the clock of time.monotonic_ns().
        """
        sink = FutureSink()
        workflow = self._begin(item, sink, deadline)
        sink.future.add_done_callback(functools.partial(self._drop_cancelled, workflow))
        return sink.future

    def call(self, item: Any, *, deadline: float | None = None) -> Any:
        """The item's result. Raises its error."""
        self._check_thread()
        return self.submit(item, deadline=deadline).result()

    async def acall(self, item: Any, *, deadline: float | None = None) -> Any:
        """As `call`, for asyncio. Cancelling the task ends the workflow."""
        self._check_thread()
        sink = LoopSink()
        workflow = self._begin(item, sink, deadline)
        try:
            return await sink.future
        finally:
            self._cancel(workflow)

    def map(self, items: Iterable[Any]) -> Iterator[Any]:
        """The results of any number of items, in their order. No more items run at once than the
        stages have places for. Raises the first error, and cancels the items behind it."""
        self._check_thread()
        return mapped(self.submit, items)

    def stream(self, item: Any, *, deadline: float | None = None) -> Iterator[Any]:
        """Yield the pieces of the last stage's answer. Leaving early ends the workflow.

        A last stage that is a generator function yields its pieces, and an LLM yields Deltas. Any
        other last stage yields one piece, its result.
        """
        self._check_thread()
        sink = QueueSink()
        workflow = self._begin(item, sink, deadline, pieces=True)
        try:
            while isinstance(news := sink.queue.get(), Piece):
                yield news.value
            if isinstance(news, Failure):
                raise news.error
        finally:
            self._cancel(workflow)

    async def astream(self, item: Any, *, deadline: float | None = None) -> AsyncIterator[Any]:
        """As `stream`, for asyncio."""
        self._check_thread()
        sink = LoopQueueSink()
        workflow = self._begin(item, sink, deadline, pieces=True)
        try:
            while isinstance(news := await sink.queue.get(), Piece):
                yield news.value
            if isinstance(news, Failure):
                raise news.error
        finally:
            self._cancel(workflow)

    def learned(self) -> Plan:
        """What the stages cost, as learned so far, for `simulate_pipeline` and `headway tune`.

        Raises SettingError if a stage was not called yet, or is an LLM.
        """
        with self._changed:
            return learned_plan(self._course.program, self._course.places, self._deadline)

    # -- what callers want

    def _begin(
        self, item: Any, sink: Sink, deadline: float | None, *, pieces: bool = False
    ) -> Workflow:
        if self._streams and not pieces:
            raise SettingError("the last stage yields pieces: use stream or astream")
        seconds = self._deadline if deadline is None else _checked(deadline)
        with self._changed:
            if self._closed:
                raise EngineDownError("the pipeline is closed")
            now = self._clock.now()
            if refused := self._course.refuse(now):
                raise RefusedError(refused.reason, refused.retry_at)
            end_by = now + int(seconds * 1e9) if seconds else NEVER
            workflow = Workflow(str(next(self._numbers)), now, end_by, sink, pieces)
            self._course.begin(workflow, item, now)
        self._deliver()
        return workflow

    def _check_thread(self) -> None:
        """Raise SettingError in a thread of a stage, which does nothing while it waits."""
        for place in self._course.places:
            if isinstance(place.port, BatcherPort):
                place.port.check_thread()

    def _cancel(self, workflow: Workflow) -> None:
        if not workflow.finish:
            with self._changed:
                self._course.cancel(workflow, self._clock.now())
            self._deliver()

    def _drop_cancelled(self, workflow: Workflow, future: "Future[Any]") -> None:
        if future.cancelled():
            self._cancel(workflow)

    # -- what stages tell, in their threads

    def _ended(self, work: Work, outcome: Callable[[Work], Outcome]) -> None:
        with self._changed:
            self._course.ended(work, outcome(work), self._clock.now())
        self._deliver()

    def _piece(self, work: Work, value: Any) -> None:
        workflow = work.workflow
        if workflow.pieces and not workflow.finish and self._course.is_last(work):
            _tell(workflow, Piece(value))

    def _keep(self, row: WorkflowRow) -> None:
        try:
            self._rows(row)
        except Exception:  # the edge of a stage's thread: other items go on
            logging.getLogger("headway.pipelines").exception("`rows` failed with a workflow's row")

    def _deliver(self) -> None:
        """Tell callers their results, outside the lock, because callers may then do anything."""
        with self._changed:
            answers = self._course.take_answers()
            if not self._course.open:
                self._changed.notify_all()
        for workflow in answers:
            if workflow.pieces and not self._in_pieces and workflow.finish is Finish.COMPUTED:
                _tell(workflow, Piece(workflow.value))
            _tell(workflow, _news(workflow))


def _checked(deadline: float) -> float:
    if not 0 <= deadline < 1e18:  # as nanoseconds it must be a number
        raise SettingError(f"a deadline of {deadline} seconds cannot be kept")
    return deadline


def _news(workflow: Workflow) -> News:
    if workflow.error is not None:
        return Failure(workflow.error)
    if workflow.finish is Finish.CANCELLED:
        return Failure(EngineError("the workflow was cancelled"))
    return Result(workflow.value)


def _tell(workflow: Workflow, news: News) -> None:
    """Tell the workflow's caller. What its callbacks raise is logged: it would end an engine."""
    if workflow.sink is not None:
        deliveries = Deliveries()
        deliveries.add(workflow.sink, news)
        deliveries.send()
