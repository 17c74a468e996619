"""Admission decides from the published snapshot alone."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.core.admission import DOUBT, Accept, Refuse, admit, full, late, never, refuse, wait
from headway.core.batch import Output
from headway.core.commands import Add, Close
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.calls import Calls
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.core.policies.order import FirstCome, Priority
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from tests.traces import ask


def loaded():
    """Two requests wait in a lane of two, one runs, and none has ended."""
    lanes = (Lane("default", max_waiting=2), Lane("bulk", max_waiting_tokens=9))
    scheduler = Scheduler(Settings(4, 4, lanes, Policies(Continuous(4), step_tokens=4), context=15))
    scheduler.apply([Add(ask("run", 4, 5))], 0)
    scheduler.commit(scheduler.schedule(0), Output(((9,),)), 40)
    for i in range(2):
        scheduler.apply([Add(ask(f"w{i}", 3, 2))], 50)
    return scheduler


def learned(load, prefill=10, **drains):
    """The same load with learned drain rates: prompt tokens per nanosecond, by lane."""
    lanes = {
        name: lane._replace(drain=1e9 * drains.get(name, 0)) for name, lane in load.lanes.items()
    }
    return load._replace(lanes=lanes, prefill=prefill)


def test_the_eta_of_an_accepted_request_is_now_while_no_rate_is_known():
    load = loaded().load(50)
    assert (load.prefill, load.lanes["default"].tokens, load.capacity) == (0, 6, 15)
    load = learned(load, prefill=0)
    assert admit(ask("a", 4, 4, lane="bulk"), load, 60) == Accept(60)


def test_the_eta_is_the_wait_of_the_lane_plus_the_prompts_own_time():
    load = learned(loaded().load(50), default=3)
    assert admit(ask("a", 4, 4, lane="bulk"), load, 60) == Accept(60 + 6 // 3 + 10 * 4)
    load = learned(loaded().load(50))
    assert admit(ask("a", 4, 4, lane="bulk"), load, 60) == Accept(60 + 10 * 6 + 10 * 4)


def waits(order, lanes, late=""):
    """The wait by lane, after one request in each: the n-th lane's has n tokens. late: a lane whose
    request is relegated."""
    policies = Policies(order=order)
    scheduler = Scheduler(Settings(4, 4, lanes, policies, cost=StepCost.of(1)))
    for tokens, lane in enumerate(lanes, 1):
        scheduler.apply([Add(ask(lane.name, tokens, 2, lane=lane.name))], 0)
    if late:
        scheduler.roster.relegate(scheduler.roster.by_id[late])
    load = learned(scheduler.load(0), prefill=1)
    return {name: wait(line, load) for name, line in load.lanes.items()}


def test_a_request_does_not_wait_for_requests_of_lower_priority():
    lanes = (Lane("low", priority=1), Lane("high"), Lane("high too"), Lane("other", priority=1))
    assert waits(Priority(), lanes) == {"low": 3, "high": 2, "high too": 3, "other": 4}
    assert waits(FirstCome(), lanes) == dict.fromkeys(["low", "high", "high too", "other"], 4)
    late = waits(Priority(), lanes, "other")
    assert late == {"low": 3, "high": 2, "high too": 3, "other": 3}, "the relegated come last"


def test_by_deadline_a_timed_lane_waits_for_no_untimed_lane_and_no_relegated_request():
    timed = Budget(ttft=100)
    chat, voice = Lane("chat", timed, priority=9), Lane("voice", timed)
    lanes = (chat, voice, Lane("bulk", priority=1), Lane("nightly"))
    order = ByDeadline()
    assert waits(order, lanes) == {"chat": 2, "voice": 2, "nightly": 4, "bulk": 4}
    assert waits(order, lanes, "voice") == {"chat": 1, "voice": 1, "nightly": 4, "bulk": 4}
    lanes = (*lanes[2:], chat, voice)
    assert waits(order, lanes) == {"bulk": 4, "nightly": 4, "chat": 4, "voice": 4}
    lanes = (Lane("nightly"), chat, Lane("bulk", priority=-1), Lane("none", priority=1))
    assert waits(order, lanes) == {"nightly": 3, "chat": 2, "bulk": 3, "none": 4}
    assert waits(order, lanes, "chat") == {"nightly": 3, "chat": 0, "bulk": 3, "none": 4}


def test_by_deadline_a_request_waits_for_those_due_earlier_in_other_timed_lanes():
    """In a laxer lane, these are the requests that have waited for as long as it is laxer."""
    lanes = (
        Lane("voice", Budget(ttft=300)),
        Lane("chat", Budget(ttft=1_000, e2e=4_000)),
        Lane("report", Budget(e2e=3_000)),
        Lane("spoken", Budget(tpot=9)),
    )
    scheduler = Scheduler(Settings(4, 4, lanes, Policies(order=ByDeadline()), cost=StepCost.of(1)))
    for at, lane in enumerate(lanes):
        scheduler.apply([Add(ask(lane.name, 8, 2, at, lane=lane.name))], at)

    def waits(now, relegated=0):
        load = learned(scheduler.load(now), prefill=0, voice=1, chat=0.1, report=0.01, spoken=0.001)
        report = load.lanes["report"]._replace(relegated=relegated)
        load = load._replace(lanes={**load.lanes, "report": report})
        return {name: wait(line, load) for name, line in load.lanes.items()}

    assert [line.due for line in scheduler.load(0).lanes.values()] == [
        300,
        1_000,
        1_500,
        NEVER // 2,
    ]
    assert waits(500) == {"voice": 8, "chat": 80, "report": 800, "spoken": 8_000}
    # Of report's eight tokens one precedes voice (199 of 1,399 ns), and five precede chat.
    assert waits(1_401) == {"voice": 100, "chat": 500, "report": 800, "spoken": 8_000}
    assert waits(3_002)["voice"] == 400  # four: those that came in the first 1,800 of 3,000 ns
    assert waits(3_002, relegated=1)["voice"] == 100  # one: 300 of the 1,500 in which one is due


def test_by_deadline_the_wait_comes_from_the_engines_eta():
    lane, second = Lane("voice", Budget(ttft=300)), 10**9
    scheduler = Scheduler(
        Settings(4, 4, (lane,), Policies(order=ByDeadline()), cost=StepCost.of(1))
    )
    load = learned(scheduler.load(0), voice=1)
    line = load.lanes["voice"]._replace(tokens=8, waiting=1)
    assert wait(line, load) == 0, "nothing waits in the load"
    load = load._replace(running=load.slots)
    line = line._replace(eta=3 * second + 40, eta_prompt=4)
    assert wait(line, load) == 3 * second, "without the prompt's own time"
    assert late(line, load, 5, 5 + 3 * second) is None, "as it is"
    reason = "the wait in 'voice' is about 3 s: too long for a request that must start within 2 s"
    assert late(line, load, 5, 5 + 2 * second) == Refuse(reason, 5 + 3 * second)
    assert wait(line._replace(due=0), load) == 0, "it does not go by deadline"


def test_the_engines_eta_is_scaled_by_how_the_line_has_changed_since():
    """The wait was 3 s when 40 tokens waited. Lanes without a budget and relegated requests count
    for nothing."""
    lanes = (Lane("voice", Budget(ttft=300)), Lane("bulk"))
    settings = Settings(400, 4, lanes, Policies(order=ByDeadline()), cost=StepCost.of(1))
    empty = learned(Scheduler(settings).load(0), prefill=10)
    second, full_up = 10**9, empty._replace(running=empty.slots)

    def foreseen_wait(tokens, then, load=full_up, late=0):
        voice = load.lanes["voice"]._replace(eta=3 * second + 40, eta_prompt=4, eta_tokens=then)
        voice = voice._replace(tokens=tokens + late, waiting=1, relegated_tokens=late)
        bulk = load.lanes["bulk"]._replace(tokens=1_000, waiting=1)
        return wait(voice, load._replace(lanes={"voice": voice, "bulk": bulk}))

    assert foreseen_wait(40, 40) == foreseen_wait(40, 40, late=99) == 3 * second
    assert foreseen_wait(10, 40) == 3 * second // 4
    assert foreseen_wait(0, 40) == 0
    assert foreseen_wait(90, 40) == 3 * second + 50 * 10
    assert foreseen_wait(0, 0) == 3 * second, "for a slot"
    assert foreseen_wait(30, 40, empty) == 30 * 10, "there is a slot for each"


@pytest.mark.parametrize(
    "limit", [{"slots": Share(0, 2)}, {"step_tokens": Share(0, 2)}], ids=["slots", "step_tokens"]
)
def test_the_engines_eta_counts_for_a_lane_that_has_all_its_slots_in_use(limit):
    """The engine has slots left, and nobody waits."""
    lane = Lane("voice", Budget(ttft=300), **limit)
    settings = Settings(400, 4, (lane,), Policies(order=ByDeadline()), cost=StepCost.of(1))
    load = learned(Scheduler(settings).load(0), prefill=10)
    line = load.lanes["voice"]._replace(eta=3_040, eta_prompt=4)
    assert wait(line._replace(running=2), load) == 3_000, "for one of them to end"
    assert wait(line._replace(running=1), load) == 0, "one has ended since the look"


def test_a_line_full_of_relegated_requests_says_when_they_have_started():
    lane = Lane("default", Budget(ttft=1), max_waiting=1, max_waiting_tokens=3)
    policies = Policies(order=ByDeadline())
    scheduler = Scheduler(Settings(4, 4, (lane,), policies, cost=StepCost.of(1)))
    scheduler.apply([Add(ask("a", 3, 1))], 0)
    scheduler.roster.relegate(scheduler.roster.by_id["a"])
    scheduler.check()
    load = learned(scheduler.load(0))
    line = load.lanes["default"]
    assert (line.waiting, line.relegated, line.relegated_tokens) == (1, 1, 3)
    assert wait(line, load) == 0
    assert full(line, load, 5).retry_at == 5 + 10 * 3


def test_a_request_larger_than_the_blocks_of_its_lane_is_refused():
    lanes = (Lane("default", blocks=Share(most=2)), Lane("free"))
    load = Scheduler(Settings(4, 4, lanes)).load(0)
    refused = admit(ask("a", 4, 5), load, 0)
    said = "4 prompt tokens and 5 to generate cannot fit: a request may hold 8"
    assert refused == Refuse(said)
    assert isinstance(admit(ask("a", 4, 4), load, 0), Accept)
    assert isinstance(admit(ask("a", 4, 5, lane="free"), load, 0), Accept)


@pytest.mark.parametrize(
    "request_, reason, retry_at",
    [
        (ask("a", 4, 4), "2 requests wait in 'default' already", 60 + 10 * 6),
        (
            ask("a", 10, 1, lane="bulk"),
            "10 prompt tokens are more than may ever wait in 'bulk': 9",
            NEVER,
        ),
        (
            ask("a", 10, 7, lane="bulk"),
            "10 prompt tokens and 7 to generate cannot fit: a request may hold 15",
            NEVER,
        ),
        (ask("a", 0, 1), "the prompt is empty", NEVER),
        (ask("a", 1, -1), "max_tokens must be 0 or more, not -1", NEVER),
        (ask("a", 1, 2.5), "max_tokens must be an int, not 2.5", NEVER),
        (ask("a", 1, 1, sampling=Sampling(top_p=0)), "top_p must be in (0, 1], not 0", NEVER),
        (ask("a", 1, 1, lane="x"), "there is no lane 'x'; there are ['bulk', 'default']", NEVER),
    ],
)
def test_a_refusal_has_a_reason_and_a_time_to_retry(request_, reason, retry_at):
    load = learned(loaded().load(50))
    assert admit(request_, load, 60) == Refuse(reason, retry_at)
    assert load == learned(loaded().load(50)), "a snapshot is a value"


def test_a_lane_full_of_tokens_says_when_it_has_drained_and_takes_what_fits():
    scheduler = loaded()
    scheduler.apply([Add(ask("b", 7, 2, lane="bulk"))], 50)
    load = learned(scheduler.load(50), default=1, bulk=1)
    refused = Refuse("7 tokens wait in 'bulk' already", 60 + 7)
    assert admit(ask("a", 3, 2, lane="bulk"), load, 60) == refused
    assert isinstance(admit(ask("a", 2, 2, lane="bulk"), load, 60), Accept)


def test_a_full_lane_with_a_known_drain_rate_says_when_to_retry():
    load = learned(loaded().load(50), default=3)
    assert admit(ask("a", 4, 4), load, 60) == Refuse("2 requests wait in 'default' already", 62)


def test_a_full_lane_refuses_before_the_prompt_is_known():
    load = learned(loaded().load(50), default=3)
    assert full(load.lanes["bulk"], load, 60) is None
    assert full(load.lanes["default"], load, 60) == admit(ask("a", 4, 4), load, 60)


def test_a_request_that_could_not_start_in_time_is_refused_at_once():
    load = learned(loaded().load(50)._replace(slots=3), default=6e-9)
    line = load.lanes["default"]
    begin, second = 60, 10**9
    assert late(line, load, begin, NEVER) is None
    assert late(line, load, begin, begin + second * (DOUBT + 1) // DOUBT) is None
    reason = (
        "the wait in 'default' is about 1 s and may be 1.5 s: too long for a request that must "
        "start within 1 s"
    )
    assert late(line, load, begin, begin + second) == Refuse(reason, begin + second)


def test_a_wait_of_minutes_is_told_without_an_exponent():
    load = learned(loaded().load(50)._replace(slots=3), default=5e-11)
    found = late(load.lanes["default"], load, 60, 60)
    assert found and found.reason.startswith(
        "the wait in 'default' is about 120 s and may be 180 s"
    )


def test_free_slots_and_blocks_shorten_the_wait_given_by_an_old_drain_rate():
    """A line's drain rate is remembered from a time in which the line stood still."""
    load = learned(loaded().load(50), default=6e-9)
    line, begin, second = load.lanes["default"], 60, 10**9
    assert (load.running, line.waiting, load.slots, load.free_blocks) == (1, 2, 4, 3)
    assert wait(line, load) == 6 * 10 and late(line, load, begin, begin + second) is None
    fast = learned(load, default=3)
    assert wait(line, fast) == 6 // 3, "nor longer than the line took then"
    limited = line._replace(lane=replace(line.lane, slots=Share(most=3)))
    for scarce in (
        load._replace(slots=3),  # none for one more
        load._replace(slots=0),  # they start as groups
        load._replace(free_blocks=2),
        load._replace(lanes={**load.lanes, "default": line._replace(slots=3)}),
        load._replace(lanes={**load.lanes, "default": limited}),
    ):
        assert wait(scarce.lanes["default"], scarce) == second


