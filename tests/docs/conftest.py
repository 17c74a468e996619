"""The command that writes a part's figures into a page, run in this process."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.textbook.__main__ import main


@pytest.fixture
def written(monkeypatch, capsys, tmp_path):
    """Gives a page as `python -m benchmarks.textbook --part ... --write` leaves it, and the figures
    of the last line, which is JSON. Parts that share a simulation run it once."""

    def write(part, text):
        copy = tmp_path / "page.md"
        copy.write_text(text)
        words = ["benchmarks.textbook", "--part", part, "--write", str(copy)]
        monkeypatch.setattr(sys, "argv", words)
        monkeypatch.chdir(Path(__file__).parents[2])
        assert main() == 0
        return copy.read_text(), json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]

    return write
