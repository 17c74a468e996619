"""printable: a text that a terminal shows and does not obey."""

import re

# Control characters without the line's end and the tab, and those that turn the writing's direction
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with every character escaped that could end a line or control a terminal."""
    return text if text.isprintable() else "".join([_escaped(each) for each in text])


def harmless(text: str) -> str:
    """The text with every character escaped that could control a terminal. Lines stay lines."""
    return CONTROL.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
