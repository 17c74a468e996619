"""Sweeps and capacities: parsed, simulated in processes, and presented as in their JSON."""

import json
import re
from dataclasses import replace
from html import unescape
from io import StringIO
from math import inf
from multiprocessing import active_children
from multiprocessing.connection import wait
from signal import SIGKILL, raise_signal
from time import monotonic, sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headway.commands.compare.compare import CompareOptions
from headway.commands.simulate import sweep, sweep_charts, sweep_page, sweep_report, sweep_verdict
from headway.commands.simulate.capacity_table import capacity_table
from headway.commands.simulate.capacity_text import Found, Scope, capacity_sentence
from headway.commands.simulate.simulate import SimulateOptions, run_simulate
from headway.commands.simulate.sweep import SweepRun
from headway.commands.simulate.sweep_point import Job, attainment, simulate_point
from headway.commands.simulate.sweep_setting import (
    applies_to,
    calibration_at,
    parse_sweep,
    strategy_at,
)
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError, WorkerLostError
from headway.figures.capacity import Capacity, TriedRate
from headway.figures.capacity_interval import CapacityInterval
from headway.figures.knee import find_knee
from headway.report.analysis import Analysis
from headway.report.report_json import read
from headway.runs.process_pool import worker_pool
from headway.strategies.registry import REGISTRY, chunked_strategy
from headway.strategies.strategy_inputs import StrategyInputs
from tests.commands.simulate.test_simulate import simulated
from tests.commands.small_cost_model import CALIBRATION, lanes

FEW = "dynamic-lanes,continuous-chunk-64"
SECONDS = 8.0  # of the shared sweep: enough requests of each lane for a capacity
SITE = StrategyInputs([Lane("chat")], TokenCost(100_000, 1_000_000), 2_048)


def swept(folder, sweep="", capacity=False, workers=1, calibration=CALIBRATION, **wishes):
    """Run a sweep; return the exit status, the output and sweep.json."""
    wishes = {"seconds": 12.0, "strategies": FEW, "lanes": lanes(folder)} | wishes
    screen = Console(file=StringIO(), width=100, force_terminal=False)
    wanted = SimulateOptions(
        CompareOptions(out=folder, **wishes), calibration, sweep, capacity, workers
    )
    status = run_simulate(wanted, screen)
    return status, screen.file.getvalue(), sweep_report.read(folder / "sweep.json")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    status, said, plain = swept(folder, "rate=4,10,16", repeat=2, workers=2, seconds=SECONDS)
    assert status == 0
    return folder, said, plain


# -- parsing


@pytest.mark.parametrize(
    "said, setting, values",
    [
        ("rate=4,1,2", "rate", (1.0, 2.0, 4.0)),
        (" rate = 1 .. 3 : 5 ", "rate", (1.0, 1.5, 2.0, 2.5, 3.0)),
        ("slots=4..8:3", "slots", (4.0, 6.0, 8.0)),
        ("chunk=1..4:7", "chunk", (1.0, 2.0, 3.0, 4.0)),
        ("window=0,5", "window", (0.0, 5.0)),
        ("load=0.1,0.1", "load", (0.1,)),
    ],
)
def test_sweep_values_are_a_list_or_an_evenly_spaced_range(said, setting, values):
    sweep = parse_sweep(said)
    assert (sweep.setting, sweep.values) == (setting, values)


def test_a_page_that_cannot_be_written_leaves_the_one_before_it(tmp_path, monkeypatch):
    page_before = tmp_path / "sweep.html"
    page_before.write_text("the page before")
    monkeypatch.setattr(sweep, "page", lambda kept: "half a page \ud800")
    with pytest.raises(UnicodeEncodeError):
        swept(tmp_path, "rate=4", seconds=4.0, strategies="first-come")
    assert page_before.read_text() == "the page before"


@pytest.mark.parametrize(
    "said, why",
    [
        ("rate", "written as rate=1,2,4"),
        ("rate=", "written as rate=1,2,4"),
        ("rat=1", "'rat' cannot be swept; did you mean rate"),
        ("banana=1", "'banana' cannot be swept; there are rate, load"),
        ("rate=1,x", "rate: 'x' is not a number"),
        ("rate=0,1", "rate must be more than 0"),
        ("rate=-1..2:3", "rate must be more than 0"),
        ("rate=nan", "rate must be more than 0 and finite"),
        ("rate=inf", "rate must be more than 0 and finite"),
        ("rate=1..2", "a range is from..to:count"),
        ("rate=2..1:3", "a range is from..to:count"),
        ("rate=1..2:1", "a range is from..to:count"),
        ("rate=1..2:100000", "a range is from..to:count"),
        ("slots=2.5", "slots takes whole numbers"),
        ("num_blocks=300,1e30", "num_blocks must be at most 10,000,000, not 1e+30"),
    ],
)
def test_an_invalid_sweep_is_refused_with_the_remedy(said, why):
    with pytest.raises(SettingError, match=re.escape(why)):
        parse_sweep(said)


