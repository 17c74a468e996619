"""What the README shows, runs."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python(block, capsys):
    exec(block, {"__name__": "readme"})
    said = capsys.readouterr().out
    if "llm.generate" in block:
        assert said.startswith("memory: ") and "ms to the first token" in said


def test_the_commands_are_there():
    made = (Path(__file__).parents[2] / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in made
    commands = "".join(path.read_text() for path in Path("src/headway/cli").glob("*.py"))
    for command in re.findall(r"headway (\w+) ", README):
        if command in ("compare", "check", "generate", "demo", "simulate", "replay", "plan"):
            assert f"def {command}(" in commands