def test_with_free_slots_the_wait_is_the_time_of_all_waiting_prompts():
    scheduler = loaded()
    scheduler.apply([Add(ask("b", 1, 2, lane="bulk"))], 50)
    load = learned(scheduler.load(50), default=1e-9, bulk=1e-9)._replace(slots=9, free_blocks=9)
    assert wait(load.lanes["bulk"], load) == (6 + 1) * 10


@pytest.mark.parametrize(
    "join, slots",
    [(Continuous(4), 4), (Static(4), 0), (Dynamic(4, 5), 0), (Calls(4), 0)],
)
def test_the_load_tells_only_slots_that_fill_one_by_one(join, slots):
    settings = Settings(4, 4, policies=Policies(join, step_tokens=4))
    assert Scheduler(settings).load(0).slots == slots


@pytest.mark.parametrize(
    "count, prompt, lane, reason",
    [
        (2, 3, "default", ""),
        (3, 3, "default", "3 requests come together, and no more than 2 may ever wait"),
        (3, 3, "bulk", ""),
        (2, 5, "bulk", "10 prompt tokens come together, and no more than 9 may ever wait"),
        (1, 10, "bulk", ""),
        (2, 1, "x", ""),
    ],
)
def test_more_requests_than_may_ever_wait_are_never_admitted_together(count, prompt, lane, reason):
    asked = [ask(f"r{i}", prompt, 1, lane=lane) for i in range(count)]
    refused = never(asked, loaded().load(50))
    assert bool(refused) == bool(reason)
    if refused:
        assert refused == Refuse(f"{reason} in {lane!r}", NEVER)