@pytest.mark.parametrize(
    "sweep, wishes, why",
    [
        ("rate=1,90000", {}, "90000 requests / s in 12 s are more than 50,000"),
        ("rate=1,2", {"rate": 3.0}, "leave out --rate and --load"),
        ("rate=1,2", {"lanes": None}, "need --lanes or --trace"),
        ("num_blocks=8", {}, "use 128 or more"),
        ("rate=1e-300,4", {}, "1e-05 is the least: raise the rate or the load"),
        ("chunk=32", {"strategies": "static"}, "chunk does not apply to static"),
        ("window=5", {"strategies": "dynamic-lanes"}, "window does not apply to dynamic-lanes"),
        (
            "rate=1,2",
            {"baseline": "dynamic-lanes"},
            "--baseline is of one simulation: leave it out",
        ),
        ("token_scale=1,2", {"rate": 3.0}, r"--token-scale is of traces, and lanes\.yaml has none"),
    ],
)
def test_impossible_sweeps_are_refused_before_anything_is_simulated(sweep, wishes, why, tmp_path):
    with pytest.raises(SettingError, match=why):
        swept(tmp_path, sweep, **wishes)
    assert not (tmp_path / "sweep.json").exists()


def test_a_capacity_goes_only_with_a_sweep_of_rate_or_load(tmp_path):
    with pytest.raises(SettingError, match="cannot be combined with --sweep slots"):
        swept(tmp_path, "slots=4,8", capacity=True)


def test_a_price_is_refused_where_no_money_is_counted(tmp_path):
    asked = CompareOptions(lanes=lanes(tmp_path), strategies="static", out=tmp_path)
    wanted = SimulateOptions(asked, CALIBRATION, capacity=True, price_per_hour=2.0)
    with pytest.raises(SettingError, match="--price-per-hour is of one simulation: leave it out"):
        run_simulate(wanted, Console(file=StringIO()))


def test_a_token_scale_is_not_swept_if_each_trace_has_its_own(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("chat: {trace: azure2023-conv, token_scale: 8, budget: {ttft: 900}}\n")
    asked = CompareOptions(lanes=path, strategies="one-by-one", seconds=5.0, rate=1.0, out=tmp_path)
    wanted = SimulateOptions(asked, CALIBRATION, "token_scale=4,8")
    with pytest.raises(SettingError, match="has a token_scale of its own: a sweep changes"):
        run_simulate(wanted, Console(file=StringIO()))


def test_a_capacity_search_is_refused_if_every_lane_has_its_own_rate(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("chat: {arrivals: poisson, prompt: 20, answer: 4, rate: 2}\n")
    with pytest.raises(SettingError, match="give one of them a weight"):
        swept(tmp_path, capacity=True, lanes=path)


# -- applying a setting


def test_step_tokens_follow_a_sweep_of_the_slots_or_of_the_chunk():
    policies = strategy_at(chunked_strategy(64), "slots", 4).policies
    assert (policies.join, policies.chunk) == (Continuous(4), Fixed(64))
    assert policies.step_tokens == 4 + 64
    policies = strategy_at(chunked_strategy(64), "chunk", 32).policies
    assert policies.chunk == Fixed(32) and policies.step_tokens == 16 + 32
    group = strategy_at(REGISTRY["static"](SITE), "slots", 3).policies
    assert group.join.size == 3 and group.step_tokens == 3 * 2_048
    window = strategy_at(REGISTRY["dynamic-global"](SITE), "window", 2.5).policies
    assert window.join == Dynamic(16, 2_500_000)
    assert strategy_at(chunked_strategy(64), "step_tokens", 99).policies.step_tokens == 99


@pytest.mark.parametrize(
    "setting, value", [("slots", 7), ("chunk", 7), ("step_tokens", 17), ("window", 7)]
)
def test_a_setting_changes_exactly_the_strategies_it_applies_to(setting, value):
    for make in REGISTRY.values():
        strategy = make(SITE)
        turned = strategy_at(strategy, setting, value)
        assert (turned != strategy) is applies_to(strategy, setting)
        assert (f"; {setting} {value}" in turned.rule) is applies_to(strategy, setting)


def test_steps_with_less_than_one_token_per_slot_are_refused():
    with pytest.raises(SettingError, match="step_tokens 15 is less than the 16 sequences"):
        strategy_at(chunked_strategy(64), "step_tokens", 15)
    tight = replace(
        chunked_strategy(64), policies=Policies(Continuous(16), chunk=Fixed(64), step_tokens=64)
    )
    assert strategy_at(tight, "chunk", 4).policies.step_tokens == 16, "room for the slots stays"


def test_num_blocks_changes_the_runs_and_not_the_measured_budgets(tmp_path):
    assert calibration_at(CALIBRATION, "num_blocks", 200).num_blocks == 200
    asked = CompareOptions(seconds=8.0, strategies=FEW, lanes=lanes(tmp_path), rate=12.0)
    few, many = (simulate_point(Job(asked, CALIBRATION, "num_blocks", n)) for n in (128, 2_048))
    assert few.budgets == many.budgets and few.offered == many.offered
    peaks = [max(each.kv_peak for each in point.figures) for point in (few, many)]
    assert peaks[0] > 5 * peaks[1]


def test_kv_blocks_grow_with_the_slots_up_to_what_fits():
    blocks = {n: calibration_at(CALIBRATION, "slots", n).num_blocks for n in (4, 16, 20, 64)}
    assert blocks == {4: 2_048, 16: 2_048, 20: 20 * 128, 64: 3_000}


def test_the_page_states_the_kv_memory_of_more_slots(tmp_path):
    wishes = {"seconds": 6.0, "rate": 8.0, "strategies": "continuous-mixed"}
    swept(tmp_path, "slots=16,20", **wishes)
    html = (tmp_path / "sweep.html").read_text()
    assert "as much as they can use, of 3,000 blocks that fit" in html


def test_requests_wait_less_with_more_slots(tmp_path):
    asked = CompareOptions(
        seconds=12.0, strategies="continuous-chunk-64", lanes=lanes(tmp_path), rate=20.0
    )
    few, many = (simulate_point(Job(asked, CALIBRATION, "slots", n)) for n in (1, 16))
    waits = [point.figures[0].lanes["chat"].queue_p50 for point in (few, many)]
    assert waits[0] > 10 * max(1, waits[1])


# -- knees


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=9, unique=True).map(sorted))
def test_the_knee_is_where_the_curve_crosses_twice_its_first_value(values):
    curve = [(float(at), value) for at, value in enumerate(values)]
    found = find_knee(curve)
    if found is None:
        assert values[-1] < 2 * values[0]
        return
    at = min(int(found), len(values) - 2)
    height = values[at] * (values[at + 1] / values[at]) ** (found - at)
    assert height == pytest.approx(2 * values[0])


