"""What a generator yields for an item that has ended before its neighbours (DONE)."""

from enum import Enum
from typing import Final


class _Done(Enum):
    DONE = "done"

    def __repr__(self) -> str:
        return "headway.DONE"


DONE: Final = _Done.DONE  # yielded in an item's place: nothing more comes for it
