"""Results of many items in their order, without flooding a line (mapped)."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from headway.core.request import NEVER
from headway.errors import RefusedError


def mapped(
    submit: Callable[[Any], "Future[Any]"], items: Iterable[Any], most: int = NEVER
) -> Iterator[Any]:
    """Yield the results of items, in order. At most `most` are open at once. An item that is
    refused waits until an earlier one has ended. If none is open, the RefusedError is raised.

    Raises the first error and cancels the items behind it.
    """
    waiting: deque[Future[Any]] = deque()
    try:
        for item in items:
            if len(waiting) == most:
                yield waiting.popleft().result()
            while (future := _submitted(submit, item, bool(waiting))) is None:
                yield waiting.popleft().result()
            waiting.append(future)
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _submitted(
    submit: Callable[[Any], "Future[Any]"], item: Any, may_wait: bool
) -> "Future[Any] | None":
    try:
        return submit(item)
    except RefusedError:
        if may_wait:
            return None
        raise
