"""docs/textbook.md has its commands' figures, and the closed forms behind them hold."""

import json
import re
import shlex
from pathlib import Path
from statistics import linear_regression

import pytest

from benchmarks.strategies import kept_runs, part_of
from benchmarks.textbook import kept
from benchmarks.textbook.__main__ import BESIDE, CERTAIN, CLOCKED
from benchmarks.textbook.document import NUMBER, TABLE, named, refreshed
from benchmarks.textbook.quoted import sharing
from benchmarks.textbook.quoted.endpoints import EXAMPLE, FULL, WINDOWS
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.mix import Alternate, Mixed
from headway.strategies.from_yaml import strategy_from_parts
from headway.traffic.from_yaml import read_endpoints
from headway.traffic.trace import Arrival
from headway.yaml_values import read_yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "textbook.md").read_text()
STRATEGIES = (ROOT / "docs" / "strategies.md").read_text()
KEPT = ROOT / "benchmarks" / "textbook" / "quoted" / "recorded_hits.json"
RUN_HERE = sorted((named(TEXT) - named(STRATEGIES)) & CERTAIN.keys())
CLAIMS = (
    *("3 to 5 %", "70 to 85 %", "more than 90 %", "2 to 3 of 50 ms", "3 to 5 times", "20 to 50"),
    *("20 to 30 %", "30, 60, 150 to 200", "40, 80, 200", "above 64", "67 to 25 to 35 %"),
    *("61.25 to 3.1", "batch^0.6", "120 to 160", "8,535", "gives 5", "returns 1", "16 to 32"),
    *("30 to 40 %", "80 % and 20 %", "256 to 512", "1,024 to 2,048", "342, 440, 522 and 582"),
    *("594, 1,046, 1,803 and 3,028", "2 to 3 times", "Said: 3 times", "20 ms", "[100, 100, 2000]"),
    *("25, 25, 250 and 10 ms", "240, 260, 410 and 120 ms", "5,200, 5,100, 7,800 and 4,100"),
    *("0.556, 0.222, 0.185 and 0.139", "4 dollars an hour", "40 KB", "512", "do nothing"),
    *("chat sessions", "retrieval", "agents"),
)


def said(name):
    """The number that the page shows under this name."""
    found = {match[1] for match in NUMBER.finditer(TEXT) if match[2] == name}
    assert len(found) == 1, f"{name} has the values {found}"
    return float(found.pop().replace(",", ""))


def cells(part):
    """The body of a part's table."""
    table = next(match[0] for match in TABLE.finditer(TEXT) if match[1] == part)
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip().replace("\u00a0%", "") for cell in row.split("|")[1:-1]] for row in rows]


def test_every_claim_is_on_the_page_and_every_part_has_its_command():
    words = " ".join(TEXT.split())
    assert [claim for claim in CLAIMS if claim not in words] == []
    asked = set(re.findall(r"`--part (\w+)`", words))
    tables = {match[1].split(".")[0] for match in TABLE.finditer(TEXT)}
    assert asked == tables
    assert named(TEXT) <= CERTAIN.keys() | BESIDE.keys() | CLOCKED.keys() | {"strategies"}


@pytest.mark.evidence
@pytest.mark.parametrize("part", RUN_HERE)
def test_the_page_has_the_figures_that_the_command_gives_now(part, written):
    text, figures = written(part, TEXT)
    assert text == TEXT
    quoted = {match[2] for match in NUMBER.finditer(TEXT) if match[2].startswith(f"{part}.")}
    assert quoted <= figures.keys()


def test_a_figure_on_both_pages_is_the_same():
    """A test of strategies.md compares it with its command."""
    pages = [{match[2]: match[1] for match in NUMBER.finditer(page)} for page in (TEXT, STRATEGIES)]
    both = pages[0].keys() & pages[1].keys()
    assert {"padding.conv_bounds_16", "curve.knee"} - both == set()
    assert {name: pages[0][name] for name in both} == {name: pages[1][name] for name in both}


def test_recorded_hits_on_the_page_are_those_kept_from_their_run():
    recorded = json.loads(KEPT.read_text())
    shown = {match[2]: match[1] for match in NUMBER.finditer(TEXT)}
    mine = {name: text for name, text in shown.items() if name.startswith("recorded_hits.")}
    assert mine
    for name, text in mine.items():
        places = len(text.partition(".")[2])
        assert text == f"{recorded[name]:,.{places}f}"
    rows = cells("recorded_hits")
    assert rows[0][1] == f"{recorded['recorded_hits.prompt']:,.0f}"
    names = ("found", "later_found", "held_1", "held_8")
    shares = [recorded[f"recorded_hits.{name}"] for name in names]
    assert [float(row[2]) for row in rows] == pytest.approx(shares, abs=0.051)