def test_a_closing_engine_refuses():
    scheduler = loaded()
    scheduler.apply([Close()], 50)
    answer = admit(ask("a", 1, 1, lane="bulk"), scheduler.load(50), 60)
    assert answer == Refuse("the engine is closing")


@given(
    st.integers(0, 16),
    st.sampled_from([-1, 0, 1, 2.5, 5, 6, 12]),
    st.sampled_from(["default", "bulk", "shared", "x"]),
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(["default", "bulk", "shared"])), max_size=5
    ),
    st.booleans(),
)
@example(4, 5, "shared", [], False)
@example(4, 4, "shared", [], False)
def test_the_engine_refuses_exactly_what_its_snapshot_refuses(
    prompt, tokens, lane, waiting, closes
):
    lanes = (
        Lane("default", max_waiting=2),
        Lane("bulk", max_waiting_tokens=9),
        Lane("shared", blocks=Share(most=2)),
    )
    scheduler = Scheduler(Settings(4, 4, lanes, context=15))
    scheduler.apply([Add(ask(f"w{i}", n, 1, lane=to)) for i, (n, to) in enumerate(waiting)], 0)
    scheduler.apply([Close()] * closes, 1)
    request = ask("a", prompt, tokens, lane=lane)
    refused, events = refuse(request, scheduler.load(2), 2), scheduler.apply([Add(request)], 2)
    assert [event.error for event in events] == ([refused.reason] if refused else [])


