"""Endpoints from YAML and from traces, and how much of them is offered."""

import re
from itertools import islice
from pathlib import Path
from statistics import mean

import pytest

from headway.core.lane import Budget
from headway.errors import SettingError
from headway.tools.endpoint import Unloaded
from headway.tools.offer import Demand, offer, typical
from headway.tools.price import Price
from headway.tools.recipe import chosen
from headway.tools.traffic import from_file, from_traces
from headway.tools.workload import Prompts, worded
from tests.tools.rigs import TEXT

MS, S = 1_000_000, 1_000_000_000
PRICE = Price(prompt=0.1 * MS, answer=0.3 * MS)
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


@pytest.fixture
def lanes(tmp_path):
    def write(text, trace=TRACE):
        (tmp_path / "chat.csv").write_text(trace)
        path = tmp_path / "lanes.yaml"
        path.write_text(text)
        return from_file(path)

    return write


def test_lanes_are_read_in_full(lanes):
    voice, chat, bulk = lanes(LANES)
    lane = voice.endpoint.lane({"voice": Unloaded(ttft=5 * MS, tpot=MS, e2e=30 * MS)})
    assert lane.budget == Budget(15 * MS, 25 * MS, 120 * MS, 10 * MS)
    assert (voice.window, voice.weight, voice.endpoint.priority) == (2_500_000, 3.0, 0)
    assert chat.endpoint.lane({}).budget == Budget(ttft=200 * MS) and chat.source.scale == 2
    assert bulk.endpoint.is_offline and bulk.is_backlog and bulk.endpoint.priority == 9


def test_shares_of_one_rate_by_weight_beside_fixed_rates(lanes):
    services = lanes(LANES)
    made = offer(services, Demand(rate=10), PRICE, 100 * S, 0, 2_048)
    counts = {name: each["offered"] for name, each in made.about.items()}
    assert counts["chat"] == 200 and counts["bulk"] == 200
    assert 400 < counts["voice"] < 800, "random, 600 on average"
    times = [ask.at for ask in made.asks]
    assert times == sorted(times) and times[-1] < 100 * S
    chat = [ask for ask in made.asks if ask.lane == "chat"]
    assert {(ask.prompt, ask.answer) for ask in chat} == {(20, 5)}
    assert chat[1].at == S // 2, "two seconds of the trace in one"
    assert made.about["chat"]["time_scale"] == 2.0
    assert {ask.at for ask in made.asks if ask.lane == "bulk"} == {0}


def test_a_lane_of_no_weight_is_not_asked(lanes):
    text = "{a: {trace: chat.csv}, b: {arrivals: poisson, prompt: 9, answer: 3, weight: 0}}"
    made = offer(lanes(text), Demand(rate=3), PRICE, 10 * S, 0, 2_048)
    assert {ask.lane for ask in made.asks} == {"a"} and made.about["b"]["offered"] == 0


def test_token_counts_that_come_to_0_are_counted_where_they_are_offered(lanes):
    trace = TRACE.replace("\n7,40,10\n8,40,10\n", "\n7,40,0\n8,1,1\n").replace("399,40", "399,0")
    about = offer(lanes(LANES, trace), Demand(rate=10), PRICE, 100 * S, 0, 2_048).about
    assert about["chat"]["raised_to_1"] == 3, "0, and half a token twice; the last stays away"


def test_a_load_is_made_of_the_same_shares(lanes):
    made = offer(lanes(LANES), Demand(load=0.3), PRICE, 60 * S, 0, 2_048)
    assert PRICE.of(made.asks) / (60 * S) == pytest.approx(0.3, rel=0.2)


def test_the_same_seed_gives_the_same_and_another_one_others(lanes):
    services = lanes(LANES)
    first, again, other = (
        offer(services, Demand(rate=10), PRICE, 20 * S, seed, 2_048).asks for seed in (0, 0, 1)
    )
    assert first == again != other


def test_lengths_have_the_mean_that_was_asked_for(lanes):
    voice = lanes(LANES)[0]
    asks = list(islice(voice.source.asks("voice", 0, 2_048), 4_000))
    assert mean(ask.answer for ask in asks) == pytest.approx(20, rel=0.05)
    assert {ask.prompt for ask in asks} == set(range(16, 49))
    assert asks[-1].at / 4_000 == pytest.approx(S, rel=0.15), "gaps of one second"


