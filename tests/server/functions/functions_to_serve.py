"""Functions that test_functions.py serves."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field

import headway
from headway.core.request import NEVER
from headway.errors import (
    DeadlineError,
    EngineDownError,
    PromptError,
    RefusedError,
    SettingError,
)

HELD = threading.Semaphore(0)
CALLED = threading.Event()


class Where(BaseModel):
    city: str


class Ask(BaseModel):
    text: str
    times: int = 1
    where: Where | None = None


class Said(BaseModel):
    upper: str
    together: int


@headway.batch(size=8, lanes={"fast": 5.0, "slow": None}, max_waiting=20)
def shout(items: list[Ask]) -> list[Said]:
    """Texts in capitals.

    As loud as they come.
    """
    return [
        ValueError(f"{each.text!r} is not said here")
        if each.text == "bad"
        else Said(upper=each.text.upper() * each.times, together=len(items))
        for each in items
    ]


@headway.batch(size=4, max_waiting=4)
def held(items):
    for _ in items:
        assert HELD.acquire(timeout=30)
    return items


@headway.batch
def count(items: list[int]):
    """The numbers below each."""
    for number in range(max(items) + 1):
        if number == 7:
            raise RuntimeError("seven is too many")
        yield [number if number < each else headway.DONE for each in items]


@headway.batch
def pausing(items: list[int]):
    """Each number, and the end once HELD is released."""
    yield items
    assert HELD.acquire(timeout=30)
    yield [headway.DONE for _ in items]


@headway.batch
def late(items: list[int]):
    """Nothing comes before HELD is released; 7 fails then."""
    CALLED.set()
    assert HELD.acquire(timeout=30)
    if items == [7]:
        raise RuntimeError("seven is too many")
    yield items


def pouring(items: list[int]):
    """Pieces without end."""
    piece = ["x" * 100_000 for _ in items]
    while True:
        yield piece


def double(items: list[np.ndarray]) -> list[Annotated[np.ndarray, "twice as large"]]:
    return [2 * each for each in items]


def square(
    items: Annotated[list[Annotated[int, Field(ge=-9, le=9)]], "what they are"],
) -> list[int]:
    return [each * each for each in items]


async def slowly(items: list[float]) -> list[float]:
    return [each / 2 for each in items]


def leave(items):
    if "exit" in items:
        sys.exit(3)
    return items


OWN = {
    "setting": SettingError("the function's own mistake"),
    "refused": RefusedError("the line of another function is full", NEVER),
    "late": DeadlineError("another function took too long"),
    "down": EngineDownError("another function was closed"),
    "item": PromptError("no such page"),
}


def misused(items):
    return [OWN[each] for each in items]


def misused_stream(items):
    yield items
    raise OWN[items[0]]


def stop(items):
    if "stop" in items:
        os.kill(os.getpid(), signal.SIGSTOP)
    return [os.getpid() for _ in items]


def strange(items):
    return [object() for _ in items]


def stranger(items: list[int]):
    yield items
    yield [object() for _ in items]


def strange_at_seven(items: list[int]):
    return [object() if each == 7 else each for each in items]


def digits(items: list[int]) -> list[int]:
    return [10**each for each in items]


class Adder:
    def __init__(self, by):
        self.by = by

    def __call__(self, items: list[int]) -> list[int]:
        return [each + self.by for each in items]


add_three = Adder(3)
number = 5


def text_of(text: str) -> str:
    return text


def sized(items, sizes: list[int] = ()) -> list[str]:
    return items


def sharing(words: dict[str, int]) -> list[int]:
    """What is no function of a list."""


def broken(items: "list[Missing]"):  # noqa: F821
    return items


def adders(items: list[int]) -> list[Callable[[int], int]]:
    return [lambda other, each=each: each + other for each in items]


def called(items: list[Callable[[int], int]]) -> list[int]:
    return [each(1) for each in items]


def at(seconds):
    time.sleep(seconds)
