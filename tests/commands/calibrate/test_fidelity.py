"""The tools of benchmarks.fidelity: clocks that halt, turns, and a capacity of many runs."""

from argparse import Namespace
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from benchmarks.fidelity.__main__ import measured, of_errors
from benchmarks.fidelity.compared import errors, unsaid
from benchmarks.fidelity.grid import FURTHEST, STEP, Grid
from benchmarks.fidelity.pace import Pace, pace, paced_testbed, split
from benchmarks.fidelity.stage import SCALES, asked
from benchmarks.fidelity.turns import HaltingClock, Turn, in_turns
from headway.commands.calibrate.observe import LiveStep
from headway.core.cost.features import row_features
from headway.core.cost.step_cost import Residuals, StepCost
from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish, Request
from headway.errors import SettingError
from headway.runs.outcome import Outcome
from headway.runs.run import Run
from headway.sim.clock import VirtualClock
from tests.commands.small_cost_model import CALIBRATION

MS = 1_000_000


def test_a_halted_clock_does_not_advance():
    wall = VirtualClock()
    clock = HaltingClock(wall)
    clock.advance_to(10)
    clock.halt()
    wall.advance_to(25)
    assert clock.now() == 10
    clock.resume()
    assert clock.now() == 10
    clock.advance_to(12)
    assert (clock.now(), wall.now()) == (12, 27)


def going(clock, steps, seen, each=10):
    """Takes steps of `each` nanoseconds; records when each began on its own and the wall clock."""
    for _ in range(steps):
        began = clock.now(), clock._clock.now()
        clock.advance_to(clock.now() + each)
        seen.append(began)
        yield None


def test_two_runs_take_turns_until_the_first_has_ended():
    wall, ours, theirs = VirtualClock(), [], []
    clocks = HaltingClock(wall), HaltingClock(wall)
    first = Turn(going(clocks[0], 7, ours), clocks[0], 25)
    pauses = in_turns(first, Turn(going(clocks[1], 99, theirs), clocks[1], 20))
    assert pauses == [(30, 20), (60, 40)]
    assert [own for own, _ in ours] == [0, 10, 20, 30, 40, 50, 60], "nothing was lost in a pause"
    assert [at for _, at in ours] == [0, 10, 20, 50, 60, 70, 100]
    assert [at for _, at in theirs] == [30, 40, 80, 90], "the first turn is over"
    assert [own for own, _ in theirs] == [0, 10, 20, 30]


def test_the_first_run_does_not_wait_for_a_second_run_that_has_ended():
    wall, ours, theirs = VirtualClock(), [], []
    clocks = HaltingClock(wall), HaltingClock(wall)
    first = Turn(going(clocks[0], 6, ours), clocks[0], 10)
    in_turns(first, Turn(going(clocks[1], 2, theirs), clocks[1], 10))
    assert len(ours) == 6 and len(theirs) == 2 and wall.now() == 80


def grid(kept, turns=4, guess=10.0):
    """kept: the share of good requests, by rate and turn."""
    asked = []

    def serve(rate, turn):
        asked.append((rate, turn))
        return {"a": kept(rate, turn), "b": 2.0}

    made = Grid(serve, guess, turns)
    made.search()
    return made, asked


@pytest.mark.parametrize("capacity", [6.0, 9.7, 10.3, 18.0])
def test_a_capacity_lies_between_two_measured_rates(capacity):
    """A grid where the share of good requests falls linearly with the rate."""
    made, asked = grid(lambda rate, turn: 0.95 - (rate / capacity - 1))
    assert made.crossing() == pytest.approx(capacity, rel=0.005)
    assert made.halves == (made.crossing(), made.crossing())
    assert len(set(asked)) == len(asked) and len(asked) % 4 == 0, "each rate in each turn, once"


def test_the_searched_rates_bracket_the_capacity_of_each_half_of_the_turns():
    """The machine is slower in the odd turns."""
    made, asked = grid(lambda rate, turn: 0.95 - (rate / (8.0 if turn % 2 else 12.0) - 1))
    low, high = sorted(made.halves)
    assert (low, high) == (pytest.approx(8.0, rel=0.01), pytest.approx(12.0, rel=0.01))
    assert low < made.crossing() < high
    assert min(rate for rate, _ in asked) <= 8.0 < 12.0 <= max(rate for rate, _ in asked)


@pytest.mark.parametrize("kept, end", [(1.0, FURTHEST), (0.5, -FURTHEST)])
def test_a_search_that_never_or_always_breaks_ends_at_the_furthest_rate(kept, end):
    made, _ = grid(lambda rate, turn: kept)
    assert made.crossing() == pytest.approx(10.0 * STEP**end)


def test_each_round_has_its_own_requests():
    """Rounds have equally many requests, in order from the traces' beginning, within one second."""
    scale = replace(SCALES["tiny"], rounds=3, requests=50)
    windows = asked(scale, context=1_024)
    (together,) = asked(replace(scale, rounds=1, requests=150), context=1_024)
    assert [len(window) for window in windows] == [50] * 3
    bare = [(ask.lane, ask.prompt, ask.answer) for window in windows for ask in window]
    assert bare == [(ask.lane, ask.prompt, ask.answer) for ask in together]
    assert {(window[0].at, window[-1].at) for window in windows} == {(0, 10**9)}
    assert all(a.at <= b.at for window in windows for a, b in pairwise(window))
    with pytest.raises(SettingError, match="6071 requests, and 9000 were asked for"):
        asked(replace(scale, requests=3_000), context=1_024)


