"""The documents' tables and numbers, kept equal to what the parts say.

In Markdown a table stands between `<!-- table: padding -->` and `<!-- end -->`, and a number in
a sentence is followed by its name: `68.1<!--=padding.code_fifo_16-->`. Readers see neither.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.textbook.part import Part

DOCUMENT = Path("docs/strategies.md")
DOCUMENTS = (DOCUMENT, Path("docs/textbook.md"))
TABLE = re.compile(r"<!-- table: ([\w.]+) -->\n.*?<!-- end -->", re.DOTALL)
NUMBER = re.compile(r"([\d,]*\d(?:\.\d+)?)<!--=([\w.]+)-->")


def named(text: str) -> set[str]:
    """The parts that a document quotes."""
    found = [match[1] for match in TABLE.finditer(text)]
    found += [match[2] for match in NUMBER.finditer(text)]
    return {name.split(".")[0] for name in found}


def refreshed(text: str, parts: Mapping[str, Part]) -> str:
    """The document as it would read now; what other parts say is left as it is.

    KeyError names a table or a figure that its part does not have.
    """
    tables = {
        f"{name}.{table.name}".rstrip("."): table
        for name, part in parts.items()
        for table in part.tables
    }
    figures = {
        f"{name}.{figure}": value
        for name, part in parts.items()
        for figure, value in part.figures.items()
    }

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name.split(".")[0] not in parts:
            return match[0]
        return f"<!-- table: {name} -->\n{tables[name].markdown()}\n<!-- end -->"

    def number(match: re.Match[str]) -> str:
        said, name = match[1], match[2]
        if name.split(".")[0] not in parts:
            return match[0]
        places = len(said.partition(".")[2])
        return f"{figures[name]:,.{places}f}<!--={name}-->"

    return NUMBER.sub(number, TABLE.sub(table, text))