@pytest.mark.parametrize(
    "sampling, words",
    [
        (Sampling(temperature=-0.1), "temperature must be 0 or more and finite"),
        (Sampling(temperature=float("inf")), "temperature must be 0 or more and finite"),
        (Sampling(temperature=float("nan")), "temperature must be 0 or more and finite"),
        (Sampling(top_k=-1), "top_k must be 0"),
        (Sampling(top_p=0.0), "top_p must be in"),
        (Sampling(top_p=1.1), "top_p must be in"),
        (Sampling(min_p=-0.1), "min_p must be in"),
        (Sampling(seed=-1), "seed must be in"),
        (Sampling(min_tokens=-1), "min_tokens must be"),
        (Sampling(choice=-1), "choice must be 0 or more"),
        (Sampling(repetition_penalty=0.0), "repetition_penalty must be above 0"),
        (Sampling(presence_penalty=2.5), "presence_penalty must be in"),
        (Sampling(frequency_penalty=-2.5), "frequency_penalty must be in"),
        (Sampling(prompt_logprobs=-2), "prompt_logprobs must be from"),
        (Sampling(logit_bias=((-1, 0.5),)), "logit_bias must be of tokens"),
        (Sampling(logit_bias=((1, float("nan")),)), "logit_bias must be of tokens"),
        (Sampling(bad_words=((1,), ())), "a bad word is empty"),
        (Sampling(logit_bias=((1, -100.0), (2, 0.5)), bad_words=((1, 2),)), ""),
        (Sampling(logprobs=21), "logprobs must be from 0 to 20"),
        (Sampling(temperature=1.0, top_k=1, top_p=1.0, min_p=1.0, seed=2**63 - 1), ""),
        (Sampling(top_k=2**63), f"top_k must be 0 (off) or more, below 2**63, not {2**63}"),
        (Sampling(top_k=2**63 - 1, choice=2**63 - 1, min_tokens=2**63 - 1), ""),
        (Sampling(top_k=10**5_000), "top_k must be 0 (off) or more, below 2**63, not a number of"),
        (Sampling(top_k=2.0), "top_k must be"),
        (Sampling(seed=2**63), "seed must be in"),
        (Sampling(choice=2**64), "choice must be 0 or more"),
        (Sampling(min_tokens=2**63), "min_tokens must be"),
        (Sampling(logprobs="2"), "logprobs must be from 0 to 20"),
        (Sampling(temperature=10**400), "temperature must be 0 or more and finite"),
        (Sampling(temperature="hot"), "temperature must be 0 or more and finite"),
        (Sampling(temperature=1e30, repetition_penalty=1e30), ""),
        (Sampling(temperature=1e31), "temperature must be 0 or more and finite, 1e+30 at most"),
        (Sampling(repetition_penalty=1e-300), "repetition_penalty must be above 0, from 1e-30"),
        (Sampling(repetition_penalty=float("nan")), "repetition_penalty must be above 0"),
        (Sampling(logit_bias=((2**32, 0.5),)), "logit_bias must be of tokens"),
        (Sampling(logit_bias=((1, 1e300),)), "logit_bias must be of tokens"),
        (Sampling(logit_bias=((1, "x"),)), "logit_bias must be of tokens"),
        (Sampling(logit_bias=((2**32 - 1, -1e30),)), ""),
        (Sampling(stop_tokens=frozenset({3, -1})), "stop_tokens must be of tokens"),
        (Sampling(stop_tokens=frozenset({"3"})), "stop_tokens must be of tokens"),
        (Sampling(stop_tokens=frozenset({2**32 - 1}), bad_words=((2**32 - 1,),)), ""),
        (Sampling(bad_words=((1, 2), (3, 2**63))), "bad_words must be of tokens"),
    ],
)
def test_impossible_sampling_is_refused(sampling, words):
    assert sampling.problem().startswith(words) and bool(sampling.problem()) == bool(words)


def test_a_request_of_a_vector_with_tokens_to_generate_is_refused():
    load = loaded().load(50)
    asked = ask("a", 4, 3, lane="bulk", pooling="last")
    assert admit(asked, load, 60) == Refuse(
        "a request of a vector generates nothing: max_tokens is 0, not 3"
    )
    assert isinstance(admit(ask("a", 4, 0, lane="bulk", pooling="last"), load, 60), Accept)
