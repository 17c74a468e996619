"""Calibration of a machine with known prices, in virtual time and without a model."""

import json
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from math import exp, inf, nan, sqrt
from random import Random

import pytest
from rich.console import Console

pytest.importorskip("scipy")

from headway.commands.calibrate import calibrate, learn
from headway.commands.calibrate.calibrate import CalibrateOptions, run_calibrate
from headway.commands.calibrate.correlation import correlation_parts, normal_scores
from headway.commands.calibrate.design import designs
from headway.commands.calibrate.fit import fit_steps
from headway.commands.calibrate.learn import LiveTraffic, calibrate_testbed, check_enough
from headway.commands.calibrate.observe import (
    BUSY,
    CALM,
    CHECKED,
    CHUNKS,
    FIRST,
    LEARNED,
    SLOWER,
    STRETCH,
    WAKING,
    AlternatingChunks,
    LiveStep,
    serve_trace,
    with_calm_spells,
)
from headway.commands.calibrate.tables import errors_table, terms_table
from headway.commands.calibrate.trials import Sample
from headway.commands.calibrate.validate import (
    ENOUGH,
    LIMITS,
    engine_rates,
    errors,
    extra_time,
    fit_live,
    residuals,
    with_waking,
)
from headway.core.cost.features import row_features
from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import WHOLE, Rates, Rounding, StepCost
from headway.core.view import View
from headway.costing.calibration import read_cost_file, write_cost_file
from headway.costing.request_spec import RequestSpec
from headway.errors import HeadwayError, SettingError
from headway.models import display_name
from headway.sim.engine import VirtualEngine
from tests.commands.calibrate.test_fit import COST
from tests.commands.small_cost_model import CALIBRATION
from tests.commands.testbeds import fake_testbed

HOSTED = StepCost(
    COST.device, COST.pieces, host=Rates(step=400_000_000, row=9_000_000), knee=128,
    after=Rates(step=70_000_000, row=6_000_000), rounding=Rounding(least=4, digits=5),
    gathering=Gathering(16, at_once=40),
)  # fmt: skip


def virtual(cost=HOSTED):
    """A testbed whose host also takes time, in a step and after it; every step is really run."""
    here = fake_testbed(cost=cost)
    priced = here.executor.executor
    return replace(
        here,
        fit=9_000,
        rounding=cost.rounding,
        gathering=cost.gathering,
        engine=lambda *parts: VirtualEngine(*parts, priced),
    )


@pytest.fixture(scope="module")
def found():
    return calibrate_testbed(virtual(), kv_bytes=64, slots=8, seconds=40.0)


STEPS = [
    row_features(0, 200, logits=1),
    row_features(900, 64),
    row_features(300, 1, logits=1) + row_features(40, 1, logits=1),
    sum([row_features(120 * n, 1, logits=1) for n in range(8)], row_features(0, 256, logits=1)),
]


def test_calibration_finds_host_and_device_prices_separately(found):
    for step in STEPS:
        assert found.cost.predict(step) == pytest.approx(HOSTED.predict(step), rel=0.02)
        assert found.cost.on_host(step) == pytest.approx(HOSTED.on_host(step), rel=0.05)
        assert found.cost.behind(step) == pytest.approx(HOSTED.behind(step), rel=0.05)
    assert found.cost.knee == 128 and found.cost.wake == 0
    assert found.cost.rounding == HOSTED.rounding
    assert found.cost.gathering == HOSTED.gathering
    assert found.about["factor"] == pytest.approx(1.0, abs=0.01)


def test_calibration_reports_its_errors_on_held_out_steps(found):
    said = found.about["errors"]
    assert set(said) == {"memory", "compute", "all"}
    assert said["all"]["steps"] == said["memory"]["steps"] + said["compute"]["steps"] > 50
    assert all(abs(each["median"]) <= 10 and each["p90"] <= 20 for each in said.values())


def test_a_written_cost_file_reads_back_with_its_cost_and_its_sizes(found, tmp_path):
    write_cost_file(found, tmp_path / "cost.json")
    again = read_cost_file(tmp_path / "cost.json")
    assert again == read_cost_file(tmp_path / "cost.json") and again.cost == found.cost
    assert json.loads((tmp_path / "cost.json").read_text())["about"]["live"]["learned_from"]
    assert (again.slots, again.kv_bytes, again.analytical) == (8, 64, False)
    assert (again.num_blocks, again.fit) == (2_048, 9_000)


