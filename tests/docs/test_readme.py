"""The examples of the README and of the library's page run."""

import re
from pathlib import Path

import pytest

from tests.cli.whole_command import parse

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LIBRARY = (ROOT / "docs" / "library.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README + LIBRARY, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_python_examples_run(block, capsys):
    exec(block, {"__name__": "readme"})
    said = capsys.readouterr().out
    if "llm.generate" in block:
        assert said.startswith("memory: ") and "ms to the first token" in said


def test_the_make_targets_shown_in_the_readme_exist():
    made = (ROOT / "Makefile").read_text()
    shown = re.findall(r"^    make (\w+)", README, re.MULTILINE)
    assert len(shown) > 1
    for target in shown:
        assert f"\n{target}:" in made


def commands(page):
    """The lines of a page's blocks that run headway. A line that ends in a backslash goes on."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"^    .*$", text, re.MULTILINE)
    lines = re.findall(r"^ *(?:\.venv/bin/)?(headway .*)$", "\n".join(blocks), re.MULTILINE)
    return [re.sub(r"\s+#.*", "", line) for line in lines]


PAGES = [
    *(ROOT / "README.md", ROOT / "examples" / "README.md"),
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.name}")
def test_every_command_shown_is_a_whole_command(page, monkeypatch):
    """It has what the command requires, and no option that the command does not know."""
    monkeypatch.delenv("HEADWAY_LEDGER__URL", raising=False)
    for line in commands(page):
        parse(line)


def test_commands_are_found_on_the_pages():
    assert len(commands(ROOT / "README.md")) > 8
    assert sum(len(commands(page)) for page in PAGES) > 50


def test_every_local_link_of_the_readme_exists():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).exists(), link