def test_the_knee_skips_missing_values_and_is_near_the_rate_before_an_infinite_one():
    assert find_knee([(1, None), (2, 10), (3, 10), (4, 40)]) == pytest.approx(3.5)
    assert find_knee([(1, 10**9), (2, 10**9), (3, NEVER)]) == pytest.approx(2.0, abs=0.05)
    assert find_knee([(1, None), (2, None)]) is None and find_knee([]) is None
    assert find_knee([(1, 10), (2, 19)]) is None


# -- simulating in processes


def test_a_sweep_point_has_the_figures_of_a_single_simulation(ran, tmp_path):
    status, _, _ = simulated(tmp_path, rate=10.0, repeat=2, strategies=FEW, seconds=SECONDS)
    found = Analysis(read(tmp_path / "report.json"))
    point = next(each for each in ran[2]["points"] if each["value"] == 10)
    assert status == 0
    for name in found.strategies:
        for repeat, figures in enumerate(sweep_report.repeats(point, name)):
            for lane in found.lanes:
                own, mine = figures["lanes"][lane], found.latency[name][lane][repeat]
                assert (own["offered"], own["good"]) == (mine.offered, mine.good)
                assert (own["ttft_p50"], own["tpot_p50"]) == (mine.ttft_p50, mine.tpot_p50)
                assert own["goodput"] == found.goodput(name, lane)[repeat]
            assert figures["engine"]["busy"] == found.engine[name][repeat].busy


@pytest.mark.evidence
def test_json_and_page_are_the_same_with_one_worker_and_two(ran, tmp_path):
    swept(tmp_path, "rate=4,10,16", repeat=2, workers=1, seconds=SECONDS)
    for name in ("sweep.json", "sweep.html"):
        assert (tmp_path / name).read_bytes() == (ran[0] / name).read_bytes()


def test_higher_rates_compress_the_arrivals_and_drop_none(ran):
    offered = [point["offered"] for point in ran[2]["points"]]
    for lane in ("chat", "voice"):
        counts = [each[lane] for each in offered]
        assert counts == sorted(counts) and counts[0] < counts[-1]
    budgets = [point["budgets"] for point in ran[2]["points"]]
    assert all(each == budgets[0] for each in budgets)


