"""Endpoints from YAML and from traces, and how much of them is offered."""

import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.lane import Budget, Lane, Share
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.strategies.from_yaml import read_strategies
from headway.strategies.registry import find_strategy
from headway.strategies.strategy_inputs import StrategyInputs
from headway.strategies.window import Window
from headway.traffic.endpoint import UnloadedLatency
from headway.traffic.from_yaml import endpoints_from_traces, read_endpoints
from headway.traffic.offered_traffic import offered_traffic
from headway.traffic.prompts import Prompts
from headway.traffic.selection import (
    DEFAULT_LOAD,
    Demand,
    sample_requests,
    select_in_window,
    select_requests,
)
from headway.traffic.workload import with_prompts
from tests.commands.testbeds import TEXT

MS, S = 1_000_000, 1_000_000_000
PRICE = TokenCost(prompt=0.1 * MS, answer=0.3 * MS)
LANES = """
voice:
  arrivals: {gamma: {cv: 2}}
  prompt: [16, 48]
  answer: {mean: 20, cv: 0.5}
  budget: {ttft: 3 x unloaded, tpot: 25, e2e: 4x, queue: 10}
  window: 2.5
  weight: 3
chat:
  trace: chat.csv
  token_scale: 2
  budget: {ttft: 200}
bulk:
  arrivals: at-once
  prompt: 64
  answer: 4
  rate: 2
  priority: 9
"""
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{k},40,10\n" for k in range(400))


def inside(services, demand, window, seed):
    """The traffic within a window of that length."""
    return offered_traffic(
        services, select_in_window(services, demand, PRICE, window, seed, 2_048), seed, 2_048
    )


def fixed(services, demand, span, seed=0, price=PRICE):
    """The requests that the traces and the span select, at the pace of the demand."""
    return offered_traffic(
        services, select_requests(services, demand, price, span, seed, 2_048), seed, 2_048
    )


@pytest.fixture
def lanes(tmp_path):
    def write(text, trace=TRACE):
        (tmp_path / "chat.csv").write_text(trace)
        path = tmp_path / "lanes.yaml"
        path.write_text(text)
        return read_endpoints(path)

    return write


def test_all_fields_of_lanes_are_read(lanes):
    voice, chat, bulk = lanes(LANES)
    lane = voice.endpoint.lane({"voice": UnloadedLatency(ttft=5 * MS, tpot=MS, e2e=30 * MS)})
    assert lane.budget == Budget(15 * MS, 25 * MS, 120 * MS, 10 * MS)
    assert (voice.window, voice.weight, voice.endpoint.priority) == (Window(2_500_000), 3.0, 0)
    assert chat.endpoint.lane({}).budget == Budget(ttft=200 * MS) and chat.source.scale == 2
    assert bulk.endpoint.is_offline and bulk.is_backlog and bulk.endpoint.priority == 9


def test_a_key_may_override_one_merged_from_a_yaml_anchor(lanes):
    text = "a: &x {trace: chat.csv, weight: 5}\nb: &y {<<: *x, weight: 2}\nc: {<<: *y, weight: 3}"
    assert [each.weight for each in lanes(text)] == [5, 2, 3]


def test_lanes_share_the_rate_by_weight_beside_fixed_rates(lanes):
    services = lanes(LANES)
    made = inside(services, Demand(rate=10), 100 * S, 0)
    counts = {name: each["offered"] for name, each in made.about.items()}
    assert counts["chat"] == 200 and counts["bulk"] == 200
    assert 400 < counts["voice"] < 800, "random, 600 on average"
    times = [ask.at for ask in made.specs]
    assert times == sorted(times) and times[-1] < 100 * S
    chat = [ask for ask in made.specs if ask.lane == "chat"]
    assert {(ask.prompt, ask.answer) for ask in chat} == {(20, 5)}
    assert chat[1].at == S // 2, "two seconds of the trace in one"
    assert made.about["chat"]["time_scale"] == 2.0
    assert {ask.at for ask in made.specs if ask.lane == "bulk"} == {0}


