"""Functions that a configuration of the tests names."""


def is_short(text):
    return len(text) < 3


async def length(text):
    return len(text)
