"""docs/architecture.md has a place for every file."""

import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headway"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def named():
    """By part, the names and patterns between backquotes; a folder's ends with a slash."""
    listed = PAGE.partition("## One line per file")[2].partition("## Words")[0]
    parts = re.split(r"^(The root|\w+/).*\n", listed, flags=re.MULTILINE)[1:]
    return {
        part.removesuffix("/"): re.findall(r"`([\w*/.]+)`", text)
        for part, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_file_is_named_and_every_name_is_a_file():
    names = named()
    for path in SOURCE.rglob("*.py"):
        part, *rest = path.relative_to(SOURCE).parts
        part, name = (part, "/".join(rest)) if rest else ("The root", part)
        mine = [each + "*" if each.endswith("/") else each for each in names.get(part, [])]
        if not path.stem.startswith("__"):
            assert any(fnmatch(name, each) for each in mine), f"{part}: {name} has no place there"
    for part, mine in names.items():
        folder = SOURCE if part == "The root" else SOURCE / part
        for each in mine:
            assert list(folder.rglob(each.strip("/"))), f"{part}: {each} is no file"