def test_a_lane_of_weight_0_gets_no_requests(lanes):
    text = "{a: {trace: chat.csv}, b: {arrivals: poisson, prompt: 9, answer: 3, weight: 0}}"
    made = inside(lanes(text), Demand(rate=3), 10 * S, 0)
    assert {ask.lane for ask in made.specs} == {"a"} and made.about["b"]["offered"] == 0


def test_token_counts_raised_to_1_are_counted_for_offered_requests_only(lanes):
    trace = TRACE.replace("\n7,40,10\n8,40,10\n", "\n7,40,0\n8,1,1\n").replace("399,40", "399,0")
    about = inside(lanes(LANES, trace), Demand(rate=10), 100 * S, 0).about
    assert about["chat"]["raised_to_1"] == 3, (
        "one count of 0 and two halves; the last request is not offered"
    )


def test_the_offered_work_has_the_wanted_load(lanes):
    made = inside(lanes(LANES), Demand(load=0.3), 60 * S, 0)
    assert PRICE.of(made.specs) / (60 * S) == pytest.approx(0.3, rel=0.2)


def test_the_same_seed_gives_the_same_traffic_and_another_seed_another(lanes):
    services = lanes(LANES)
    first, again, other = (
        inside(services, Demand(rate=10), 20 * S, seed).specs for seed in (0, 0, 1)
    )
    assert first == again != other


def test_lengths_have_the_mean_that_was_asked_for(lanes):
    voice = lanes(LANES)[0]
    asks = list(islice(voice.source.specs("voice", 0, 2_048), 4_000))
    assert mean(ask.answer for ask in asks) == pytest.approx(20, rel=0.05)
    assert {ask.prompt for ask in asks} == set(range(16, 49))
    assert asks[-1].at / 4_000 == pytest.approx(S, rel=0.15), "gaps of one second"


def test_sample_requests_take_all_endpoints_in_turn(lanes):
    asks = sample_requests(lanes(LANES), 0, 2_048)
    assert [ask.lane for ask in asks[:4]] == ["voice", "chat", "bulk", "voice"]


def test_a_trace_that_ends_before_the_window_is_marked(lanes):
    made = inside(lanes(LANES), Demand(rate=100), 100 * S, 0)
    assert made.about["chat"]["trace_ends"] and made.about["chat"]["offered"] == 400


PAUSE = "arrival_s,input_tokens,output_tokens\n" + "".join(
    f"{at},40,10\n" for at in (0, 1, 2, 3, 4, 19.5, 20, 21, 22, 40)
)


@pytest.mark.evidence
@pytest.mark.parametrize("demand", [Demand(rate=1.0), Demand(load=0.2)])
@given(times=st.floats(1.001, 9.0))
def test_a_rate_decides_when_requests_come_but_not_which(paused, demand, times):
    faster = Demand(times * demand.rate, times * demand.load)
    slow, fast = (fixed(paused, each, 20 * S).specs for each in (demand, faster))
    assert [replace(a, at=0) for a in slow] == [replace(a, at=0) for a in fast]
    assert len(slow) > 3
    for a, b in zip(slow, fast, strict=True):
        assert a.at == pytest.approx(times * b.at, abs=20), "one factor for all"


@pytest.fixture(scope="module")
def paused(tmp_path_factory):
    """A trace and a process of equal weight."""
    folder = tmp_path_factory.mktemp("paused")
    (folder / "chat.csv").write_text(PAUSE + "".join(f"{at},40,10\n" for at in range(41, 400)))
    path = folder / "lanes.yaml"
    path.write_text("{a: {trace: chat.csv}, b: {arrivals: poisson, prompt: 900, answer: 90}}")
    return read_endpoints(path)


def test_a_rate_replays_the_seconds_of_the_trace_with_their_pauses(tmp_path):
    (tmp_path / "chat.csv").write_text(PAUSE)
    services = endpoints_from_traces([tmp_path / "chat.csv"])
    made = select_requests(services, Demand(rate=2), PRICE, 21 * S, 0, 2_048)
    asks = offered_traffic(services, made, 0, 2_048).specs
    assert len(asks) == 7 and made.window == 3.5 * S, "seven requests at two a second"
    recorded = [0, S, 2 * S, 3 * S, 4 * S, 19.5 * S, 20 * S]
    assert [6 * ask.at for ask in asks] == pytest.approx(recorded, abs=6)
    longer = offered_traffic(
        services, select_requests(services, Demand(rate=2), PRICE, 99 * S, 0, 2_048), 0, 2_048
    )
    assert len(longer.specs) == 10 and longer.about["chat"]["trace_ends"]