def served(lane, ttft, generated=3):
    times = 0, 0, ttft, 2 * ttft, 2 * ttft
    return RequestRow("", lane, Budget(), Finish.LENGTH, *times, 1, generated, 0, 0, 0, 0)


def outcome(count, ttft):
    rows = [served("chat", ttft)] * count + [served("code", ttft, generated=1)] * count
    return Outcome({}, tuple(rows), (), 0, complete=True)


def test_percentiles_of_too_few_requests_are_left_out_and_named():
    """No answer of `code` has a second token. Fifty requests give a p90, ten only a p50."""
    lanes, two = ["chat", "code"], [[outcome(50, 20)], [outcome(50, 24)]]
    found = errors(lanes, 80, two, [outcome(50, 22)])
    assert {each.signed for each in found} == {0.0}
    assert unsaid(lanes, [80], found) == ["err_tpot_p50_at80_code", "err_tpot_p90_at80_code"]
    few = errors(lanes, 80, two, [outcome(10, 22)])
    assert "err_ttft_p90_at80_chat" in unsaid(lanes, [80], few)
    assert unsaid(lanes, [95], []) == [], "not judged"


def unserved(count):
    rows = [served("chat", 20, generated=0)] * count
    rows = [replace(row, first_token=NEVER, last_token=NEVER) for row in rows]
    return Outcome({}, tuple(rows), (), 0, complete=False)


def short(figures):
    return [each.name for each in figures if each.falls_short]


def test_a_simulator_that_serves_nothing_is_infinitely_far_off():
    lanes, names = ["chat"], [f"err_{m}_p{p}_at80" for m in ("ttft", "tpot") for p in (50, 90)]
    two = [[outcome(50, 20)], [outcome(50, 24)]]
    found = errors(lanes, 80, two, [unserved(100)])
    assert unsaid(lanes, [80], found) == []
    assert short(of_errors(found, found, [80])) == names + [f"{name}_chat" for name in names]
    alive = errors(lanes, 80, two, [outcome(50, 22)])
    assert short(of_errors(alive, alive, [80])) == []
    dead = errors(lanes, 80, [[unserved(100)], two[1]], [outcome(50, 22)])
    assert "err_ttft_p50_at80" in short(of_errors(dead, dead, [80])), "so is a live run"
    assert errors(lanes, 95, two, [unserved(100)]) == [], "not judged"


def test_a_run_without_any_judged_figure_falls_short():
    few = errors(["chat"], 80, [[outcome(2, 20)]] * 2, [outcome(2, 22)])
    assert short(of_errors(few, few, [80])) == ["judged"]
    assert short(of_errors([], [], [95])) == [], "no load of them is judged"


def step(began, nanoseconds):
    return LiveStep(row_features(0, 1, logits=1), began, nanoseconds, 0, 0, 0, 0, 9, False)


def test_the_pace_at_a_moment_is_that_of_nearby_pauses():
    """Steps priced at 10 ms take that in the pauses of the first second, and twice that later."""
    cost, each = StepCost.of(10 * MS), 20
    ends = [(250 * MS * k, 250 * MS * k) for k in range(1, 9)]
    lengths = [10 * MS if end <= 1_000 * MS else 20 * MS for _, end in ends]
    pauses = split(
        (
            step(end - 250 * MS + k * MS, length)
            for (_, end), length in zip(ends, lengths, strict=True)
            for k in range(each)
        ),
        ends,
    )
    assert [len(pause.steps) for pause in pauses] == [each] * 8
    found = pace(cost, pauses, 100 * MS)
    assert (found.at(0), found.at(500 * MS), found.at(2_000 * MS)) == (1_000, 1_000, 2_000)
    assert found.at(1_100 * MS) + found.at(1_150 * MS) == 3_000, "on either side of the middle"
    assert found.at(10**12) == 2_000, "after the last pause its pace holds"
    evened = {round(each.nanoseconds / MS) for each in found.evened(pauses)}
    assert evened == {10}


def test_a_moment_far_from_every_pause_has_the_plain_price():
    found = pace(StepCost.of(10 * MS), split([step(0, 20 * MS)], [(900 * MS, MS)]), 100 * MS)
    assert (found.at(0), found.at(900 * MS)) == (1_000, 2_000)


def test_a_paced_simulation_takes_as_much_longer_as_the_machine_did():
    def took(thousandths, residual=1_000):
        often = Residuals((residual,) * 2)
        cost = replace(StepCost.of(10 * MS), residuals=(often, often))
        calibration = replace(CALIBRATION, cost=cost)
        testbed = paced_testbed(calibration, 0, Pace(thousandths))
        asked = [Request("a", (1, 2, 3), 9, 0, lane="default")]
        return Run(testbed, Policies(), [Lane()], asked).serve().nanoseconds

    assert took((1_000,)) == 90 * MS
    assert took((1_500,)) == 135 * MS
    assert took((1_500,), residual=800) == 108 * MS
    assert took((1_000, 2_000)) == (5 * 10 + 4 * 20) * MS, "from 50 ms on"


def test_a_machine_that_keeps_the_budgets_at_no_rate_is_told_so(capsys):
    stage = SimpleNamespace(
        scale=SCALES["tiny"],
        testbed=SimpleNamespace(dtype="float32"),
        first=SimpleNamespace(threads=1),
    )
    bench = SimpleNamespace(stage=stage, guess=lambda: 0.0)
    asked = Namespace(executor="torch", capacity="simulated", loads="80", part="tiny", seed=0)
    assert measured(bench, asked) == 1
    assert "In simulation no rate keeps the budgets" in capsys.readouterr().out
