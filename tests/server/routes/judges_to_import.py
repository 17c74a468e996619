"""Functions that a configuration of the tests names."""

import sys
import threading


def is_short(text):
    return len(text) < 3


async def length(text):
    return len(text)


def first_number(text):
    return next(word for word in text.split() if word.isdecimal())


def leave(text):
    sys.exit(3)


def never(text):
    threading.Event().wait()
