"""The formulas are within 10 % of the real scheduler in virtual time, if their assumptions hold."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.commands.plan.estimate import checks
from headway.commands.plan.estimate.batch_service import batch_service
from headway.commands.plan.estimate.burstiness import dispersion
from headway.commands.plan.estimate.fluid import steady_state
from headway.commands.plan.estimate.memory import kv_per_token, peak_batch
from headway.commands.plan.estimate.padding import expected_longest, padded_share
from headway.commands.plan.estimate.planned_traffic import SECOND, PlannedTraffic, steady, traced
from headway.commands.plan.estimate.simulated_machine import (
    ROOM,
    Machine,
    highest_rate,
    largest_count,
    one_prompt,
    serve,
    whole_prompts,
)
from headway.commands.plan.estimate.step_times import StepTimes
from headway.commands.plan.estimate.token_cost import per_million
from headway.commands.plan.estimate.waiting import capacity, prompt_wait, unstable_rate
from headway.core.cost.step_cost import WHOLE, Rates, Residuals, Rounding, StepCost
from headway.core.policies.join import Dynamic
from headway.core.policies.policies import Policies
from headway.costing.request_spec import RequestSpec
from headway.errors import SettingError
from headway.traffic.trace import read_shipped_trace

# About an 8B model on one H100: 7 ms, 35 us a token, 47 ns per key read, and little per pair.
COST = StepCost(Rates(step=7_000_000_000, read=47_000, pair=1_200), ((0, 35_000_000),))
WITHIN = 0.10


def near(checked, outside=False):
    assert bool(checked.estimate.outside) is outside, checked.estimate.outside
    assert abs(checked.difference) <= WITHIN, checked
    return True


def rate_at(figure, share):
    """The rate at which a figure that rises with the rate reaches this share."""

    def below(rate):
        try:
            return figure(rate / 1e9) <= share
        except SettingError:
            return False

    return highest_rate(below, 1e-4, 1e4, 60)


def test_a_token_of_llama_2_7b_takes_512_kib_of_kv_memory_in_16_bits():
    assert kv_per_token(32, 32, 32, 128, 2) == {"MHA": 512 << 10, "MQA": 16 << 10}
    assert list(kv_per_token(80, 64, 8, 128, 2).items()) == [
        ("MHA", 2_621_440),
        ("GQA", 327_680),
        ("MQA", 40_960),
    ]


def test_the_estimated_peak_batch_is_the_largest_that_runs_without_preemption():
    machine = Machine(COST, 16, num_blocks=121)
    for traffic in (steady(1, 50, 40), steady(1, 33, 64), steady(1, 16, 1)):
        peak = checks.check_memory(machine, traffic)[0]
        assert peak.simulated == peak.estimate.value
    assert peak_batch(steady(1, 33, 64), 301, 16).value == 301 // 6


@pytest.mark.parametrize(("prompt", "answer"), [(100, 1), (100, 100), (40_000, 1)])
def test_batches_that_would_take_minutes_are_not_simulated(prompt, answer, monkeypatch):
    monkeypatch.setattr(checks, "serve", lambda *_: pytest.fail("it was simulated"))
    machine = Machine(replace(COST, pieces=((0, 1_000),)), 16, num_blocks=400_000)
    for checked in checks.check_memory(machine, steady(1, prompt, answer)):
        assert checked.simulated is None and checked.method == checks.TOO_MANY
    tpot = checks.check_tpot(machine, steady(1, 100, max(2, answer)), 400_000_000)
    assert tpot.simulated is None and tpot.method == checks.TOO_MANY


def test_a_full_memory_runs_as_many_requests_as_it_holds_on_average():
    machine = Machine(COST, 16, num_blocks=1_500)
    draw = Random(1)
    lengths = tuple((draw.randint(50, 250), draw.randint(20, 100)) for _ in range(97))
    near(checks.check_memory(machine, PlannedTraffic("mixed", lengths, 1.0))[1])


@pytest.mark.parametrize("tpot", [8, 12, 20])
def test_the_estimated_largest_batch_within_a_tpot_matches_the_simulation(tpot):
    cost = replace(COST, after=Rates(step=500_000_000), pieces=((0, 20_000_000), (64, 70_000_000)))
    near(checks.check_tpot(Machine(cost, 512), steady(1, 300, 30), tpot * 1_000_000))


def test_the_estimated_padding_share_matches_what_groups_compute():
    lengths = tuple((a.prompt, a.answer) for a in read_shipped_trace("azure2023-code"))
    traffic, buckets = PlannedTraffic("code", lengths, 1.0), (512, 1024, 2048, 4096, 8192)
    answers = checks.check_padding(Machine(COST, 16), traffic, 16, buckets)
    assert len(answers) == 3 and all(near(each) for each in answers)
    shares = [each.estimate.value for each in answers]
    assert shares[2] < shares[0] < shares[1], (
        "padding up to buckets adds padding, grouping by bucket removes it"
    )


@given(st.lists(st.integers(1, 500), min_size=1), st.integers(1, 40))
def test_the_expected_longest_lies_between_the_mean_and_the_maximum(lengths, size):
    mean = sum(lengths) / len(lengths)
    assert mean * (1 - 1e-9) <= expected_longest(lengths, size) <= max(lengths) * (1 + 1e-9)
    assert expected_longest(lengths, 1) == pytest.approx(mean)
    assert padded_share(lengths, size) <= padded_share(lengths, size + 1) + 1e-9


# The corners of the range, and its middle.
@pytest.mark.evidence
@pytest.mark.parametrize(
    "base, rho",
    [(200_000, 0.1), (200_000, 0.9), (1_000_000, 0.5), (5_000_000, 0.1), (5_000_000, 0.9)],
)
def test_inoues_bound_holds_for_batch_service(base, rho):
    """alpha = 1 ms: prompts and answers of one token, all waiting requests in one group."""
    cost = StepCost.of(base, 1_000_000)
    requests = steady(1, 1, 1).poisson(12_000, rho * 1_000, seed=1)
    run = serve(Machine(cost, 64), Policies(Dynamic(1 << 20, 0), step_tokens=ROOM), requests)
    value = batch_service(StepTimes(cost), 1, rho * 1_000)
    assert not value.outside
    assert -0.01 <= value.value * 1e6 / run.ttft - 1 <= WITHIN


def test_groups_of_more_requests_than_the_cost_model_was_fitted_to_are_marked():
    """alpha 1 ms, tau0 5 ms, load 0.5: groups of 500 x 5 ms / 0.5 = 5."""
    steps = StepTimes(StepCost.of(5_000_000, 1_000_000))
    assert not batch_service(steps, 1, 500, slots=5).outside
    few = batch_service(steps, 1, 500, slots=4)
    assert few.outside == "groups of 5, and the cost model was fitted up to 4 rows"


@pytest.mark.evidence
@pytest.mark.parametrize("cooling", [0, 8_000_000])
@pytest.mark.parametrize("base, rho", [(200_000, 0.1), (200_000, 0.9), (5_000_000, 0.5)])
def test_a_request_that_finds_batch_service_asleep_waits_for_it_to_wake(base, rho, cooling):
    cost = replace(StepCost.of(base, 1_000_000), wake=300_000, cooling=cooling)
    requests = steady(1, 1, 1).poisson(12_000, rho * 1_000, seed=1)
    run = serve(Machine(cost, 64), Policies(Dynamic(1 << 20, 0), step_tokens=ROOM), requests)
    value = batch_service(StepTimes(cost), 1, rho * 1_000)
    assert -0.06 <= value.value * 1e6 / run.ttft - 1 <= WITHIN


@pytest.mark.evidence
@pytest.mark.parametrize(
    "prompt, answer, rho",
    [(100, 20, 0.2), (100, 20, 0.7), (300, 60, 0.45), (1_000, 30, 0.2), (1_000, 30, 0.7)],
)
def test_the_fluid_law_holds_for_poisson_arrivals(prompt, answer, rho):
    machine = Machine(COST, 256)
    rate = rate_at(
        lambda each: steady_state(StepTimes(COST), steady(1, prompt, answer), each).rho, rho
    )
    traffic = steady(rate * 0.9999, prompt, answer)
    run = serve(machine, whole_prompts(256), traffic.poisson(3_000, traffic.rate, seed=1))
    tpot, batch, held, ttft = checks.check_at_rate(machine, traffic, run)
    assert near(tpot) and near(batch) and near(held)
    assert ttft.estimate.outside or near(ttft)


def test_a_steady_state_is_found_where_a_larger_batch_makes_tokens_cheaper():
    """As with experts: the first sixteen rows lengthen a step by 1 ms each, the others hardly."""
    pieces = ((0, 1_000_000_000), (16, 0), (512, 35_000_000))
    machine = Machine(replace(COST, pieces=pieces), 256)
    traffic = steady(12, 100, 150)
    state = steady_state(StepTimes(machine.cost), traffic, traffic.rate / 1e9)
    run = serve(machine, whole_prompts(256), traffic.poisson(400, traffic.rate, seed=0))
    assert state.pace == pytest.approx(run.tpot, rel=WITHIN) and state.batch > 32
    with pytest.raises(SettingError, match="more than this machine can serve with any batch"):
        steady_state(StepTimes(machine.cost), traffic, 1e-4)


@pytest.mark.evidence
@pytest.mark.parametrize("rho", [0.2, 0.5])
def test_the_fluid_law_holds_where_an_executor_rounds_tokens_up(rho):
    cost = replace(COST, rounding=Rounding(least=4, digits=5))
    rate = rate_at(lambda each: steady_state(StepTimes(cost), steady(1, 300, 60), each).rho, rho)
    traffic = steady(rate, 300, 60)
    run = serve(
        Machine(cost, 256), whole_prompts(256), traffic.poisson(3_000, traffic.rate, seed=1)
    )
    tpot, batch, held, _ = checks.check_at_rate(Machine(cost, 256), traffic, run)
    assert near(tpot) and near(batch) and near(held)


@pytest.mark.parametrize("host", [2, 9])
def test_the_host_works_while_another_step_is_computed_if_two_are_in_flight(host):
    """A step takes as long as the slower of host and device; the device takes about 7 ms."""
    rates = Rates(step=host * 1_000_000_000), Rates(step=500_000_000)
    cost = replace(COST, host=rates[0], after=rates[1])
    machine, traffic = Machine(cost, 256, depth=2), steady(12, 50, 60)
    run, one = (
        serve(each, whole_prompts(256), traffic.poisson(400, traffic.rate, seed=3))
        for each in (machine, replace(machine, depth=1))
    )
    tpot, *_, wait = checks.check_at_rate(machine, traffic, run)
    assert abs(tpot.difference) <= WITHIN and run.tpot < 0.85 * one.tpot
    assert wait.estimate.outside == "2 steps are in flight; the formula knows one"


def test_decoding_requests_also_wait_for_the_hosts_work_after_a_step():
    """The host's time is a tenth of a cycle here. Little's law checks the batch in the same run."""
    machine = Machine(replace(COST, after=Rates(step=1_400_000_000)), 256)
    traffic = steady(30, 300, 60)
    run = serve(machine, whole_prompts(256), traffic.poisson(1_200, traffic.rate, seed=1))
    rows = run.settled
    spent = sum(row.last_token - row.first_token for row in rows)
    little = spent / (rows[-1].arrived - rows[0].arrived)
    assert run.mean(lambda row: row.decodes) == pytest.approx(little, rel=0.03)
    tpot, batch, held, _ = checks.check_at_rate(machine, traffic, run)
    assert near(tpot) and near(batch) and near(held)


@pytest.mark.evidence
@pytest.mark.parametrize(
    "prompt, answer, load",
    [(600, 1, 0.2), (600, 1, 0.75), (300, 10, 0.5), (600, 30, 0.2), (600, 30, 0.75)],
)
def test_the_wait_of_a_prompt_follows_the_m_g_1_formula(prompt, answer, load):
    machine = Machine(COST, 64)
    rate = rate_at(
        lambda each: prompt_wait(StepTimes(COST), steady(1, prompt, answer), each).load, load
    )
    near(checks.check_ttft(machine, steady(rate, prompt, answer)))


@pytest.mark.evidence
def test_the_wait_grows_with_the_second_moment_of_prompt_lengths():
    draw = Random(2)
    lengths = tuple((draw.choice((80, 80, 80, 1_500)), 5) for _ in range(500))
    machine = Machine(COST, 64)
    rate = rate_at(
        lambda each: prompt_wait(StepTimes(COST), PlannedTraffic("two", lengths, 1.0), each).load,
        0.6,
    )
    near(checks.check_ttft(machine, PlannedTraffic("two", lengths, rate)))


@pytest.mark.evidence
def test_the_estimated_rate_within_a_large_ttft_budget_matches_the_simulation(monkeypatch):
    monkeypatch.setattr(checks, "MOST", 1_500)
    traffic, machine = steady(1, 600, 10), Machine(COST, 64)
    checked = checks.check_budget_rate(machine, traffic, 150_000_000)
    near(checked)
    assert checked.estimate.value < unstable_rate(StepTimes(COST), traffic)


@pytest.mark.parametrize("answer", [30, 200])
def test_no_rate_above_what_the_machine_serves_keeps_a_budget(answer, monkeypatch):
    """Above it the wait grows without end, though the few requests of a run may keep the budget."""
    monkeypatch.setattr(checks, "MOST", 200)
    machine, traffic = Machine(COST, 16), steady(1, 600, answer)
    steps, decodes = StepTimes(COST), answer - 1
    full = steps.decoding(16, traffic.context)
    prompt = steps.with_prompt(600, 16, traffic.context) - full
    most = 16 / (decodes * full + 16 * prompt) * 1e9  # slots over a request's time in them
    checked = checks.check_budget_rate(machine, traffic, 60 * SECOND)
    assert checked.simulated == pytest.approx(most, rel=0.02)


def test_the_cost_of_a_token_is_the_machines_price_over_its_tokens():
    assert per_million(3.6, 1_000) == pytest.approx(1.0)
    machine, traffic = Machine(COST, 64), steady(10, 200, 20)
    run = serve(machine, whole_prompts(64), traffic.poisson(800, traffic.rate, seed=3))
    near(checks.check_cost(traffic, 3.0, run, None)[0])


def test_dispersion_shows_bursts():
    draw, at, times = Random(5), 0.0, []
    for _ in range(20_000):
        at += draw.expovariate(10) * SECOND
        times.append(int(at))
    assert dispersion(times, SECOND) == pytest.approx(1, abs=0.1)
    bursts = [number // 50 * 5 * SECOND for number in range(20_000)]
    assert dispersion(bursts, SECOND) == pytest.approx(40, rel=0.05), "counts are 0 or 50"
    assert dispersion(times[:3], 60 * SECOND) == 0.0
    code = [arrival.at for arrival in read_shipped_trace("azure2023-code")]
    conv = [arrival.at for arrival in read_shipped_trace("azure2023-conv")]
    assert dispersion(code, 60 * SECOND) > 20 * dispersion(conv, 60 * SECOND)


@pytest.mark.evidence
def test_the_formula_underprovisions_a_bursty_trace_but_not_a_poisson_one(monkeypatch):
    """Up to twenty requests arrive at once; the mean rate does not show their waits."""
    monkeypatch.setattr(checks, "MOST", 600)
    machine, draw, at, bursts = Machine(COST, 64), Random(4), 0.0, []
    while len(bursts) < 600:
        at += draw.expovariate(0.5) * SECOND
        bursts += [RequestSpec(int(at), "default", 600, 2)] * draw.randint(1, 20)
    calm = steady(1, 600, 2).poisson(600, 10, seed=9)
    even = traced("calm", [RequestSpec(each.arrived, "default", 600, 2) for each in calm])
    planned = checks.check_budget_rate(machine, even, 500_000_000)
    assert checks.measure_burstiness(machine, even, 500_000_000, planned).times < 1.25
    found = checks.measure_burstiness(machine, traced("bursts", bursts[:600]), 500_000_000, planned)
    assert found.times > 1.4
    assert found.dispersion[10 * SECOND] > 5


def test_step_times_include_mean_residuals_and_the_hosts_time_after_a_step():
    cost = replace(
        StepCost.of(1_000),
        after=Rates(step=50_000),
        residuals=(Residuals((900, 1_000, 1_500)), Residuals()),
        knee=10,
    )
    assert StepTimes(cost).decoding(2, 5) == pytest.approx(1_000 * 1_100 / WHOLE + 50)


def test_impossible_questions_are_refused_with_the_remedy():
    machine, traffic = Machine(COST, 64), steady(1e4, 600, 20)
    with pytest.raises(SettingError, match=r"lower the rate.* by --token-scale"):
        steady_state(StepTimes(COST), traffic, traffic.rate / 1e9)
    with pytest.raises(SettingError, match="lower the rate"):
        prompt_wait(StepTimes(COST), steady(1, 600, 1), 1e3 / 1e9)
    with pytest.raises(SettingError, match="lower the rate"):
        batch_service(StepTimes(COST), 600, 1e4)
    with pytest.raises(SettingError, match="ask for more"):
        capacity(machine, steady(1, 600, 20), 1_000_000)
    with pytest.raises(SettingError, match="ask for more"):
        checks.check_tpot(machine, steady(1, 600, 20), 1_000_000)
    with pytest.raises(SettingError, match="calibrate again"):
        unstable_rate(StepTimes(StepCost.of(1_000_000)), steady(1, 600, 20))
    with pytest.raises(SettingError, match="no span"):
        traced("one", [RequestSpec(5, "default", 3, 3)])
    with pytest.raises(SettingError, match="KV memory"):
        serve(Machine(COST, 4, num_blocks=2), one_prompt(4), steady(1, 600, 2).backlog(1))


@given(st.integers(0, 300), st.integers(1, 300))
def test_the_largest_count_is_found_from_any_guess(largest, guess):
    assert largest_count(lambda value: value <= largest, guess) == largest
