"""Live stages: the items of a pipeline in a Batcher (BatcherPort)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from headway.batching.batcher import Batcher
from headway.batching.decorator import BatchedFunction
from headway.batching.item import Failure, Item, News, Offer, Piece
from headway.core.request import Finish
from headway.pipelines.workflow import Outcome, Work


class Ears(NamedTuple):
    """Callbacks for what becomes of items, called in the stages' own threads."""

    # An item has ended. Its outcome may be asked for once the stage's `offer` has returned.
    ended: Callable[[Work, Callable[[Work], Outcome]], object]
    piece: Callable[[Work, Any], object]  # another piece of the last stage's answer


class _Ticket(NamedTuple):
    """An item, and the batcher that has it."""

    batcher: Batcher
    item: Item


class BatcherPort:
    """A Batcher or a batched function as a stage. It may have other callers."""

    def __init__(self, work: Batcher | BatchedFunction, lane: str, ears: Ears) -> None:
        self._work, self._lane, self.ears = work, lane, ears
        batcher = self._batcher
        self.name, self.streams, self.settings = batcher.name, batcher.streams, batcher.settings

    @property
    def _batcher(self) -> Batcher:
        """The batcher that takes items now: a batched function starts another after `close`."""
        return self._work if isinstance(self._work, Batcher) else self._work.batcher

    def check_thread(self) -> None:
        """Raise SettingError in the threads of the stage."""
        self._work.check_thread()

    def offer(self, works: Sequence[Work]) -> None:
        offers = [
            Offer(
                work.value,
                _WorkSink(self, work),
                due=work.due,
                planned=work.planned,
                end_by=work.workflow.end_by,
            )
            for work in works
        ]
        batcher = self._batcher
        for work, item in zip(works, batcher.offer(offers, self._lane), strict=True):
            work.ticket = _Ticket(batcher, item)

    def drop(self, works: Sequence[Work]) -> None:
        for work in works:
            batcher, item = work.ticket
            batcher.drop([item])

    def drain(self) -> float:
        lanes = self._batcher.load.lanes
        return lanes[self._lane or next(iter(lanes))].drain


class _WorkSink:
    """The sink of one item: hears of it in the thread of the batcher's engine."""

    loop = None

    def __init__(self, port: BatcherPort, work: Work) -> None:
        self._port, self._work = port, work

    def take(self, news: News) -> None:
        if isinstance(news, Piece):
            self._port.ears.piece(self._work, news.value)
        else:
            self._port.ears.ended(self._work, partial(_outcome, news))


def _outcome(news: News, work: Work) -> Outcome:
    item = work.ticket.item
    if not isinstance(news, Failure):
        return Outcome(news.value, row=item.row, step=item.step)
    finish = item.row.finish if item.row else Finish.ERROR
    return Outcome(error=news.error, finish=finish, row=item.row, step=item.step)
