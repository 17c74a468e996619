"""Functions that test_several.py serves beside models."""

import os
import time

import headway
from headway.core.scheduler import Scheduler


@headway.batch(size=8, lanes={"fast": 5.0})
def shout(texts: list[str]) -> list[str]:
    """Texts in capitals."""
    for text in texts:
        if text == "exit":
            os._exit(3)
        if text == "fault":
            Scheduler.commit = None  # ends the batcher's engine
        if text == "print":
            print("said by the function")
        if text == "slow":
            time.sleep(0.5)
    return [ValueError("not here") if text == "bad" else text.upper() for text in texts]


@headway.batch
def count(items: list[int]):
    """The numbers below each."""
    for number in range(max(items) + 1):
        yield [number if number < each else headway.DONE for each in items]