def test_budgets_hold_at_the_capacity_and_break_slightly_above_it(ran, tmp_path):
    found = ran[2]["capacity"]["continuous-chunk-64"]
    assert 0 < found["rate"] < found["broken"] <= 1.02 * found["rate"]
    asked = CompareOptions(seconds=SECONDS, strategies=FEW, lanes=lanes(tmp_path), repeat=2)
    for rate, kept in ((found["rate"], True), (found["broken"], False)):
        point = simulate_point(Job(asked, CALIBRATION, "rate", rate, "continuous-chunk-64"))
        shares = attainment(point, "continuous-chunk-64")
        assert (min(shares.values()) >= 0.95) is kept
        tried = next(each for each in found["tried"] if each["rate"] == rate)
        assert tried["attainment"] == shares


def test_each_point_and_capacity_is_printed_as_it_is_done(ran):
    said = ran[1]
    assert [f"({n} of 3)" in said for n in (1, 2, 3)] == [True] * 3
    assert "Points: rate 4 (" in said and "Capacity: dynamic-lanes (" in said
    assert "The curves are in" in said and "continuous-chunk-64" in said.rpartition(" of 2)")[2]


def test_a_capacity_search_without_a_sweep_has_a_page(tmp_path):
    status, _, plain = swept(tmp_path, capacity=True, strategies="continuous-mixed", seconds=5.0)
    assert status == 0 and plain["points"] == [] and plain["setting"] == "rate"
    assert plain["lanes"] == ["chat", "voice"]
    assert plain["capacity"]["continuous-mixed"]["rate"] > 0
    html = (tmp_path / "sweep.html").read_text()
    assert "Capacity at 95 %" in html and "Latency of" not in html


def test_without_endpoints_the_capacity_is_searched_over_the_load(tmp_path):
    wishes = {"lanes": None, "strategies": "continuous-chunk-64", "seconds": 15.0}
    _, _, plain = swept(tmp_path, capacity=True, **wishes)
    assert plain["setting"] == "load"
    assert 0 < plain["capacity"]["continuous-chunk-64"]["rate"] < 1


def test_a_capacity_has_its_n_its_unit_and_its_interval(tmp_path):
    path = two_a_second(tmp_path, 400)
    _, said, plain = swept(
        tmp_path, capacity=True, lanes=path, seconds=60.0, strategies="continuous-mixed"
    )
    found = plain["capacity"]["continuous-mixed"]
    low, high = found["interval"]
    assert found["n"] in (107, 108), (
        "of 120 requests those after the warm-up; one arrives as it ends"
    )
    assert 0 < low <= found["rate"] <= high and found["broken"] > found["rate"]
    told = f"{found['rate']:.3g} requests / s (90 % interval {low:.3g} to {high:.3g}"
    assert found["said"].startswith(f"{told}; n {found['n']}); at ")
    (row,) = [line.split() for line in said.splitlines() if line.startswith("continuous-mixed ")]
    assert row[1:6] == [f"{found['rate']:.3g}", f"{low:.3g}", "to", f"{high:.3g}", str(found["n"])]
    assert "Capacity at 95 %, requests / s" in said
    html = (tmp_path / "sweep.html").read_text()
    assert told in html and 'class="dots line mark' in html


def test_a_capacity_of_too_few_requests_is_no_number_and_says_how_many_it_needs(tmp_path):
    path = two_a_second(tmp_path, 400)
    _, said, plain = swept(tmp_path, capacity=True, lanes=path, strategies="continuous-mixed")
    found, words = plain["capacity"]["continuous-mixed"], " ".join(said.split())
    assert found["n"] == 21 and not found["enough"]
    more = "unknown: too few requests (21 of chat; 95 % needs 100): "
    assert f"{more}take --seconds 60 or more" in words
    before = "Too few requests for p95, which needs 100 after the warm-up: chat 21. --seconds 60"
    assert before in words[: words.index("Capacity: ")], "said before minutes are spent"
    assert "Every rate has 16 slots, 2,048 of the 3,000 KV blocks that fit" in words
    html = (tmp_path / "sweep.html").read_text()
    assert more in html and 'class="dots line mark' not in html


def test_a_sweep_of_slots_reports_too_few_requests(tmp_path):
    path = two_a_second(tmp_path, 400)
    wishes = {"lanes": path, "rate": 2.0, "strategies": "continuous-mixed"}
    _, said, _ = swept(tmp_path, "slots=8,16", **wishes)
    words = " ".join(said.split())
    assert "Too few requests for p95, which needs 100 after the warm-up: chat 2" in words


