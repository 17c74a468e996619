"""What the README shows, runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python(block):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    if "llm.generate" in block:
        assert done.stdout.startswith("memory: ") and "ms to the first token" in done.stdout


def test_the_commands_are_there():
    made = (Path(__file__).parents[2] / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in made
    commands = "".join(path.read_text() for path in Path("src/headway/cli").glob("*.py"))
    for command in re.findall(r"headway (\w+) ", README):
        if command in ("compare", "check", "generate", "demo", "simulate", "replay", "plan"):
            assert f"def {command}(" in commands
