"""The shipped text that prompts are cut from."""

import gzip
from importlib.resources import files

from headway.errors import SettingError

LINES_PER_PIECE = 25  # lines of the text that are encoded at once


def read_corpus() -> str:
    """The shipped text for prompts: documentation that the embedded model was not trained on."""
    path = files("headway") / "data" / "corpus.txt.gz"
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except OSError as error:
        raise SettingError(f"the text for the prompts cannot be read: {error}") from error


def split_text(text: str) -> list[str]:
    """The text in pieces of half a page, because tokenizing takes more than linear time."""
    lines = text.splitlines(keepends=True)
    return [
        "".join(lines[at : at + LINES_PER_PIECE]) for at in range(0, len(lines), LINES_PER_PIECE)
    ]