def test_a_cache_evicts_the_least_recently_asked_block_and_a_prompts_end_first():
    def asked(*blocks):
        return Arrival(0, 512 * len(blocks) + 1, 1, blocks)

    every = [asked(1, 2), asked(3), asked(1, 2), asked(2, 1)]
    assert sharing.found(every) == [0, 0, 1_024, 1_024], "endless: each block that leads was asked"
    assert sharing.found(every, room=2) == [0, 0, 512, 1_024], "2 goes for 3, and 3 for 2"
    assert sharing.found(every, room=1) == [0, 0, 0, 0]
    assert sharing.found([Arrival(0, 512, 1, (1,))] * 2) == [0, 511], "never the last token"


@pytest.mark.skipif(
    not (ROOT / sharing.RECORDED).exists(), reason="the recorded trace does not ship"
)
def test_recorded_hits_are_what_the_trace_gives_now(monkeypatch):
    monkeypatch.chdir(ROOT)
    part = sharing.recorded()
    assert refreshed(TEXT, {"recorded_hits": part}) == TEXT
    recorded = json.loads(KEPT.read_text())
    assert {f"recorded_hits.{name}": round(v, 6) for name, v in part.figures.items()} == recorded


@pytest.mark.parametrize("part", sorted(CLOCKED))
def test_both_pages_show_the_measured_figures_of_the_kept_run(part):
    """Both pages show the figures of the kept rounds; strategies.md also names their machine."""
    run = kept.read(part)
    made = {part: CLOCKED[part][1](run.samples)}
    assert refreshed(TEXT, made) == TEXT
    assert refreshed(STRATEGIES, made) == STRATEGIES
    rows = STRATEGIES.split("## What was measured on")[1].splitlines()
    (row,) = [row for row in rows if f"`--part {part}`" in row]
    assert run.machine in row and "one thread" in row and run.threads == 1


def test_the_quoted_figures_of_the_curve_follow_from_its_table():
    table = next(match[0] for match in TABLE.finditer(STRATEGIES) if match[1] == "curve")
    rows = [line.split(" | ") for line in table.splitlines()[3:-1]]
    sizes = [int(row[0].removeprefix("| ")) for row in rows]
    times = [float(row[1]) for row in rows]
    gains = {size: float(row[5].removesuffix(" |")) for size, row in zip(sizes, rows, strict=True)}
    each, fixed = linear_regression(sizes, times)
    assert said("curve.each_share") == pytest.approx(100 * each / times[0], abs=0.06)
    assert said("curve.knee") == pytest.approx(fixed / each, abs=0.6)
    assert said("curve.gain_32") == gains[32]


def test_static_against_continuous_has_the_figures_of_the_kept_runs():
    runs = kept_runs()
    assert 1 in runs
    made = {"strategies": part_of(runs)}
    assert refreshed(TEXT, made) == TEXT
    assert refreshed(STRATEGIES, made) == STRATEGIES
    rows = STRATEGIES.split("## What was measured on")[1].splitlines()
    (row,) = [row for row in rows if "`benchmarks.strategies`" in row]
    assert all(run.machine in row for run in runs.values())


def test_a_decodes_share_of_the_flop_is_its_batch_over_the_ridge():
    ridge = 989e12 / 3.35e12  # FLOP per byte of an H100; two-byte weights give one per sequence
    assert said("utilisation.h100_1_at_0") == pytest.approx(100 / ridge, abs=0.06)
    assert said("utilisation.h100_batch_for_70") == pytest.approx(0.7 * ridge, abs=0.6)
    for batch, *_, weights, _ in cells("utilisation"):
        whole = int(batch.replace(",", ""))
        assert float(weights) == pytest.approx(min(100, 100 * whole / ridge), abs=0.06)


def test_the_sequences_that_fit_are_the_room_over_the_kv_memory_of_each():
    kv = 2 * 32 * 32 * 128 * 2
    assert said("fits.kv_kib") == kv / 1024
    assert said("fits.right") == (36e9 - 14e9) // (kv * 512)
    assert said("fits.many") == (72e9 - 2 * 8.03e9) // (2 * 32 * 8 * 128 * 2 * 4096)
    assert said("fits.printed_gb") == pytest.approx(8_535 * kv * 512 / 1e9, abs=0.6)


