"""Ids of what is stored. They sort by when they were made."""

import re
from itertools import count
from secrets import token_hex

NUL = "\0"  # PostgreSQL has none in a text, and refuses to look for one
_made = count()


def new_id(prefix: str, now: int) -> str:
    """now: Unix seconds. The count keeps the order within a second, the random bits make ids of
    other processes differ."""
    return f"{prefix}{now:09x}{next(_made) & 0xFFFFFFF:07x}{token_hex(8)}"


def is_id(text: str, prefix: str) -> bool:
    """Whether it could be an id with this prefix."""
    return re.fullmatch(prefix + "[0-9a-f]{32}", text) is not None