def test_the_default_load_keeps_the_window_and_twice_the_load_halves_it(lanes):
    services = lanes("{a: {trace: chat.csv, token_scale: 1}}")
    made = select_requests(services, Demand(load=DEFAULT_LOAD), PRICE, 20 * S, 0, 2_048)
    assert made.window == 20 * S
    asks = offered_traffic(services, made, 0, 2_048).specs
    assert PRICE.of(asks) / (20 * S) == pytest.approx(DEFAULT_LOAD, rel=0.01)
    doubled = select_requests(services, Demand(load=2 * DEFAULT_LOAD), PRICE, 20 * S, 0, 2_048)
    assert doubled.window == 10 * S


BURST = (*range(20), *[20] * 15, *range(21, 60))  # its rows 20 to 34 arrive at one moment


@pytest.mark.parametrize("wanted", [20, 21, 25, 34, 35])
@pytest.mark.parametrize("other", ["", ", b: {arrivals: poisson, prompt: 40, answer: 10}"])
def test_the_part_of_a_burst_before_the_cut_is_offered(lanes, wanted, other):
    trace = TRACE.splitlines()[0] + "\n" + "".join(f"{at},40,10\n" for at in BURST)
    services = lanes(f"{{a: {{trace: chat.csv, token_scale: 1}}{other}}}", trace)
    each = PRICE.prompt * 40 + PRICE.answer * 10
    count = wanted * (2 if other else 1)
    demand = Demand(load=2 * DEFAULT_LOAD)
    made = select_requests(services, demand, PRICE, round(count * each / DEFAULT_LOAD), 0, 2_048)
    times = [ask.at for ask in offered_traffic(services, made, 0, 2_048).specs if ask.lane == "a"]
    assert len(times) == wanted and max(times) < made.window
    assert len(times) * each / made.window == pytest.approx(2 * DEFAULT_LOAD / (2 if other else 1))


def test_a_lane_with_its_own_rate_keeps_it_at_any_rate_of_the_others(lanes):
    services = lanes("{a: {trace: chat.csv}, b: {trace: chat.csv, rate: 2}}")
    for rate in (3.0, 6.0, 12.0):
        made = select_requests(services, Demand(rate=rate), PRICE, 100 * S, 0, 2_048)
        asks = offered_traffic(services, made, 0, 2_048).specs
        counts = Counter(ask.lane for ask in asks)
        assert counts["a"] == 100 and made.window == pytest.approx(100 * S / (rate - 2))
        assert counts["b"] == pytest.approx(2 * made.window / S, abs=1)


def test_the_tenants_of_an_endpoint_are_drawn_in_their_proportion(lanes):
    text = "a: {arrivals: poisson, prompt: 9, answer: 3, tenants: {acme: 3, bell: 1, none: 0}}"
    first, again = (fixed(lanes(text), Demand(rate=20), 100 * S).specs for _ in range(2))
    assert first == again
    counts = Counter(spec.tenant for spec in first)
    assert set(counts) == {"acme", "bell"}
    assert counts["acme"] / len(first) == pytest.approx(0.75, abs=0.05)
    nobody = text.replace("{acme: 3, bell: 1, none: 0}", "{}")
    plain = fixed(lanes(nobody), Demand(rate=20), 100 * S).specs
    assert [replace(spec, tenant="") for spec in first] == plain, "and nothing else changes"
    made = with_prompts(first, Prompts(TEXT, 16, 0))
    assert [request.tenant for request in made] == [spec.tenant for spec in first]
    assert all(request.salt == request.tenant for request in made), "no prefix is shared"


