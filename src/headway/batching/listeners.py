"""What listens to a batcher's calls (Rows, Staged), in its engine's thread."""

import logging
from collections.abc import Callable
from typing import ParamSpec

from headway.core.accounts.stages import RequestStages
from headway.core.ledger import RequestRow, StepRow

Rows = Callable[[list[StepRow], list[RequestRow]], object]
Staged = Callable[[list[RequestStages]], object]
P = ParamSpec("P")


def logged(name: str, listener: Callable[P, object]) -> Callable[P, None]:
    """Call the listener, and log what it raises: the items' callers are told all the same."""

    def call(*args: P.args, **more: P.kwargs) -> None:
        try:
            listener(*args, **more)
        except Exception:  # the edge of the engine's thread: it would end the batcher
            logging.getLogger("headway.batching").exception("`%s` failed after a call", name)

    return call
