"""docs/strategies.md says what its commands say; its pictures are what the scheduler does now."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.diagrams import FOLDER, STRATEGIES, bars, draw, drawings, run
from benchmarks.textbook.canvas import KINDS
from benchmarks.textbook.document import NUMBER, TABLE, named, refreshed
from benchmarks.textbook.part import ARITHMETIC, Part, Table

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "strategies.md"
TEXT = DOCUMENT.read_text()
COMMANDS = sorted(set(re.findall(r"`((?:python -m|headway|mkdocs) [^`]+)`", TEXT)))
CLOCKED = {"curve", "stall_measured"}  # real time on a real engine: only seen to run
BENCHMARKS = {"python -m benchmarks.strategies", "headway demo"}  # minutes, and named as such


# A neighbour on the machine must not stall OpenMP's barriers: see benchmarks/textbook/engine.py.
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}


def ran(command, *more):
    words = [sys.executable, *shlex.split(command)[1:], *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=ROOT, env=ALONE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_is_a_benchmark_or_run_here():
    parts = {f"python -m benchmarks.textbook --part {name}" for name in named(TEXT)}
    known = {"python -m benchmarks.textbook", "python -m benchmarks.diagrams", *BENCHMARKS}
    assert set(COMMANDS) == parts | known
    assert all(f"`{command}`" in TEXT for command in BENCHMARKS)


@pytest.mark.parametrize("part", sorted(named(TEXT) - CLOCKED))
def test_the_document_says_what_the_command_says_now(part, tmp_path):
    copy = tmp_path / "strategies.md"
    copy.write_text(TEXT)
    said = ran(f"python -m benchmarks.textbook --part {part}", "--write", str(copy))
    assert copy.read_text() == TEXT
    figures = json.loads(said.splitlines()[-1])["figures"]  # the line is there, and last
    quoted = {match[2] for match in NUMBER.finditer(TEXT) if match[2].startswith(f"{part}.")}
    assert quoted <= figures.keys()


# Of a line through times that were taken once: a neighbour may turn it either way.
FITTED = {"curve.fixed_ms", "curve.each_ms", "curve.knee"}


@pytest.mark.parametrize("part", sorted(CLOCKED))
def test_a_measured_part_runs(part):
    said = ran(f"python -m benchmarks.textbook --part {part}", "--quick")
    figures = json.loads(said.splitlines()[-1])["figures"]
    took = [value for name, value in figures.items() if name not in FITTED]
    assert took and all(value > 0 for value in took)
    table = next(match[0] for match in TABLE.finditer(TEXT) if match[1] == part)
    assert table.count("\n") > 4, f"python -m benchmarks.textbook --part {part} --write"


def test_the_pictures_are_what_the_scheduler_does_now():
    folder = ROOT / FOLDER
    drawn = drawings()
    assert {path.name for path in folder.iterdir()} == drawn.keys()
    for name, text in drawn.items():
        assert (folder / name).read_text() == text, f"{name}: python -m benchmarks.diagrams"
        assert f"(diagrams/{name})" in TEXT
    assert len(set(drawn.values())) == len(drawn)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_picture_has_a_bar_for_every_row_and_finished_slot(name):
    served = run(STRATEGIES[name][1])
    drawn = list(bars(served))
    for step in served.steps:
        kinds = [bar.kind for bar in drawn if bar.began == step.began]
        assert kinds.count("prompt") + kinds.count("decode") == step.rows
        assert kinds.count("held") == step.held
        inside = step.began, step.began + step.nanoseconds
        padded = [b for b in drawn if b.kind == "padding" and inside[0] < b.began < inside[1]]
        assert bool(padded) == bool(step.padding_tokens)
        cells = [(b.ended - b.began) * step.width / step.nanoseconds for b in padded]
        assert sum(cells) == pytest.approx(step.padding_tokens, abs=1e-3)
    svg = ElementTree.fromstring(draw("title", served, served.nanoseconds))
    said = " ".join(svg.itertext())
    assert all(words in said for *_, words in KINDS.values()), "the legend names every colour"


def test_a_number_is_rewritten_with_its_decimals_and_a_table_whole():
    part = Part(ARITHMETIC, [Table(["a", "b"], [["x", "2"]])], {"big": 1234.56})
    text = "1<!--=p.big--> 9.9<!--=p.big--> 7<!--=q.big-->\n<!-- table: p -->\nold\n<!-- end -->"
    assert refreshed(text, {"p": part}) == (
        "1,235<!--=p.big--> 1,234.6<!--=p.big--> 7<!--=q.big-->\n"
        "<!-- table: p -->\n| a | b |\n| --- | ---: |\n| x | 2 |\n<!-- end -->"
    )
    with pytest.raises(KeyError):
        refreshed("1<!--=p.none-->", {"p": part})


def test_the_pages_build_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="pip install -e '.[dev]' brings mkdocs")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    page = (tmp_path / "strategies.html").read_text()
    fetched = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"', page)
    assert not fetched, "a reader fetches nothing from elsewhere"
