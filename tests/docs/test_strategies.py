"""docs/strategies.md has its commands' figures, and its pictures are up to date."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.diagrams.drawings import FOLDER, STRATEGIES, bars, draw, drawings, run
from benchmarks.textbook.canvas import KINDS
from benchmarks.textbook.document import NUMBER, TABLE, named, refreshed
from benchmarks.textbook.part import ARITHMETIC, Part, Table
from headway.traffic.trace import read_shipped_trace

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "strategies.md"
TEXT = DOCUMENT.read_text()
COMMANDS = sorted(set(re.findall(r"`((?:python -m|headway|mkdocs) [^`]+)`", TEXT)))
CLOCKED = {"curve", "stall_measured"}  # real time on a real engine: tested only to run
ELSEWHERE = {"budgets", "strategies"}  # benchmarks of their own, which take long
BENCHMARKS = {  # named only
    "python -m benchmarks.strategies",
    "python -m benchmarks.budgets",
    "python -m benchmarks.budgets --machine embedded",
    "python -m benchmarks.lanes.overload",
    "headway demo",
}


# A neighbour on the machine must not stall OpenMP's barriers: see benchmarks/textbook/engine.py.
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}


def ran(command, *more):
    words = [sys.executable, *shlex.split(command)[1:], *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=ROOT, env=ALONE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_is_known_or_run_here():
    parts = {f"python -m benchmarks.textbook --part {name}" for name in named(TEXT) - ELSEWHERE}
    known = {"python -m benchmarks.textbook", "python -m benchmarks.diagrams", *BENCHMARKS}
    assert set(COMMANDS) == parts | known
    assert all(f"`{command}`" in TEXT for command in BENCHMARKS)


@pytest.mark.evidence
@pytest.mark.parametrize("part", sorted(named(TEXT) - CLOCKED - ELSEWHERE))
def test_the_page_has_the_figures_that_the_command_gives_now(part, written):
    text, figures = written(part, TEXT)
    assert text == TEXT
    quoted = {match[2] for match in NUMBER.finditer(TEXT) if match[2].startswith(f"{part}.")}
    assert quoted <= figures.keys()


# Figures of a line fitted through times measured once; a neighbour may tilt it either way.
FITTED = {"curve.fixed_ms", "curve.each_ms", "curve.knee", "curve.each_share"}


@pytest.mark.evidence
@pytest.mark.parametrize("part", sorted(CLOCKED))
def test_a_measured_part_runs(part):
    said = ran(f"python -m benchmarks.textbook --part {part}", "--quick")
    figures = json.loads(said.splitlines()[-1])["figures"]
    took = [value for name, value in figures.items() if name not in FITTED]
    assert took and all(value > 0 for value in took)
    table = next(match[0] for match in TABLE.finditer(TEXT) if match[1] == part)
    assert table.count("\n") > 4, f"python -m benchmarks.textbook --part {part} --write"


def quoted(name):
    """The number that the page shows under this name."""
    said = {match[1] for match in NUMBER.finditer(TEXT) if match[2] == name}
    assert len(said) == 1, f"{name} has the values {said}"
    return float(said.pop().replace(",", ""))


def recorded(name):
    return [arrival.answer for arrival in read_shipped_trace(name)]


def longest_over_mean(answers, size):
    """The ratio over the full groups, in order of arrival."""
    groups = list(zip(*[iter(answers)] * size, strict=False))
    return size * sum(map(max, groups)) / sum(map(sum, groups))


@pytest.mark.parametrize(("key", "name"), [("conv", "azure2023-conv"), ("code", "azure2023-code")])
def test_the_quoted_gain_is_longest_over_mean_of_all_recorded_requests(key, name):
    answers = recorded(name)
    for size in (16, 256):
        gain = longest_over_mean(answers, size)
        assert quoted(f"saturation.{key}_{size}_formula") == pytest.approx(gain, abs=0.05)
    rows = [line for line in TEXT.splitlines() if line.startswith(f"| {name}, all ")]
    said = [float(cell) for cell in rows[0].split(" | ")[1:5]]
    gains = [longest_over_mean(answers, size) for size in (8, 16, 64, 256)]
    assert said == pytest.approx(gains, abs=0.006)


@pytest.mark.parametrize(("key", "name"), [("conv", "azure2023-conv"), ("code", "azure2023-code")])
def test_the_quoted_share_of_held_slots_is_1_minus_mean_over_longest(key, name):
    answers = recorded(name)
    groups = [answers[at : at + 16] for at in range(0, len(answers), 16)]
    computed = sum(len(group) * max(group) for group in groups)
    share = 100 * (1 - sum(answers) / computed)
    assert quoted(f"padding.{key}_held") == pytest.approx(share, abs=0.06)


def test_the_gain_for_uniform_lengths_is_its_expectation():
    longest = sum(k * ((k / 200) ** 16 - ((k - 1) / 200) ** 16) for k in range(1, 201))
    assert quoted("saturation.uniform_16_formula") == pytest.approx(longest / 100.5, abs=0.006)


def test_a_simulated_prompt_takes_the_time_of_its_flop():
    """45 % of 989 TFLOP/s, for an 8B model's layers and a causal prompt's attention."""
    hidden, inner, keys, layers, prompt = 4_096, 14_336, 1_024, 32, 8_192
    weights = layers * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * inner)
    attention = 4 * layers * hidden * prompt * (prompt + 1) // 2
    seconds = (2 * weights * prompt + attention) / (0.45 * 989e12)
    assert quoted("stall.prompt_rate") == pytest.approx(prompt / seconds, rel=0.05)
    assert quoted("stall.mixed_whole_ttft_ms") == pytest.approx(1e3 * seconds, rel=0.05)


def test_the_pictures_show_what_the_scheduler_does_now():
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
