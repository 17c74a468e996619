"""printable: a text that a terminal shows and does not obey."""


def printable(text: str) -> str:
    """The text with every character escaped that could end a line or control a terminal."""
    return text if text.isprintable() else "".join([_escaped(each) for each in text])


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