@pytest.mark.evidence
def test_only_the_rates_with_too_few_drawn_requests_are_named(tmp_path):
    path = tmp_path / "drawn.yaml"
    path.write_text("chat: {arrivals: poisson, prompt: 40, answer: 4, budget: {ttft: 900}}\n")
    wishes = {"lanes": path, "strategies": "continuous-mixed", "seconds": 20.0}
    _, said, plain = swept(tmp_path, capacity=True, **wishes)
    assert plain["capacity"]["continuous-mixed"]["n"] > 100 and "Too few" not in said
    _, said, _ = swept(tmp_path, "rate=1,16", **wishes)
    words = " ".join(said.split())
    assert "At rate 1: too few requests for p95, which needs 100" in words
    assert "At rate 16" not in words and "Too few" not in words


def test_a_fixed_rate_lane_beside_a_trace_has_too_few_requests_at_the_highest_rate(tmp_path):
    """The same 120 requests of the trace take 60 s or 7.5 s, beside 30 or 3 of nightly."""
    path = two_a_second(tmp_path, 400)
    nightly = "nightly: {arrivals: poisson, prompt: 40, answer: 4, rate: 0.5}\n"
    path.write_text(path.read_text() + nightly)
    wishes = {"lanes": path, "strategies": "continuous-mixed", "seconds": 60.0}
    _, said, _ = swept(tmp_path, "rate=2.5,16.5", **wishes)
    words = " ".join(said.split())
    (few,) = re.findall(r"At rate 16.5: too few requests for p95.*?: nightly (\d+)\.", words)
    assert int(few) < 10


def two_a_second(folder, count=60):
    """Lanes of a trace with two requests a second, the first at time 0."""
    rows = "".join(f"{at / 2},40,4\n" for at in range(count))
    (folder / "short.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{rows}")
    path = folder / "short.yaml"
    path.write_text("chat: {trace: short.csv, token_scale: 1, budget: {ttft: 5000}}\n")
    return path


def test_each_token_scale_has_budgets_of_its_own_lengths(tmp_path):
    path = two_a_second(tmp_path)
    path.write_text("chat: {trace: short.csv, budget: {ttft: 4 x unloaded}}\n")
    wishes = {"lanes": path, "rate": 2.0, "seconds": 6.0, "strategies": "continuous-mixed"}
    _, _, plain = swept(tmp_path, "token_scale=1,4", **wishes)
    longer, shorter = (point["budgets"]["chat"]["ttft"] for point in plain["points"])
    assert longer > 1.5 * shorter


def test_every_rate_has_the_same_requests_whatever_the_traces_own_rate(tmp_path):
    path = two_a_second(tmp_path)
    _, _, plain = swept(tmp_path, "rate=2,4,20", lanes=path, strategies="continuous-mixed")
    assert [point["offered"]["chat"] for point in plain["points"]] == [24, 24, 24]
    assert [point["rate"] for point in plain["points"]] == pytest.approx([2, 4, 20])
    line = sweep_report.curve(plain, "continuous-mixed", "chat", "ttft_p50")
    assert [at for at, _ in line] == [2, 4, 20] and sweep_charts.x_axis(plain).high == 20
    html = (tmp_path / "sweep.html").read_text()
    assert "the same 24 at every point" in html


def test_points_without_requests_after_the_warm_up_are_in_no_curve(tmp_path):
    """Two requests arrive at once, before a long pause: they are served but not counted."""
    path = pausing(tmp_path)
    wishes = {"lanes": path, "strategies": "continuous-mixed", "rate": 4.0}
    status, _, plain = swept(tmp_path, "seconds=10,40", **wishes)
    offered = [each["figures"][0]["lanes"]["chat"]["offered"] for each in plain["points"]]
    assert status == 0 and offered == [0, 8]
    for name, lane in (("busy", ""), ("attainment", "chat")):
        line = sweep_report.curve_values(plain, "continuous-mixed", name, lane)
        assert [at for at, _ in line] == [40]
    html = (tmp_path / "sweep.html").read_text()
    assert "no requests after the warm-up at 10, which no curve" in html
    assert [row[-2] for row in cells_of(html, "latency-chat")[1:]] == ["-", "100 %"]


def pausing(folder):
    """Lanes of a trace: two requests, and eight more after a pause."""
    path = two_a_second(folder)
    times = [0, 0.2, *range(30, 38)]
    rows = "".join(f"{at},40,4\n" for at in times)
    (folder / "short.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{rows}")
    return path


def test_a_simulation_without_requests_after_the_warm_up_is_refused(tmp_path):
    path = pausing(tmp_path)
    for wishes in ({"rate": 4.0}, {"sweep": "rate=2,4"}, {"capacity": True}):
        with pytest.raises(SettingError, match="arrive in the warm-up, which is not"):
            swept(
                tmp_path,
                workers=0,
                lanes=path,
                seconds=10.0,
                strategies="continuous-mixed",
                **wishes,
            )
    assert not (tmp_path / "report.json").exists()


