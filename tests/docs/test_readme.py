"""The examples of the README and of the library's page run."""

import re
from pathlib import Path

import pytest

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


def test_the_commands_shown_in_the_readme_exist():
    made = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in made
    commands = "".join(path.read_text() for path in Path("src/headway/cli").rglob("*.py"))
    for command in re.findall(r"headway (\w+) ", README):
        if command in (
            "compare",
            "check",
            "generate",
            "demo",
            "simulate",
            "replay",
            "plan",
            "tune",
        ):
            assert f"def {command}(" in commands


def test_every_local_link_of_the_readme_exists():
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / link).exists(), link