def test_what_the_machine_is_measured_with_has_all_endpoints_in_turn(lanes):
    asks = typical(lanes(LANES), 0, 2_048)
    assert [ask.lane for ask in asks[:4]] == ["voice", "chat", "bulk", "voice"]


def test_a_trace_that_ends_too_soon_says_so(lanes):
    made = offer(lanes(LANES), Demand(rate=100), PRICE, 100 * S, 0, 2_048)
    assert made.about["chat"]["trace_ends"] and made.about["chat"]["offered"] == 400


def test_mooncakes_block_ids_make_prompts_that_share_those_prefixes(tmp_path):
    path = tmp_path / "moon.jsonl"
    rows = [(0, 1500, "[7, 8, 9]"), (3000, 1300, "[7, 8, 5]"), (6000, 600, "[8, 1]")]
    path.write_text(
        "".join(
            f'{{"timestamp": {at}, "input_length": {n}, "output_length": 9, "hash_ids": {ids}}}\n'
            for at, n, ids in rows
        )
    )
    (service,) = from_traces([path])
    assert service.name == "moon"
    asks = list(service.source.asks("moon", 0, 2_048))
    requests = worded(asks, Prompts(TEXT, 16, 0))
    first, second, third = (request.prompt for request in requests)
    assert [len(each) for each in (first, second, third)] == [188, 162, 75]
    assert first[:128] == second[:128] and first[128:162] != second[128:]
    assert third[:64] == first[64:128] != first[:64], "block 8 has its words wherever it stands"


def test_arrivals_that_a_coarse_clock_put_together_are_spread(tmp_path):
    path = tmp_path / "coarse.csv"
    rows = "".join(f"{3 * (k // 5)},8,1\n" for k in range(50))
    path.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    (service,) = from_traces([path])
    assert service.source.tick == 3 * S
    times = [ask.at for ask in service.source.asks("coarse", 0, 2_048)]
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
        ("a: {trace: chat.csv, budget: {queue: 2 x}}", "alone nobody queues"),
        ("a: {trace: chat.csv, weight: -1}", "weight is -1; it must be 0 or more"),
        ("a: {arrivals: poisson, prompt: 3}", "needs answer lengths"),
        ("a: {arrivals: posson, prompt: 3, answer: 2}", "did you mean poisson"),
        ("a: {arrivals: {gamma: {vc: 2}}, prompt: 3, answer: 2}", "'vc' is not known"),
        ("a: {arrivals: poisson, prompt: [5, 3], answer: 2}", "5 is more than 3"),
        ("a: {arrivals: poisson, prompt: [5], answer: 2}", "neither a number nor"),
        ("a: {arrivals: poisson, prompt: 0, answer: 2}", "prompt is 0; it must be 1"),
        ("a: 3", "a mapping of names to values is wanted, not 3"),
    ],
)
def test_a_bad_lane_is_refused_by_its_place(lanes, text, said):
    with pytest.raises(SettingError, match=said):
        lanes(text)


@pytest.mark.parametrize(
    "text, demand, said",
    [
        ("a: {trace: chat.csv, weight: 0}", Demand(rate=1), "sum to 0"),
        ("a: {trace: chat.csv}", Demand(rate=9_999), "lower the rate"),
        ("{a: {trace: chat.csv}, b: {trace: chat.csv, rate: 5}}", Demand(rate=4), "leave nothing"),
    ],
)
def test_a_demand_that_cannot_be_met(lanes, text, demand, said):
    with pytest.raises(SettingError, match=said):
        offer(lanes(text), demand, PRICE, 60 * S, 0, 2_048)


def test_the_documents_examples_are_read(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    examples = dict(re.findall(r"<!-- (\w+) -->\n```yaml\n(.*?)```", text, re.DOTALL))
    for name, example in examples.items():
        (tmp_path / f"{name}.yaml").write_text(example)
    chat, voice, nightly = from_file(tmp_path / "lanes.yaml")
    assert len(chat.source.arrivals) == 3_888 and nightly.is_backlog
    assert voice.endpoint.fixed.queue == 40 * MS
    assert len(chosen(str(tmp_path / "strategies.yaml"))) == 5