def test_an_endpoint_without_requests_is_not_called_out_of_budget(ran):
    plain = json.loads(json.dumps(ran[2]))
    for each in plain["points"][0]["figures"]:
        each["lanes"]["voice"] |= {"offered": 0, "good": 0, "attainment": 0.0}
    name = plain["strategies"][0]
    for lane, asked in (("voice", [10, 16]), ("chat", [4, 10, 16])):
        line = sweep_report.curve_values(plain, name, "attainment", lane)
        assert [at for at, _ in line] == asked
    assert cells_of(sweep_page.page(plain), "latency-voice")[1][-2] == "-"


def test_a_workers_error_is_raised_by_the_command_and_its_workers_end(tmp_path):
    path = tmp_path / "many.yaml"
    path.write_text("chat: {arrivals: poisson, prompt: 20, answer: 4}\n")
    before = set(active_children())
    with pytest.raises(SettingError, match="lower the rate, or the seconds"):
        swept(tmp_path, "seconds=10,10000000", lanes=path, load=0.1, workers=2)
    assert has_ended(set(active_children()) - before)


def has_ended(workers):
    """Asks the system: `is_alive` is wrong while another thread collects the exit status."""
    ends = {worker.sentinel for worker in workers}
    return set(wait(ends, 0)) == ends


class Ended(Exception):
    """An error that a caller's own `keep` may raise."""


def test_an_error_in_keep_stops_the_workers():
    workers, before = set(), set(active_children())

    def keep(result):
        workers.update(set(active_children()) - before)
        raise Ended

    with pytest.raises(Ended), worker_pool(2) as pool:  # the second job would take an hour
        pool.run(sleep, [("a", 0), ("b", 3_600)], "Jobs", Console(file=StringIO()), keep)
    assert len(workers) == 2 and has_ended(workers)


def test_ctrl_c_keeps_the_points_that_are_done(tmp_path, monkeypatch):
    added = SweepRun._add_point

    def add(self, point):
        added(self, point)
        raise KeyboardInterrupt

    monkeypatch.setattr(SweepRun, "_add_point", add)
    status, said, plain = swept(tmp_path, "rate=4,8,16", workers=1)
    assert status == 130 and "Broken off after 1 of 3 points." in " ".join(said.split())
    assert len(plain["points"]) == 1 and plain["complete"] is False
    html = (tmp_path / "sweep.html").read_text()
    assert "Broken off: " in html and "Capacity at" not in html


def dies_at_8(job):
    """Runs in the worker: at value 8, kills it as a system without memory does.

    By then the point at value 4 is done.
    """
    if job.value == 8:
        end = monotonic() + 60
        while not (job.options.out / "sweep.json").exists() and monotonic() < end:
            sleep(0.01)
        raise_signal(SIGKILL)
    return simulate_point(job)


def test_a_killed_worker_raises_one_error_and_the_finished_points_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "simulate_point", dies_at_8)
    before = set(active_children())
    with pytest.raises(WorkerLostError, match="a worker was killed, perhaps for lack of memory"):
        swept(tmp_path, "rate=4,8", workers=2)
    assert has_ended(set(active_children()) - before)
    plain = sweep_report.read(tmp_path / "sweep.json")
    assert [each["value"] for each in plain["points"]] == [4] and plain["complete"] is False
    assert "Broken off: " in (tmp_path / "sweep.html").read_text()


# -- presenting the JSON


