"""docs/architecture.md has a line for every folder, and every file that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headway"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_source_folder_has_a_line_on_the_page():
    table = PAGE.partition("## One line per folder")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([\w/]+)/` \|", table, flags=re.MULTILINE)
    folders = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    assert sorted(named) == sorted((folders | {"data"}) - {"."})


def test_every_file_named_on_the_page_exists():
    for name in re.findall(r"`([\w/]+\.py)`", PAGE):
        assert (SOURCE / name).exists() or (ROOT / name).exists(), name
    way = PAGE.partition("## A request through the server")[2].split("```")[1]
    for line in way.splitlines():
        folder = ""
        for name in re.findall(r"[\w/]+\.py", line):
            folder = name.rpartition("/")[0] or folder  # a bare name is in the folder before it
            path = SOURCE / "server" / folder / name.rpartition("/")[2]
            assert path.exists(), name


def test_the_floors_on_the_page_are_those_of_the_architecture_test():
    from tests.test_architecture import FLOORS

    floors = PAGE.partition("## The floors")[2].partition("\n## ")[0]
    floor, found = 0, {}
    for line in floors.splitlines():
        if begins := re.match(r"\s*(\d+)  ", line):
            floor = int(begins[1])
        found |= {name: floor for name in re.findall(r"(\w+)(?:/|\.py)", line) if name in FLOORS}
    assert found.items() <= FLOORS.items() and len(found) >= 18