@pytest.mark.parametrize("rows", ["0,40,10\n", "7,40,10\n" * 90])
def test_a_trace_without_two_moments_has_no_rate_and_is_refused(lanes, rows):
    services = lanes("{a: {trace: chat.csv}}", TRACE.splitlines()[0] + "\n" + rows)
    for demand in (Demand(rate=2), Demand(load=0.1)):
        with pytest.raises(SettingError, match="arrive at one moment, so there is no rate"):
            fixed(services, demand, 60 * S)


@pytest.mark.parametrize("demand", [Demand(rate=2), Demand(load=0.1)])
def test_a_trace_whose_clock_does_not_begin_at_0_counts_from_its_first_arrival(lanes, demand):
    head = TRACE.splitlines()[0] + "\n"
    times = (0, 0.5, 2, 7, *range(9, 200))
    first, late = (
        fixed(
            lanes("{a: {trace: chat.csv}}", head + "".join(f"{zero + at},40,10\n" for at in times)),
            demand,
            20 * S,
        ).specs
        for zero in (0, 3_600)
    )
    assert first == late and len(first) > 10


def test_a_window_before_the_first_arrival_is_refused_with_the_remedy(lanes):
    """The two arrivals of each ten-second tick are spread over that tick."""
    text = TRACE.splitlines()[0] + "\n0,9,9\n0,9,9\n10,9,9\n10,9,9\n"
    with pytest.raises(SettingError, match=r"nobody arrives in the first 0.01 s of a: take more"):
        fixed(lanes("{a: {trace: chat.csv}}", text), Demand(rate=2), S // 100)


def test_bursts_a_minute_apart_are_not_taken_for_a_coarse_clock(tmp_path):
    path = tmp_path / "cron.csv"
    rows = "".join(f"{60 * (k // 5)},8,1\n" for k in range(50))
    path.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    (service,) = endpoints_from_traces([path])
    assert service.source.tick == 0
    times = [ask.at for ask in service.source.specs("cron", 0, 2_048)]
    assert sorted(set(times)) == [60 * S * k for k in range(10)]


def test_a_trace_too_short_for_its_own_rate_ends_before_the_window(lanes):
    """Stretching the trace over the window would lower its rate."""
    text = TRACE.splitlines()[0] + "".join(f"\n{k},9,9" for k in range(20)) + "\n"
    work = fixed(lanes("{a: {trace: chat.csv, rate: 5}}", text), Demand(), 45 * S)
    assert len(work.specs) == 20 and work.specs[-1].at < 4 * S
    beside = (
        "{a: {trace: chat.csv, rate: 5}, b: {arrivals: poisson, rate: 1, prompt: 9, answer: 9}}"
    )
    mixed = fixed(lanes(beside, text), Demand(), 45 * S)
    assert max(each.at for each in mixed.specs if each.lane == "a") < 4 * S


def test_the_trace_seconds_used_do_not_exceed_the_trace(lanes):
    text = "{a: {trace: chat.csv, rate: 2}, b: {arrivals: poisson, rate: 1, prompt: 9, answer: 9}}"
    short = TRACE.partition("11,")[0]  # eleven requests in 10 s; at 2 a second they take half
    made = fixed(lanes(text, short), Demand(), 60 * S)
    assert made.about["a"]["trace_ends"] and made.about["a"]["offered"] == 11
    assert made.about["a"]["trace_seconds_used"] == 10


def test_tokens_cut_at_the_context_are_counted(lanes):
    trace = TRACE.splitlines()[0] + "\n0,4096,2\n1,10,4000\n2,100,28\n3,1,1\n"
    about = fixed(
        lanes("{a: {trace: chat.csv, token_scale: 1}}", trace), Demand(rate=1), 4 * S
    ).about
    lost = (4096 - 2046) + (4000 - 1024)
    whole = 4096 + 2 + 10 + 4000 + 128 + 2
    assert about["a"]["cut_to_context"] == {"requests": 2, "share": lost / whole}
    drawn = fixed(
        lanes("{a: {arrivals: poisson, prompt: 3000, answer: 48}}"), Demand(rate=1), 9 * S
    )
    assert drawn.about["a"]["cut_to_context"]["requests"] == len(drawn.specs) > 0


def test_mooncakes_block_ids_give_prompts_with_shared_prefixes(tmp_path):
    path = tmp_path / "moon.jsonl"
    rows = [(0, 1500, "[7, 8, 9]"), (3000, 1300, "[7, 8, 5]"), (6000, 600, "[8, 1]")]
    path.write_text(
        "".join(
            f'{{"timestamp": {at}, "input_length": {n}, "output_length": 9, "hash_ids": {ids}}}\n'
            for at, n, ids in rows
        )
    )
    (service,) = endpoints_from_traces([path])
    assert service.name == "moon"
    asks = list(service.source.specs("moon", 0, 2_048))
    requests = with_prompts(asks, Prompts(TEXT, 16, 0))
    first, second, third = (request.prompt for request in requests)
    assert [len(each) for each in (first, second, third)] == [188, 162, 75]
    assert first[:128] == second[:128] and first[128:162] != second[128:]
    assert third[:64] == first[64:128] != first[:64], "block 8 has its words wherever it stands"


def test_arrivals_within_one_tick_of_a_coarse_clock_are_spread(tmp_path):
    path = tmp_path / "coarse.csv"
    rows = "".join(f"{3 * (k // 5)},8,1\n" for k in range(50))
    path.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    (service,) = endpoints_from_traces([path])
    assert service.source.tick == 3 * S
    times = [ask.at for ask in service.source.specs("coarse", 0, 2_048)]
    assert len(set(times)) == 50 and times == sorted(times) and times[-1] < 30 * S


@pytest.mark.parametrize(
    "text, said",
    [
        ("a: {trace: chat.csv, wieght: 2}", "a: 'wieght' is not known; did you mean weight"),
        ("a: {}", "say either a trace or arrivals"),
        ("a: {trace: chat.csv, arrivals: poisson}", "say either a trace or arrivals"),
        ("a: {trace: none.csv}", r"the trace none\.csv cannot be read"),
        ("a: {trace: chat.csv, token_scale: 0}", "token scale must be more than 0"),
        ("a: {trace: chat.csv, budget: {tftt: 3}}", "'tftt' is not known; did you mean ttft"),
        ("a: {trace: chat.csv, budget: {ttft: fast}}", "ttft is 'fast', not a number"),
        (
            "a: {trace: chat.csv, budget: {ttft: 500ms}}",
            "ttft is '500ms', not a number of milliseconds, nor a multiple such as 6 x unloaded",
        ),
        (
            "a: {trace: chat.csv, budget: {queue: 1s}}",
            "queue is '1s', not a number of milliseconds$",
        ),
        ("a: {trace: chat.csv, budget: {queue: 2 x}}", "alone nobody queues"),
        ("a: {trace: chat.csv, tenants: {acme: -1}}", "tenants: acme is -1; it must be 0"),
        ("a: {trace: chat.csv, tenants: {acme: 0}}", "tenants: nobody sends anything"),
        ("a: {trace: chat.csv, tenants: acme}", "tenants"),
        ("a: {trace: chat.csv, weight: -1}", "weight is -1; it must be 0 or more"),
        ("a: {arrivals: poisson, prompt: 3}", "needs answer lengths"),
        ("a: {arrivals: posson, prompt: 3, answer: 2}", "did you mean poisson"),
        ("a: {arrivals: {gamma: {vc: 2}}, prompt: 3, answer: 2}", "'vc' is not known"),
        (
            "a: {arrivals: {gamma: {cv: 1.0e-200}}, prompt: 3, answer: 2}",
            r"a: cv is 1e-200; it must be 0, for even gaps, or 0\.001 or more",
        ),
        ("a: {arrivals: poisson, prompt: [5, 3], answer: 2}", "5 is more than 3"),
        ("a: {arrivals: poisson, prompt: [5], answer: 2}", "neither a number nor"),
        ("a: {arrivals: poisson, prompt: 0, answer: 2}", "prompt is 0; it must be 1"),
        ("a: 3", "a mapping of names to values is wanted, not 3"),
        ("{}", r"^lanes\.yaml has no lanes$"),
        ("a: {trace: chat.csv, budget: {ttft: 0 x unloaded}}", "'0 x unloaded'; a multiple is"),
        ("a: {trace: chat.csv, budget: {tpot: 0.0x}}", "tpot is '0.0x'; a multiple is more than 0"),
        ("a: {trace: chat.csv, budget: {ttft: 1.2.3 x}}", r"ttft is '1\.2\.3 x', not a number"),
        ("a: {trace: chat.csv, budget: {ttft: . x}}", r"ttft is '\. x', not a number"),
        (f"a: {{trace: chat.csv, budget: {{ttft: {'9' * 400} x}}}}", "ttft is inf, not a number"),
        (
            "a: {trace: chat.csv}\na: {trace: chat.csv}",
            r"lanes\.yaml is not YAML: 'a' is there twi",
        ),
        ("1: {trace: chat.csv}\n'1': {trace: chat.csv}", "'1' is there twice"),
        ("a: {trace: chat.csv, rate: 1, rate: 2}", "'rate' is there twice"),
        ("a: {trace: chat.csv, rate: 1, weight: 2}", "a: say either a rate or a weight"),
        ("a: {trace: chat.csv, rate: 0}", "a: a rate is more than 0; weight: 0 is for no requ"),
        ("a: {trace: chat.csv, prompt: 9}", "a: prompt is for arrivals: a trace has its own"),
        ("a: {trace: chat.csv, answer: 9}", "a: answer is for arrivals: a trace has its own"),
        (
            "a: {arrivals: poisson, prompt: 9, answer: 3, token_scale: 2}",
            "a: token_scale is for a trace",
        ),
    ],
)
def test_an_invalid_lane_is_refused_with_its_place_in_the_file(lanes, text, said):
    with pytest.raises(SettingError, match=said):
        lanes(text)


@pytest.mark.parametrize(
    "text, demand, said",
    [
        ("a: {trace: chat.csv, weight: 0}", Demand(rate=1), "sum to 0"),
        (
            "a: {arrivals: poisson, prompt: 9, answer: 9}",
            Demand(rate=9_999),
            "lower the rate",
        ),
        ("{a: {trace: chat.csv}, b: {trace: chat.csv, rate: 5}}", Demand(rate=4), "leave nothing"),
    ],
)
def test_an_impossible_demand_is_refused(lanes, text, demand, said):
    with pytest.raises(SettingError, match=said):
        inside(lanes(text), demand, 60 * S, 0)


@pytest.mark.parametrize("demand", [Demand(rate=1e-300), Demand(load=1e-300)])
def test_a_demand_of_less_than_a_request_a_day_is_refused(lanes, demand):
    with pytest.raises(SettingError, match="1e-05 is the least: raise the rate or the load"):
        fixed(lanes("{a: {trace: chat.csv}}"), demand, 60 * S)


def test_a_rate_of_more_than_a_request_a_nanosecond_offers_all_at_once(lanes):
    made = fixed(lanes("{a: {trace: chat.csv}}"), Demand(rate=1e14), 60 * S)
    assert len(made.specs) == 60 and {spec.at for spec in made.specs} == {0}


def test_a_cv_that_gives_arrivals_without_end_is_refused(lanes):
    services = lanes("a: {arrivals: {gamma: {cv: 1.0e+9}}, prompt: 3, answer: 2}")
    with pytest.raises(SettingError, match=r"because the cv of its arrivals is 1e\+09: lower it"):
        fixed(services, Demand(rate=2), 60 * S)


def test_the_examples_in_the_docs_are_read(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    examples = dict(re.findall(r"<!-- (\w+) -->\n```yaml\n(.*?)```", text, re.DOTALL))
    for name, example in examples.items():
        (tmp_path / f"{name}.yaml").write_text(example)
    chat, voice, nightly = read_endpoints(tmp_path / "lanes.yaml")
    assert len(chat.source.arrivals) == 3_888 and nightly.is_backlog
    assert voice.endpoint.fixed.queue == 40 * MS
    assert nightly.endpoint.place.slots == Share(1, 8) and nightly.endpoint.place.chunk == 64
    made = read_strategies(str(tmp_path / "strategies.yaml"))
    assert len(made) == 6
    inputs = StrategyInputs((Lane(),), PRICE, 2_048)
    assert made["by-budget"](inputs).policies == find_strategy("budgets")(inputs).policies