def cells_of(html, name):
    table = re.search(f'<table id="{re.escape(name)}">(.*?)</table>', html)[1]
    rows = re.findall("<tr>(.*?)</tr>", re.sub("</?span[^>]*>", "", table))
    return [[unescape(cell) for cell in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", r)] for r in rows]


def test_the_page_is_made_from_the_json_alone_and_says_that_it_is_simulated(ran):
    folder, _, _ = ran
    html = (folder / "sweep.html").read_text(encoding="utf-8")
    assert html == sweep_page.page(json.loads((folder / "sweep.json").read_text()))
    head = html[: html.index("<main>")]
    assert "Simulated: nothing was computed." in head and "Abacus 3" in head


def test_tables_show_the_values_of_the_json(ran):
    """The expected values are looked up in the JSON, not by the package's own columns."""
    folder, _, plain = ran
    html = (folder / "sweep.html").read_text(encoding="utf-8")
    at = [(name, point) for name in plain["strategies"] for point in plain["points"]]
    for lane in plain["lanes"]:
        rows = cells_of(html, f"latency-{lane}")[1:]
        assert len(rows) == len(at)
        for row, (name, point) in zip(rows, at, strict=True):
            runs = [f["lanes"][lane] for f in point["figures"] if f["strategy"] == name]
            goodput = [f"{each:.2f}" for each in sorted(each["goodput"] for each in runs)]
            assert row[:3] == [name, f"{point['value']:g}", str(runs[0]["offered"])]
            assert row[-1].endswith(f"({goodput[0]}..{goodput[1]})") or goodput[0] == goodput[1]
    for row, (name, point) in zip(cells_of(html, "throughput-values")[1:], at, strict=True):
        runs = [f for f in point["figures"] if f["strategy"] == name]
        assert row[:3] == [name, f"{point['value']:g}", f"{point['rate']:.2f}"]
        assert row[3].startswith(f"{runs[0]['engine']['served']:,}") or len(runs) > 1


def test_the_capacity_table_has_the_knees_and_the_words_of_the_json(ran):
    folder, said, plain = ran
    html = (folder / "sweep.html").read_text(encoding="utf-8")
    for row in cells_of(html, "capacities")[1:]:
        found, knees = plain["capacity"][row[0]], plain["knees"][row[0]]
        assert row[1] == found["said"]
        if found["enough"] and found["rate"] and found["broken"]:
            (shown,) = [line for line in said.splitlines() if line.startswith(f"{row[0]} ")]
            low, high = found["interval"]
            assert f"{low:.3g} to {high:.3g}" in shown and f" {found['broken']:.3g} " in shown
            assert shown.split()[1] == f"{found['rate']:.3g}" and f" {found['n']} " in shown
        else:
            assert f"{row[0]}: {found['said']}" in " ".join(said.split())
        cost = f"{1 / found['rate']:.3g}" if found["rate"] and found["enough"] else "-"
        assert row[2] == cost, "machine-seconds per request"
        for cell, lane in zip(row[3:], plain["lanes"], strict=True):
            curve = sweep_report.curve(plain, row[0], lane, "ttft_p95")
            assert knees[lane] == find_knee(curve)
            assert cell == ("-" if knees[lane] is None else f"{knees[lane]:.3g}")


def test_the_verdict_names_the_strategies_that_keep_every_budget_cheapest_first(ran):
    folder, _, plain = ran
    html = (folder / "sweep.html").read_text(encoding="utf-8")
    lines = sweep_verdict.verdict(plain)
    kept = {n: each["rate"] for n, each in plain["capacity"].items() if each["enough"]}
    named = [name for name in sweep_verdict.ranked(plain) if kept.get(name)]
    assert named == sorted((n for n in kept if kept[n]), key=lambda name: -kept[name])
    for name in named:
        assert f"{name} up to {kept[name]:.3g}" in lines[0]
    assert " ".join(lines) in unescape(html[: html.index("<main>")])
    assert [row[0] for row in cells_of(html, "capacities")[1:]] == sweep_verdict.ranked(plain)


def test_the_verdict_of_a_slots_sweep_names_the_values_that_keep_the_budgets(tmp_path):
    _, _, plain = swept(tmp_path, "slots=1,16", rate=8.0, strategies="continuous-chunk-64,static")
    worst = dict(sweep_verdict.worst(plain, "continuous-chunk-64"))
    assert worst[16] >= 0.95
    first, second = sweep_verdict.verdict(plain)
    assert first.startswith("Keeps 95 % of every endpoint's requests") and "16" in first
    assert second == "Misses budgets at every slots: static."
    html = (tmp_path / "sweep.html").read_text()
    assert cells_of(html, "capacities")[0] == ["strategy", "", "1", "16"]


def test_chart_lines_are_drawn_at_the_values_of_the_json(ran):
    plain = ran[2]
    series = {name: f"s{n}" for n, name in enumerate(plain["strategies"])}
    sure = [each for each in plain["capacity"].values() if each["enough"] and each["rate"]]
    high = max([16, *(each["broken"] for each in sure)])
    drawn = sweep_charts.engine_chart(plain, "busy", "busy", series, 1.0)
    for name, kind in series.items():
        (path,) = re.findall(f'<path class="line {kind}" d="M([^"]*)"', drawn)
        places = [tuple(map(float, each.split())) for each in path.split("L")]
        wanted = sweep_report.curve_values(plain, name, "busy")
        for (x, y), (value, busy) in zip(places, wanted, strict=True):
            assert x == pytest.approx(44 + value / high * (360 - 44 - 10), abs=0.06)
            assert y == pytest.approx(230 - 36 - busy * (230 - 36 - 12), abs=0.06)


def test_a_wide_sweep_has_a_logarithmic_axis_and_a_single_value_still_has_an_axis():
    assert sweep_charts.axis_of([32, 512], "x").log and not sweep_charts.axis_of([32, 500], "x").log
    one = sweep_charts.axis_of([3], "x")
    assert one.share(3) == 1 and one.share(0) == 0
    assert sweep_charts.axis_of([0], "x").share(0) == 0


def test_a_sweep_of_slots_has_no_capacity_and_no_knee(tmp_path):
    _, _, plain = swept(tmp_path, "slots=2,16", rate=8.0)
    assert plain["capacity"] == {} and plain["knees"] == {}
    assert [point["value"] for point in plain["points"]] == [2, 16]
    html = (tmp_path / "sweep.html").read_text()
    assert "against slots" in html and "Capacity at" not in html
    assert " at every point</dd>" in html, "neither faster nor slower"
    assert "Memory of more slots" not in html, "as many as the fit covers"
    assert "; slots 2" in plain["points"][0]["rules"]["dynamic-lanes"]


def test_a_file_that_is_no_sweep_is_refused(tmp_path):
    (tmp_path / "sweep.json").write_text("[]")
    with pytest.raises(SettingError, match=r"sweep\.json cannot be read as a sweep"):
        sweep_report.read(tmp_path / "sweep.json")


def test_a_capacity_sentence_states_rate_interval_and_doubts():
    good, bad = TriedRate(4.0, {"chat": 1.0}), TriedRate(8.0, {"chat": 0.5, "voice": 0.97})
    none = Capacity(0.0, (0.0, 8.0), (bad,))
    some = Capacity(4.0, (4.0, 8.0), (good, bad))
    all_ = Capacity(4.0, (4.0, inf), (good,))
    scope, sure = Scope("requests / s", 12.0, "end"), CapacityInterval(120, "chat", 3.5, 4.5)

    def told(found, sure=sure):
        return capacity_sentence(Found(found, sure), scope)

    assert told(none).startswith(
        "none: misses budgets at every rate tried (8 requests / s; n 120 of chat); at 8 "
    )
    assert "sure" not in told(none)
    unsure = told(none, CapacityInterval(17, "chat", 0.0, 0.0))
    assert unsure.endswith("; too few requests to be sure: take --seconds 75 or more")
    drawn = "4 requests / s (90 % interval 3.5 to 4.5; n 120 of chat)"
    assert told(some) == f"{drawn}; at 8 chat keeps 50.0 %"
    screen = Console(file=StringIO(), width=80)
    rows = {"continuous-prefill-first": Found(some, CapacityInterval(12_345, "chat", 3.55, 14.5))}
    screen.print(capacity_table(rows, 0.95, "device-seconds / s"))
    last = screen.file.getvalue().splitlines()[-1]
    assert last.split()[0] == next(iter(rows)) and last.rstrip().endswith(" 8  chat 50.0 %")
    assert told(all_) == (
        "at least 4 requests / s (n 120): every rate tried is kept; the search ends there (end)"
    )
    late = Capacity(4.0, (4.0, inf), (TriedRate(1.0, {"chat": 0.5}), good))
    assert told(late) == (
        "at least 4 requests / s (n 120): some lower rates miss budgets: 1; the search ends there "
        "(end)"
    )
    unasked = replace(some, tried=(TriedRate(1.0, {}), good, bad))
    assert told(unasked) == f"{drawn}; at 8 chat keeps 50.0 %"
    about = {"setting": "rate", "unit": "requests / s", "values": [], "share": 0.95}
    plain = sweep_report.sweep_json(about, [], {"a": Found(unasked, sure)}, scope)
    assert plain["lanes"] == ["chat", "voice"] and sweep_charts.worst_endpoint_chart(
        plain, {"a": "s0"}
    )
    both = {"a": Found(all_, sure), "b": Found(some, sure)}
    (kept,) = sweep_verdict.verdict(sweep_report.sweep_json(about, [], both, scope))
    assert kept.endswith(": a up to at least 4, b up to 4 requests / s.")
    nobody = Capacity(0.0, (0.0, inf), (TriedRate(1.0, {}),))
    assert told(nobody).endswith("take more --seconds")
    slow = replace(some, tried=(TriedRate(1.0, {"chat": 0.1}), good, bad))
    assert told(slow).endswith("some lower rates miss budgets: 1")
    few = told(some, CapacityInterval(6, "chat", 4.0, 4.0))
    assert few == (
        "unknown: too few requests (6 of chat; 95 % needs 100): take --seconds 210 or more"
    )
    ends = replace(scope, trace_ends=True)
    few = capacity_sentence(Found(some, CapacityInterval(6, "chat", 4.0, 4.0)), ends)
    assert few.endswith("95 % needs 100): take a longer trace")
    few = told(some, CapacityInterval(120, "chat", 4.0, 4.0, 0.975))
    assert few.endswith("(120 of chat; 97.5 % needs 200): take --seconds 21 or more")
