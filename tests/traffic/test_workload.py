"""Offered traffic: the same seed gives the same requests, and prompts share no prefix by chance."""

import pydoc_data.topics
from collections import Counter
from dataclasses import replace

import pytest

from headway.costing.request_spec import RequestSpec
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.runs.machine_speed import long_request
from headway.traffic.demo_workload import (
    DEMO_LOAD,
    TRACE_LOAD,
    build_demo_workload,
    merge_traces,
    pace_trace,
    voice_requests,
)
from headway.traffic.prompts import Prompts
from headway.traffic.token_scale import count_raised_to_one, scale_trace
from headway.traffic.trace import Arrival, read_shipped_trace
from headway.traffic.workload import supersede_keys, with_prompts

S = 1_000_000_000
BLOCK = 16
TEXT = [ord(letter) for letter in "".join(pydoc_data.topics.topics.values())]
PRICE = TokenCost(prompt=100_000.0, answer=300_000.0)
TRACES = {
    "completion": read_shipped_trace("azure2023-code"),
    "support": read_shipped_trace("azure2023-conv"),
}


def made(seed=0, window=20 * S, price=PRICE):
    return build_demo_workload(
        merge_traces(TRACES, 2048), Prompts(TEXT, BLOCK, seed), price, window
    )


def test_the_same_seed_gives_the_same_requests_and_another_seed_others():
    first, again, other = made(), made(), made(seed=1)
    assert first == again
    assert {request.prompt for request in first.requests}.isdisjoint(
        request.prompt for request in other.requests
    )


def test_no_two_prompts_share_a_first_block():
    requests = made().requests
    assert len(requests) > 200
    beginnings = Counter(request.prompt[:BLOCK] for request in requests)
    assert beginnings.most_common(1)[0][1] == 1


def test_traffic_has_the_load_that_was_asked_for():
    work = made(window=40 * S)
    work_ns = sum(100_000 * len(r.prompt) + 300_000 * r.max_tokens for r in work.requests)
    assert work.load == pytest.approx(work_ns / (40 * S))
    assert work.load == pytest.approx(DEMO_LOAD, rel=0.05)  # voice is random
    assert not work.trace_ends


def test_a_machine_of_half_the_speed_gets_the_same_load_from_a_slower_trace():
    slow = made(window=40 * S, price=TokenCost(200_000.0, 600_000.0))
    assert slow.load == pytest.approx(DEMO_LOAD, rel=0.05)
    assert slow.time_scale < made(window=40 * S).time_scale


def test_a_machine_too_fast_for_the_trace_gets_all_of_it_with_a_note():
    fast = made(window=40 * S, price=TokenCost(100.0, 300.0))
    assert fast.trace_ends and fast.load < DEMO_LOAD
    assert fast.count("support") == len(TRACES["support"])


def test_arrivals_are_ordered_inside_the_window_and_the_backlog_comes_first():
    work = made()
    times = [request.arrived for request in work.requests]
    assert times == sorted(times) and times[-1] < work.window
    labels = [request for request in work.requests if request.lane == "labelling"]
    assert labels and {request.arrived for request in labels} == {0}


def test_pacing_keeps_every_arrival_and_the_proportions_of_gaps():
    asks = [RequestSpec(at * S, "support", 10, 0) for at in (0, 1, 2, 4, 8, 16)]
    chosen, span = pace_trace(asks, TokenCost(TRACE_LOAD / 4 * S, 0), window=10 * S)
    assert span == 8 * S, "four requests take 4 of 10 seconds; the fifth begins at 8"
    assert [ask.at for ask in chosen] == [0, 1.25 * S, 2.5 * S, 5 * S]


def test_a_very_slow_machine_gets_at_least_one_request_and_an_empty_trace_is_refused():
    assert made(window=S, price=TokenCost(10_000_000.0, 30_000_000.0)).count("support") == 1
    with pytest.raises(SettingError, match="no arrivals"):
        pace_trace([], PRICE, S)


def test_token_counts_are_scaled_by_one_factor_and_cut_to_the_context():
    arrivals = [Arrival(5, 800, 80), Arrival(6, 3, 2), Arrival(7, 80_000, 80), Arrival(8, 8, 9_000)]
    assert [(ask.prompt, ask.answer) for ask in scale_trace(arrivals, "support", 256)] == [
        (100, 10),
        (1, 1),
        (246, 10),
        (1, 128),
    ]


def test_a_supersede_key_is_shared_across_lanes_but_not_across_tenants():
    arrivals = [Arrival(i, 80, 8, supersede=key) for i, key in enumerate(("k", "", "m"))]
    specs = scale_trace(arrivals, "chat", 256)
    specs += [replace(specs[0], lane="code"), replace(specs[0], tenant="t")]
    keys = supersede_keys(specs)
    assert keys.keys() == {"chat-1", "chat-3", "code-1", "chat-4"}
    assert keys["chat-1"] == keys["code-1"] and len(set(keys.values())) == 3
    names = [each.id for each in with_prompts(specs, Prompts(TEXT, BLOCK, 0))]
    assert names == ["chat-1", "chat-2", "chat-3", "code-1", "chat-4"]


def test_token_counts_of_0_are_raised_to_1_and_counted():
    arrivals = [Arrival(5, 800, 80), Arrival(6, 3, 0), Arrival(7, 4, 12)]
    made = [(ask.prompt, ask.answer) for ask in scale_trace(arrivals, "support", 256)]
    assert made == [(100, 10), (1, 1), (1, 2)] and count_raised_to_one(arrivals) == 3


def test_the_voice_endpoint_is_sparse_and_seeded():
    asks = voice_requests(S / 3, 100 * S, seed=0)
    assert asks == voice_requests(S / 3, 100 * S, seed=0) != voice_requests(S / 3, 100 * S, seed=1)
    assert 250 < len(asks) < 350
    assert all(16 <= ask.prompt <= 48 and 8 <= ask.answer <= 24 for ask in asks)


def test_a_long_request_has_the_p95_prompt_and_the_mean_answer_of_its_lane():
    asks = [RequestSpec(0, "a", prompt, prompt % 7) for prompt in range(1, 101)]
    assert long_request([*asks, RequestSpec(0, "b", 999, 999)], "a", 256) == RequestSpec(
        0, "a", 95, 3
    )
    one = long_request([replace(asks[0], answer=1)], "a", 256)
    assert one.answer == 2, "else there is no gap to measure"


def test_a_long_request_is_cut_to_the_context_like_the_others():
    """The p95 prompt and the mean answer together may be longer than any single request."""
    asks = [RequestSpec(0, "a", 246, 10)] * 9 + [RequestSpec(0, "a", 128, 128)]
    assert long_request(asks, "a", 256) == RequestSpec(0, "a", 256 - 22, 22)


def test_a_text_too_short_for_so_many_prompts_is_refused():
    prompts = Prompts(list(range(20)), BLOCK, seed=0)
    for _ in range(5):
        prompts.draw("a", 4)
    with pytest.raises(SettingError, match="too short"):
        prompts.draw("a", 4)
    with pytest.raises(SettingError, match="too short"):
        Prompts(list(range(20)), BLOCK, seed=0).draw("a", 21)
