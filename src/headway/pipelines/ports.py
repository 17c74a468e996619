"""Live stages: the items of a pipeline in a Batcher (BatcherPort)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from headway.batching.batcher import Batcher
from headway.batching.item import Failure, Item, News, Offer, Piece
from headway.core.request import Finish
from headway.pipelines.workflow import Outcome, Work


class Ears(NamedTuple):
    """Callbacks for what becomes of items, called in the stages' own threads."""

    # An item has ended. Its outcome may be asked for once the stage's `offer` has returned.
    ended: Callable[[Work, Callable[[Work], Outcome]], object]
    piece: Callable[[Work, Any], object]  # another piece of the last stage's answer


class BatcherPort:
    """A Batcher as a stage. It may have other callers."""

    def __init__(self, batcher: Batcher, lane: str, ears: Ears) -> None:
        self.batcher, self._lane, self.ears = batcher, lane, ears

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
        for work, item in zip(works, self.batcher.offer(offers, self._lane), strict=True):
            work.ticket = item

    def drop(self, works: Sequence[Work]) -> None:
        self.batcher.drop([work.ticket for work in works])

    def drain(self) -> float:
        lanes = self.batcher.load.lanes
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
    item: Item = work.ticket
    if not isinstance(news, Failure):
        return Outcome(news.value, row=item.row, step=item.step)
    finish = item.row.finish if item.row else Finish.ERROR
    return Outcome(error=news.error, finish=finish, row=item.row, step=item.step)
