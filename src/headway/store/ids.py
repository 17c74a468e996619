"""Ids of stored objects. They sort by creation time."""

import re
from itertools import count
from secrets import token_hex

NUL = "\0"  # PostgreSQL cannot store it in a text, and rejects queries that contain it
_made = count()


def new_id(prefix: str, now: int) -> str:
    """A new id. now: Unix seconds. The count keeps the order within a second; the random bits
    make ids of different processes differ."""
    return f"{prefix}{now:09x}{next(_made) & 0xFFFFFFF:07x}{token_hex(8)}"


def is_id(text: str, prefix: str) -> bool:
    """Whether the text has the form of an id with this prefix."""
    return re.fullmatch(prefix + "[0-9a-f]{32}", text) is not None