def test_the_tables_show_prices_and_errors_by_term_and_regime(found):
    console = Console(width=100, record=True, file=StringIO())
    console.print(terms_table(found))
    console.print(errors_table(found.about))
    said = console.export_text()
    for words in ("host, per step", "per token from 128 on", "compute", "designed batches alone"):
        assert words in said


@pytest.mark.parametrize("context", [8, 16, 47, 63])
def test_designs_for_a_short_context_fit_it_and_have_no_empty_prompt(context):
    for slots in (1, 4, 16):
        made = designs(slots, context, context * slots, 16, seed=3)
        assert made and all(max(design.lengths) <= context for design in made)
        assert all(length > 0 for design in made for _, length in design.prompts)


def test_designs_fit_into_the_memory_and_reach_all_slots():
    for slots, blocks in ((1, 40), (2, 80), (8, 300), (64, 8_192)):
        made = designs(slots, 1_024, blocks, 16, seed=3)
        assert len(set(made)) == len(made) > 5
        assert all(sum(-(-length // 16) for length in each.lengths) <= blocks for each in made)
        assert all(max(each.lengths) <= 1_024 for each in made)
        assert max(len(each.decodes) for each in made) == slots
        assert max(len(each.lengths) + each.held for each in made) == slots
        assert [each.tokens for each in made] == sorted(each.tokens for each in made)


def live(spent, number=0, features=STEPS[2], slept=0, since=WAKING):
    """A live step that takes this multiple of its price."""
    price = COST.predict(features)
    return LiveStep(features, number * 10**7, round(price * spent), 0, 0, 0, slept, since, False)


def test_residuals_have_the_measured_mean_despite_an_extreme_step():
    factors = [0.9 + 0.2 * k / 999 for k in range(999)] + [10.0]
    found = residuals(COST, [live(each, k) for k, each in enumerate(factors)])
    assert len(found.quantiles) == 21 and list(found.quantiles) == sorted(found.quantiles)
    q = found.quantiles
    drawn = sum((a + b) / 2 for a, b in pairwise(q)) / 20
    assert drawn == pytest.approx(WHOLE * sum(factors) / 1_000, rel=0.01)


STEP = 8_000_000  # nanoseconds from a step to the next


def chains(*parts, count=6_000, seed=1):
    """Normal numbers, sums of parts: each its variance and the share kept a step later."""
    random, values = Random(seed), [0.0] * count
    for variance, kept in parts:
        value = 0.0
        for at in range(count):
            value = kept * value + sqrt(1 - kept**2) * random.gauss()
            values[at] += sqrt(variance) * value
    return values


def left(found, lag):
    """The correlation that is left after `lag` steps."""
    return sum(each.share * exp(-lag * STEP / each.lasts) for each in found) / WHOLE


def test_correlated_steps_have_echoes_and_independent_ones_none():
    times = range(0, 6_000 * STEP, STEP)
    slow = correlation_parts(normal_scores(chains((0.4, 0.99), (0.4, 0.6), (0.2, 0.0))), times)
    assert left(slow, 1) == pytest.approx(0.4 * 0.99 + 0.4 * 0.6, abs=0.1)
    assert left(slow, 32) == pytest.approx(0.4 * 0.99**32, abs=0.12)
    assert sum(each.share for each in slow) <= WHOLE
    assert left(correlation_parts(normal_scores(chains((1, 0.0))), times), 1) < 0.1
    assert not correlation_parts([0.3] * 50, range(0, 50 * STEP, STEP)), "too few steps"


def test_echoes_are_found_across_steps_that_are_left_out():
    values = chains((0.5, 0.98), (0.5, 0.0))
    half = [number for number in range(6_000) if number // 100 % 2]
    times = [number * STEP for number in half]
    found = correlation_parts(normal_scores([values[number] for number in half]), times)
    assert left(found, 8) == pytest.approx(0.5 * 0.98**8, abs=0.12)


def test_the_price_level_is_learned_from_live_steps_within_limits():
    samples = [Sample(step, COST.predict(step), 0) for step in STEPS for _ in range(20)]
    for spent in (1.1, 3.0, 0.1):
        steps = [live(spent, k, STEPS[k % 4]) for k in range(400)]
        live_fit = fit_live(fit_steps(samples), samples, steps[:200], steps[200:])
        assert live_fit.after["all"].steps == 200
        assert live_fit.before["all"].median == pytest.approx(1_000 / spent - 1_000, abs=10)
        assert LIMITS[0] <= live_fit.factor <= LIMITS[1]
        if spent == 1.1:
            assert abs(live_fit.after["all"].median) <= 10
    assert errors(COST, [live(1.0)])["all"].median == 0


def test_the_engines_own_time_has_the_measured_mean_despite_few_long_gaps():
    gaps = [80_000] * 9 + [300_000]
    steps = [replace(live(1.0, k), deciding=2 * gap, after=gap) for k, gap in enumerate(gaps)]
    deciding, behind = engine_rates(steps)
    assert behind.of(STEPS[2]) == pytest.approx(102_000_000, rel=1e-4), "picoseconds"
    assert deciding.of(STEPS[2]) == pytest.approx(204_000_000, rel=1e-4)
    assert engine_rates([live(1.0)]) == (Rates(), Rates())


def test_errors_of_a_step_after_a_sleep_include_the_price_of_waking():
    cost = replace(COST, wake=1_000_000, wake_tail=(400_000, 100_000), cooling=8_000)
    spent = COST.predict(STEPS[2])
    for slept, since, more in (
        (2_000, 0, 250_000), (8_000, 0, 1_000_000), (80_000, 0, 1_000_000),
        (2_000, 1, 100_000), (80_000, 1, 400_000), (80_000, 2, 100_000), (80_000, 3, 0),
    ):  # fmt: skip
        woken = replace(live(1.0, slept=slept, since=since), nanoseconds=spent + more)
        assert woken.predicted(cost) == woken.nanoseconds
        found = errors(cost, [woken])["all"]
        assert (found.median, found.within) == (0, 1_000)


def test_a_few_large_steps_have_a_bounded_weight():
    samples = [Sample(step, COST.predict(step), 0) for step in STEPS for _ in range(20)]
    small, large = STEPS[0], max(STEPS, key=lambda step: step.tokens)
    steps = [live(1.0, k, small) for k in range(300)] + [
        live(3.0, 300 + k, large) for k in range(3)
    ]
    live_fit = fit_live(fit_steps(samples), samples, steps, steps)
    assert live_fit.cost.predict(large) < 1.2 * COST.predict(large)


def test_designed_batches_are_brought_to_the_level_of_live_ones():
    """Otherwise designed batches of a fast hour would distort terms that are rare in live steps."""
    samples = [Sample(step, COST.predict(step) // 2, 0) for step in STEPS for _ in range(20)]
    live_fit = fit_live(
        fit_steps(samples), samples, [live(1.0, k, STEPS[2]) for k in range(400)], []
    )
    said = [live_fit.cost.predict(step) for step in STEPS]
    assert said == pytest.approx([COST.predict(step) for step in STEPS], rel=0.02)


def test_the_traffic_to_learn_from_has_chunks_of_every_size():
    chunks = AlternatingChunks()
    asked = [chunks.allow(View(0, ())).tokens for _ in range(2 * STRETCH * len(CHUNKS))]
    assert asked == 2 * [size for size in CHUNKS for _ in range(STRETCH)]


def test_extra_time_of_a_step_counts_only_if_it_is_significant():
    asleep = [live(1.2, k) for k in range(20)]
    assert extra_time(COST, asleep) == pytest.approx(0.2 * COST.predict(STEPS[2]), rel=0.01)
    assert extra_time(COST, asleep[:5]) == 0, "too few steps"
    assert extra_time(COST, [live(1 + 0.3 * (-1) ** k, k) for k in range(20)]) == 0


def test_the_price_of_waking_grows_with_the_sleep_up_to_the_fitted_cooling_time():
    random, price = Random(3), COST.predict(STEPS[2])
    more, steps = (0.3, 0.1, 0.0), list[LiveStep]()
    for _ in range(200):
        slept = round(random.expovariate(1 / 20e6))
        for since, share in enumerate(more):
            spent = share * min(1, slept / 32e6) + random.gauss(1, 0.02)
            steps.append(live(spent, len(steps), slept=slept, since=since))
    steps[30] = replace(steps[30], nanoseconds=40 * price)  # another process had the core
    found = with_waking(COST, steps)
    assert found.cooling == 32_000_000 and found.wake == pytest.approx(0.3 * price, rel=0.05)
    assert len(found.wake_tail) == 1 and found.wake_tail[0] == pytest.approx(0.1 * price, rel=0.1)
    even = [replace(step, nanoseconds=round(price * 1.2)) for step in steps]
    extra = round(price * 1.2) - price
    assert with_waking(COST, even) == replace(COST, wake=extra, wake_tail=(extra, extra))
    never = [live(1 + 0.3 * (-1) ** k, k, slept=9, since=k // 2 % 3) for k in range(60)]
    assert with_waking(COST, never) == with_waking(COST, []) == COST


def test_the_first_step_without_prompts_has_its_own_price_and_does_not_affect_others():
    decodes = row_features(40, 1, logits=1)
    samples = [Sample(step, COST.predict(step), 0) for step in STEPS for _ in range(20)]
    more = COST.predict(decodes) // 2
    steps = [live(1.0, k, decodes if k % 2 else STEPS[k % 4]) for k in range(400)]
    steps = [
        replace(step, nanoseconds=step.nanoseconds + more, turned=True) if k % 4 == 3 else step
        for k, step in enumerate(steps)
    ]
    live_fit = fit_live(fit_steps(samples), samples, steps, steps)
    assert live_fit.cost.turn == pytest.approx(more, rel=0.02)
    assert live_fit.cost.predict(decodes) == pytest.approx(COST.predict(decodes), rel=0.02)
    assert live_fit.after["all"].total == pytest.approx(0, abs=5)


def test_every_live_step_counts_and_not_only_as_many_as_designed_batches():
    """One step in ten takes longer in traffic than alone. With only as many live steps as
    designed batches, the designed batches would outweigh these steps."""
    samples = [Sample(step, COST.predict(step), 0) for step in STEPS for _ in range(20)]
    dear, other = STEPS[1], row_features(40, 1, logits=1)
    steps = [live(1.0, k, other) if k % 10 else live(1.1, k, dear) for k in range(2_000)]
    said = fit_live(fit_steps(samples), samples, steps, []).cost
    assert said.predict(dear) == pytest.approx(1.1 * COST.predict(dear), rel=0.01)
    assert said.predict(other) == pytest.approx(COST.predict(other), rel=0.01)


def test_live_steps_decide_where_both_were_measured_and_designed_batches_elsewhere():
    dear, rare, other = STEPS[1], STEPS[0], row_features(40, 1, logits=1)
    samples = [Sample(step, COST.predict(step), 0) for step in STEPS for _ in range(200)]
    steps = [live(1.0, k, other) if k % 10 else live(1.2, k, dear) for k in range(500)]
    said = fit_live(fit_steps(samples), samples, steps, []).cost
    assert said.predict(dear) == pytest.approx(1.2 * COST.predict(dear), rel=0.02)
    assert said.predict(other) == pytest.approx(COST.predict(other), rel=0.02)
    without = fit_live(fit_steps(samples), samples, steps[1::10], [])
    for step in (dear, rare):
        designed = without.factor * COST.predict(step)
        assert without.cost.predict(step) == pytest.approx(designed, rel=0.005)


def test_the_price_of_a_tile_is_that_of_designed_batches_at_the_level_of_live_steps():
    tiled = replace(COST, tile=COST.device.step // 4, rounding=Rounding(tile=32))
    edges = [row_features(0, tokens) for tokens in (32, 33, 64, 65, 96, 97, 128, 129)]
    samples = [Sample(step, tiled.predict(step) // 2, 0) for step in [*STEPS, *edges] * 20]
    steps = [replace(live(1.0, k), nanoseconds=tiled.predict(STEPS[2])) for k in range(400)]
    found = fit_live(fit_steps(samples, tiled.rounding), samples, steps, [])
    assert found.cost.tile == pytest.approx(tiled.tile, rel=0.02)
    assert found.cost.rounding == tiled.rounding
    for step in (*STEPS, *edges):
        assert found.cost.predict(step) == pytest.approx(tiled.predict(step), rel=0.02)


def test_designs_have_prompts_that_just_fill_tiles_and_prompts_one_token_over():
    plain, made = (set(designs(4, 512, 999, 16, 3, tile)) for tile in (1, 32))
    edges = [each.prompts[0][1] for each in made - plain]
    assert sorted(edges) == [32, 33, 64, 65, 96, 97, 128, 129] and plain < made
    assert all(each.varied(0.8) is each for each in made - plain)


def test_features_of_live_steps_include_their_executors_padding():
    steps = serve_trace(virtual(), LEARNED, HOSTED, 8, 5.0, 0, lambda share: None)
    reads = [step.features.reads for step in steps if not step.features.prompts]
    assert len(reads) > 50 and not any(each % HOSTED.gathering.block for each in reads)


def test_the_traffic_to_learn_from_lets_the_engine_sleep_now_and_then():
    asks = [RequestSpec(1_000 * k, "a", 1, 1) for k in range(2 * (BUSY + CALM))]
    made = list(with_calm_spells(asks))
    gaps = [later.at - ask.at for ask, later in pairwise(made)]
    calm, busy = [1_000 * SLOWER] * CALM, [1_000] * BUSY
    assert gaps == busy[1:] + calm + busy + calm
    assert [replace(ask, at=0) for ask in made] == [replace(ask, at=0) for ask in asks]


@pytest.mark.parametrize(
    "place, value, said",
    [
        ("cost.residuals.0.quantiles", [], "residuals of a regime"),
        ("cost.residuals.0.quantiles", [0], "one or more above 0"),
        ("cost.residuals.1.quantiles", ["900", 1_100], "residuals of a regime"),
        ("cost.residuals", [{"quantiles": [1_000]}], "not enough values"),
        ("cost.echoes.0.share", 1_001, "shares of the echoes"),
        ("cost.echoes.0.share", "1", "shares of the echoes"),
        ("cost.echoes.0.lasts", 0, "an echo lasts for no time"),
        ("cost.pieces", [["0", 5]], "a coefficient"),
        ("cost.pieces", [[0, 5], [64, 1], [32, 2]], "do not ascend from 0"),
        ("cost.pieces", [[7, 5]], "do not ascend from 0"),
        ("cost.device.read", True, "a coefficient"),
        ("cost.wake", 1.5, "a coefficient"),
        ("cost.tile", -1, "a coefficient"),
        ("cost.wake_tail", [2, -1], "a coefficient"),
        ("cost.cooling", -1, "a coefficient"),
        ("cost.rounding.digits", "5", "tokens are not rounded up to whole numbers"),
        ("cost.rounding.tile", 0, "tokens are not rounded up to whole numbers"),
        ("cost.gathering.block", 0, "keys are not gathered in whole blocks"),
        ("cost.gathering.at_once", -1, "keys are not gathered in whole blocks"),
        ("cost", [], "list"),
        ("block_size", 0, "block_size is 0"),
        ("num_blocks", "2048", "num_blocks is '2048'"),
        ("fit", 2_000, "2048 blocks are more than the 2000 that fit"),
        ("price_per_hour", float("nan"), "price_per_hour is nan"),
        ("model", None, "model, dtype, device and executor are names"),
        ("analytical", "no", "analytical is true or false"),
        ("about", [], "list"),
        ("about.errors", {"memory": {}}, "median"),
        ("about.designed", {"samples": 3}, "largest_tokens"),
        ("about.profile", None, "about.profile has no ceilings"),
        ("about.profile", {"ceilings": {"read": "x"}}, "about.profile has no ceilings"),
        ("about.profile", {"ceilings": [1]}, "about.profile has no ceilings"),
        ("banana", 3, "banana"),
    ],
)
def test_a_damaged_cost_file_is_refused_with_the_cause(place, value, said, tmp_path):
    path = tmp_path / "cost.json"
    write_cost_file(CALIBRATION, path)
    assert read_cost_file(path).cost == CALIBRATION.cost
    plain = json.loads(path.read_text())
    *above, last = [int(each) if each.isdigit() else each for each in place.split(".")]
    inner = plain
    for each in above:
        inner = inner[each]
    inner[last] = value
    path.write_text(json.dumps(plain))
    with pytest.raises(SettingError, match=rf"cost\.json is damaged .*{said}.*: calibrate again"):
        read_cost_file(path)


def test_a_cost_file_of_deeply_nested_brackets_is_refused_as_not_json(tmp_path):
    path = tmp_path / "cost.json"
    path.write_text("[" * 100_000)
    with pytest.raises(SettingError, match=r"cost\.json is not JSON: "):
        read_cost_file(path)


def test_a_cost_file_of_another_version_is_refused(tmp_path):
    path = tmp_path / "cost.json"
    write_cost_file(CALIBRATION, path)
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(plain | {"headway_cost": 2}))
    with pytest.raises(SettingError, match="another version of headway: calibrate again"):
        read_cost_file(path)


def test_a_model_folder_has_the_same_display_name_by_any_path(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert (display_name("."), display_name(".."), display_name("org/model")) == (
        "inner",
        tmp_path.name,
        "org/model",
    )


def test_calibration_of_a_too_slow_machine_asks_for_more_seconds():
    slow = StepCost.of(2_000_000_000, per_token=1_000_000)
    with pytest.raises(HeadwayError, match="more seconds"):
        calibrate_testbed(fake_testbed(cost=slow), kv_bytes=64, slots=2, seconds=10.0)


def served(monkeypatch, *rates, others=0.0):
    """Traffic whose steps come at these rates, one rate a window; the last holds for the rest.

    Gives the windows served, the phases, the traffic, and a function that collects its steps."""
    windows, phases = [], []

    def serve(testbed, trace, cost, slots, span, seed, watch):
        rate = rates[min(len(windows), len(rates) - 1)]
        windows.append((round(span), seed))
        watch(1.0)
        return [live(1.0, number) for number in range(round(rate * span) - FIRST)]

    monkeypatch.setattr(learn, "serve_trace", serve)
    traffic = LiveTraffic(
        None, COST, 8, 0, 600.0, lambda: others, lambda phase, share: phases.append(phase), 270.0
    )
    return windows, phases, traffic, lambda: traffic.steps(CHECKED, 108.0)


def test_slow_steps_get_more_traffic_until_there_are_enough(monkeypatch):
    windows, phases, traffic, steps = served(monkeypatch, 56 / 108)
    found = steps()
    assert windows == [(108, 0), (164, 1)], "36 were seen; 48 and those left out are to come"
    assert phases == ["live traffic", f"164 s more of live traffic, for {ENOUGH} steps"]
    assert len(found) >= ENOUGH and round(traffic.served) == 272
    begins = [step.began for step in found]
    assert begins == sorted(begins) and begins[36] - begins[35] > 108e9, "no pair across the gap"
    windows, phases, _, steps = served(monkeypatch, 104 / 108)
    assert len(steps()) == ENOUGH and windows == [(108, 0)]


def test_another_window_follows_one_with_fewer_steps_than_expected(monkeypatch):
    windows, _, _, steps = served(monkeypatch, 56 / 108, 64 / 164, 56 / 108)
    assert len(steps()) >= ENOUGH
    assert windows[:2] == [(108, 0), (164, 1)] and [seed for _, seed in windows] == [0, 1, 2]


def test_a_measurement_that_would_take_too_long_is_refused_with_the_seconds_it_needs(monkeypatch):
    windows, _, _, steps = served(monkeypatch, 21 / 108)
    with pytest.raises(HeadwayError, match=r"^only 1 steps .* with --seconds, about 4279$"):
        steps()
    assert len(windows) == 1
    windows, _, _, steps = served(monkeypatch, 56 / 108, others=1.4)
    with pytest.raises(HeadwayError, match="calibrate again when they are done"):
        steps()
    assert len(windows) == 1


def test_busy_neighbours_are_named_before_more_seconds_are_suggested():
    few = [live(1.0)] * 39
    with pytest.raises(
        HeadwayError, match=r"^other processes kept 1\.4 cores busy, and only 39 steps"
    ):
        check_enough(few, LEARNED, 27.0, others=1.4)
    with pytest.raises(HeadwayError, match=r"^only 39 steps of .* measure for more seconds"):
        check_enough(few, LEARNED, 27.0, others=0.1)


OFF = {"all": {"steps": 900, "median": -503, "p90": 700, "total": -410, "within": 90}}
BUSY_MACHINE = {"cores_at_work_for_others": 1.43}


def calibrated(monkeypatch, found, *more):
    """Run the command on these measurements; gives the exit status and the output."""
    from headway.runs import live_testbed

    here = fake_testbed()
    monkeypatch.setattr(live_testbed, "load_model", lambda *asked: None)
    monkeypatch.setattr(live_testbed, "make_corpus_testbed", lambda *asked: here)
    monkeypatch.setattr(live_testbed, "kv_bytes_per_token", lambda *asked: 64)
    monkeypatch.setattr(calibrate, "calibrate_testbed", lambda *asked, **rest: found)
    console = Console(width=400, record=True, file=StringIO())
    return run_calibrate(*more, console), console.export_text()


def told(errors, others):
    designed = {"errors_of_designed_alone": errors}
    return replace(CALIBRATION, about={"errors": errors, **designed, **others})


def test_a_poor_fit_is_refused_and_busy_neighbours_are_named(monkeypatch, tmp_path):
    out, found = tmp_path / "cost.json", told(OFF, BUSY_MACHINE)
    status, said = calibrated(monkeypatch, found, CalibrateOptions(out=out))
    assert status == 1 and not out.exists()
    assert "was not written" in said and "off by -50% in the median step" in said
    assert "calibrate again when the other processes are done" in said and "--force" in said
    assert said.index("Other processes kept 1.4 cores") < said.index("Predicted against measured")
    status, said = calibrated(
        monkeypatch, told(OFF, {"cores_at_work_for_others": 0.0}), CalibrateOptions()
    )
    assert status == 1 and "measure longer with --seconds" in said and "other processes" not in said


def test_with_force_a_poor_fit_is_written_and_marked(monkeypatch, tmp_path):
    out = tmp_path / "cost.json"
    status, said = calibrated(
        monkeypatch, told(OFF, BUSY_MACHINE), CalibrateOptions(out=out, force=True)
    )
    assert status == 0 and "marked as unreliable" in said
    assert "-50% in the median step" in read_cost_file(out).doubt


def test_a_good_fit_is_written_and_not_marked_as_unreliable(monkeypatch, tmp_path, found):
    out = tmp_path / "cost.json"
    good = replace(found, about={**found.about, "cores_at_work_for_others": 0.0})
    status, said = calibrated(monkeypatch, good, CalibrateOptions(out=out))
    assert status == 0 and not read_cost_file(out).doubt and "doubt" not in found.about
    assert "unreliable" not in said


def test_calibration_marks_a_fit_that_checked_traffic_contradicts(monkeypatch):
    """Steps of the checked traffic take half as long as those of the traffic learned from."""
    monkeypatch.setattr(learn, "serve_trace", lambda testbed, trace, *rest: STEPS_OF[trace])
    about = calibrate_testbed(virtual(), kv_bytes=64, slots=8, seconds=20.0).about
    assert "in the median step" in about["doubt"] and about["errors"]["all"]["median"] > 500


STEPS_OF = {
    LEARNED: [live(1.0, k, STEPS[k % 4]) for k in range(400)],
    CHECKED: [live(0.5, k, STEPS[k % 4]) for k in range(400)],
}


SHEET = CalibrateOptions(accelerator="l4", model="qwen2.5-0.5b")


@pytest.mark.parametrize(
    "asked, said",
    [
        (CalibrateOptions(slots=0), "slots"),
        (CalibrateOptions(seconds=inf), "--seconds is inf, not a number"),
        (CalibrateOptions(seconds=nan), "--seconds is nan, not a number"),
        (CalibrateOptions(price_per_hour=nan), "--price-per-hour is nan, not a number"),
        (CalibrateOptions(accelerator="l4"), "needs a model"),
        (CalibrateOptions(accelerator="l4", model="qwen2.5-0.5b", profile=True), "--profile"),
        (replace(SHEET, threads=2), "--accelerator measures nothing: leave out --threads"),
        (replace(SHEET, seconds=60.0), "--accelerator measures nothing: leave out --seconds"),
        (replace(SHEET, seed=7), "--accelerator measures nothing: leave out --seed"),
        (replace(SHEET, force=True), "--accelerator measures nothing: leave out --force"),
        (replace(SHEET, dtype="float32"), "--accelerator knows only bfloat16: leave out --dtype"),
        (CalibrateOptions(executor="vlm"), "there is no executor 'vlm'; did you mean vllm"),
        (CalibrateOptions(vllm={"quantization": "awq"}), "need the executor vllm"),
        (CalibrateOptions(executor="vllm", threads=2), "--threads needs the executor torch"),
        (CalibrateOptions(executor="vllm", profile=True), "--profile needs the executor torch"),
        (CalibrateOptions(executor="vllm", accelerator="l4"), "--accelerator needs the executor"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_measured(asked, said):
    with pytest.raises(SettingError, match=said):
        run_calibrate(asked, Console(file=StringIO()))