def test_padding_is_the_share_of_the_padded_batch_beyond_its_prompts():
    lengths = (32, 64, 128, 256, 512)
    assert said("short_lists.doubling") == pytest.approx(100 * (1 - sum(lengths) / (5 * 512)))
    assert said("short_lists.own") == pytest.approx(100 * (1 - sum(lengths) / 1_024), abs=0.06)
    assert said("short_lists.uneven") == pytest.approx(100 * (1 - 2_200 / 6_000), abs=0.06)
    assert said("short_lists.short_row") == 95


def test_the_gain_of_uniform_lengths_follows_from_their_spread():
    for share, size in ((12, 16), (13, 16)):
        s = said(f"unused.spread_{share}_of_16") / 100  # E[longest] = mean (1 + s (n-1) / (n+1))
        assert 1 + s * (size - 1) / (size + 1) == pytest.approx(share / 10, abs=0.005)
    for share in (20, 30):
        s = said(f"unused.spread_{share}") / 100
        assert 1 - 1 / (1 + s * 63 / 65) == pytest.approx(share / 100, abs=0.003)


def test_speculation_yields_the_geometric_sum_of_its_acceptance_rate():
    for accepted, tokens, *_ in cells("speculation"):
        rate = float(accepted)
        assert float(tokens) == pytest.approx(sum(rate**k for k in range(5)), abs=0.006)


def test_the_page_says_that_speculation_was_computed_and_not_run():
    section = TEXT.split("## Speculation")[1].split("\n## ")[0]
    assert "*Computed from acceptance rates, not run*" in section


def test_a_window_collects_the_first_request_and_those_that_come_during_it():
    for rate, law, simulated, wait, waited in cells("collecting"):
        size = 1 + int(rate) * 0.02
        assert float(law) == pytest.approx(size, abs=0.06)
        assert float(wait) == pytest.approx(20 * (1 + (size - 1) / 2) / size, abs=0.06)
        assert float(simulated) == pytest.approx(size, rel=0.03)
        assert float(waited) == pytest.approx(float(wait), rel=0.03)


def test_constructed_hits_are_the_blocks_that_were_asked_before():
    chat = sum(576 + 256 * (turn - 1) for turn in range(1, 10)) + 0.9 * 512
    agents = sum(2_048 + 512 * (step - 1) for step in range(1, 10)) + 0.9 * 512
    shares = {
        "chat": chat / sum(576 + 256 * turn for turn in range(10)),
        "retrieval": 0.99 * 512 / (512 + 6 * 512 + 64),
        "agents": agents / sum(2_048 + 512 * step for step in range(10)),
    }
    found = [float(row[3]) for row in cells("constructed_hits")]
    assert found == pytest.approx([100 * share for share in shares.values()], abs=0.06)


def test_dollars_are_dollars_an_hour_over_tokens_an_hour():
    for rate, quoted, hour, exact, idle in cells("dollars"):
        tokens = int(rate.replace(",", "")) * 3_600 / 1e6
        assert float(exact) == pytest.approx(4 / tokens, abs=6e-5)
        assert round(float(exact), 3) == float(quoted) and float(hour) == 4
        assert float(idle) == pytest.approx(4 / tokens / 0.3, abs=0.006)


def test_the_windows_quoted_are_those_of_the_example():
    windows = {each.name: each.window for each in read_endpoints(ROOT / EXAMPLE)}
    assert not any(each.follows for each in windows.values())
    quoted = {name: each.high / 1e6 for name, each in windows.items()}
    assert quoted == WINDOWS == {"chat": 25, "search": 25, "summaries": 250, "completion": 10}


def test_the_combinations_shown_on_the_page_are_valid_strategies(tmp_path):
    path = tmp_path / "strategies.yaml"
    path.write_text(re.findall(r"<!-- strategies -->\n```yaml\n(.*?)```", TEXT, re.DOTALL)[0])
    made = [strategy_from_parts(name, parts).policies for name, parts in read_yaml(path).items()]
    in_turn, together = made
    assert (in_turn.mix, together.mix) == (Alternate(), Mixed())
    for policies in (in_turn, together):
        assert policies.join == Continuous(128) and policies.chunk == Fixed(512)
        assert policies.step_tokens == 640
    assert said("phases.prompts") == 100 * 512 / 640


def test_the_example_is_run_as_the_page_says():
    commands = re.findall(r"```\n(headway .*?)```", TEXT, re.DOTALL)
    assert len(commands) == 1
    calibrate, simulate = commands[0].replace("\\\n", "").strip().split("\n")
    assert shlex.split(calibrate)[:2] == ["headway", "calibrate"]
    words = shlex.split(simulate)
    assert words[words.index("--lanes") + 1] == str(EXAMPLE)
    assert (words[words.index("--rate") + 1], words[words.index("--seconds") + 1]) == FULL
