"""Cascades in virtual time: judges, escalation, speculation."""

import asyncio

import numpy as np
import pytest

from headway.errors import DeadlineError, EngineError, PromptError, SettingError
from headway.llm.options import Options
from headway.routing import (
    Agreed,
    Cascade,
    Confident,
    RouteAnswer,
    RouteRequest,
    SimulatedTarget,
    Valid,
    follows_schema,
    matches,
)
from headway.routing.circuit import CircuitSettings
from headway.routing.judges import plain, votes
from tests.simulated_targets import MS, decided, story, target

LARGE = target("large", 100)
ALWAYS = [(0, 10**18)]


SURE = Confident(-1.0)


def cascade(*targets, accept=SURE, **settings):
    return lambda sink: Cascade(targets, accept, rows=sink, **settings)


def test_an_accepted_answer_costs_the_small_target_alone():
    (answer,), (row,) = decided(
        cascade(target("small", 10, logprob=-0.5), LARGE), RouteRequest("x")
    )
    assert (answer.text, answer.target, answer.accepted) == ("small", "small", True)
    assert story(row) == [("small", "first", "won")]
    assert row.attempts[0].verdict == "mean log-probability -0.5, at least -1 wanted"
    assert (row.cost, row.saved, row.baseline.basis) == (10 * MS, 90 * MS, "estimated")
    assert (row.e2e, row.baseline.span, row.saved_nanoseconds) == (10 * MS, 100 * MS, 90 * MS)


def test_a_rejected_answer_costs_both_and_the_saving_is_measured():
    (answer,), (row,) = decided(cascade(target("small", 10, logprob=-2), LARGE), RouteRequest("x"))
    assert answer.text == "large"
    assert story(row) == [("small", "first", "rejected"), ("large", "escalated", "won")]
    assert (row.cost, row.saved, row.wasted) == (110 * MS, -10 * MS, 10 * MS)
    assert row.baseline.basis == "measured" and row.is_measured


def test_each_tier_of_a_cascade_has_a_judge_of_its_own():
    judges = [matches(r"\d+"), follows_schema({"type": "object", "required": ["a"]})]
    for says, middle, expected in [
        ("12", "{}", "12"),
        ("twelve", '{"a": 1}', '{"a": 1}'),
        ("twelve", "{}", "large"),
        ("twelve", "no JSON", "large"),
        ("twelve", "[" * 100_000, "large"),
    ]:
        targets = target("small", 1, says), target("middle", 5, middle), LARGE
        (answer,), (row,) = decided(cascade(*targets, accept=judges), RouteRequest("x"))
        assert answer.text == expected
        assert len(row.attempts) == 1 + ["12", '{"a": 1}', "large"].index(expected)


def test_an_answer_is_accepted_if_its_samples_agree():
    says = iter(["one", "ONE ", "one", "two"])
    small = target("small", 10, lambda request: next(says), slots=2)
    ends, rows = decided(
        cascade(small, LARGE, accept=Agreed(2)), RouteRequest("x"), RouteRequest("y")
    )
    assert [each.text for each in ends] == ["one", "large"]
    assert story(rows[0]) == [("small", "first", "won"), ("small", "sample", "lost")]
    assert rows[0].attempts[0].verdict == "2 of 2 samples agree"
    assert rows[1].attempts[0].verdict == "1 of 2 samples agree"
    # Each sample has one of two slots for 10 ms. The large target has its device alone.
    assert [row.cost for row in rows] == [10 * MS, 110 * MS]


def test_samples_have_seeds_and_temperatures_of_their_own():
    judge, seeded = Agreed(3, temperature=0.7), Options(seed=5)
    assert judge.options(seeded, 0) == seeded
    assert (judge.options(seeded, 2).seed, judge.options(seeded, 2).temperature) == (7, 0.7)
    assert Agreed().options(Options(temperature=0.3), 1) == Options(temperature=0.3)
    assert Confident(-1).options(Options(), 0).logprobs == 0
    assert Confident(-1).options(Options(logprobs=3), 0).logprobs == 3
    assert plain(RouteAnswer(7)) == 7


def test_arrays_agree_if_all_of_their_numbers_do():
    draws = iter([np.zeros(2_000), np.zeros(2_000), np.zeros(2_000), np.eye(1, 2_000, 1_000)[0]])

    def answer(request):
        return RouteAnswer(next(draws))

    small = SimulatedTarget("small", lambda request: 10 * MS, answer, slots=2)
    _, rows = decided(cascade(small, LARGE, accept=Agreed(2)), RouteRequest("x"), RouteRequest("y"))
    assert [row.attempts[0].verdict for row in rows] == [
        "2 of 2 samples agree",
        "1 of 2 samples agree",
    ]
    three = [RouteAnswer(np.eye(1, 2_000, at)[0]) for at in (900, 1_000, 1_000)]
    assert votes(three, plain) == [(2, 1), (1, 0)], "their reprs are the same"


def test_a_target_that_fails_is_passed_over():
    small = target("small", 10, fails=ALWAYS)
    (answer,), (row,) = decided(cascade(small, LARGE, accept=Agreed()), RouteRequest("x"))
    assert answer.text == "large"
    assert [each.outcome for each in row.attempts] == ["failed", "lost", "won"]
    (end,), _ = decided(cascade(small, target("large", 9, fails=ALWAYS)), RouteRequest("x"))
    assert isinstance(end, EngineError) and str(end) == "large is down"


def test_an_invalid_prompt_ends_the_request_at_the_first_target():
    def raising(request):
        raise PromptError("the prompt is wrong")

    (end,), (row,) = decided(cascade(target("small", 10, raising), LARGE), RouteRequest("x"))
    assert isinstance(end, PromptError) and story(row) == [("small", "first", "failed")]


def test_what_a_judge_raises_ends_the_request():
    def judge(answer):
        raise RuntimeError("planted")

    (end,), (row,) = decided(
        cascade(target("small", 10), LARGE, accept=Valid(judge)), RouteRequest("x")
    )
    assert isinstance(end, RuntimeError) and row.error == "planted"


def test_speculation_asks_the_large_target_when_it_can_just_keep_the_deadline():
    """The large target needs 100 ms and a sixteenth, and must end at 199 ms: it starts at 92.75."""
    small = target("small", 150, logprob=-0.5)
    (answer,), (row,) = decided(
        cascade(small, LARGE, speculate=True), RouteRequest("x", timeout=0.2)
    )
    assert answer.text == "small"
    assert story(row) == [("small", "first", "won"), ("large", "speculative", "lost")]
    assert row.attempts[1].began == 92.75 * MS and row.attempts[1].ended == 150 * MS
    assert row.attempts[1].nanoseconds == 57.25 * MS, "what was computed until it was cancelled"
    assert row.cost == 207.25 * MS


def test_speculation_keeps_a_deadline_that_waiting_would_miss():
    small = target("small", 150, logprob=-2)
    late, plain_row = decided(cascade(small, LARGE), RouteRequest("x", timeout=0.2))
    assert (late[0].text, late[0].accepted) == ("small", False)
    assert story(plain_row[0])[1] == ("large", "no_time", "skipped")
    kept, rows = decided(cascade(small, LARGE, speculate=True), RouteRequest("x", timeout=0.2))
    assert (kept[0].text, kept[0].accepted) == ("large", True) and rows[0].good


def test_the_first_good_answer_counts_and_the_small_one_may_lose():
    small = target("small", 500, logprob=-0.5)
    (answer,), (row,) = decided(
        cascade(small, LARGE, speculate=True), RouteRequest("x", timeout=0.2)
    )
    assert answer.text == "large"
    assert [each.outcome for each in row.attempts] == ["lost", "won"]


def test_a_target_that_is_predicted_to_be_late_is_not_asked():
    small, request = target("small", 30, logprob=-2), RouteRequest("x", timeout=0.1)
    (answer,), (row,) = decided(cascade(small, LARGE, speculate=True), request)
    assert (answer.text, answer.accepted, row.accepted) == ("small", False, False)
    assert row.e2e == 30 * MS, "it does not wait for the deadline"
    (end,), (row,) = decided(cascade(small, LARGE, best_effort=False), request)
    assert isinstance(end, DeadlineError) and "no time is left" in str(end)
    assert row.winner == -1 and row.attempts[0].outcome == "rejected"


def test_the_deadline_ends_with_the_largest_rejected_answer_or_an_error():
    wrong = target("large", 100, expected=lambda request: 10 * MS)
    small = target("small", 30, logprob=-2)
    (answer,), (row,) = decided(cascade(small, wrong), RouteRequest("x", timeout=0.1))
    assert (answer.text, answer.accepted) == ("small", False) and row.good
    (end,), (row,) = decided(cascade(target("small", 500), wrong), RouteRequest("x", timeout=0.1))
    assert isinstance(end, DeadlineError) and row.e2e <= 100 * MS


def test_the_largest_rejected_answer_is_given_though_a_smaller_one_comes_later():
    small = target("small", 90, logprob=-2)
    middle = target("middle", 20, logprob=-2, expected=lambda request: 60 * MS)
    (answer,), (row,) = decided(
        cascade(small, middle, target("large", 500), speculate=True),
        RouteRequest("x", timeout=0.1),
    )
    assert (answer.text, answer.accepted) == ("middle", False)
    assert [each.outcome for each in row.attempts] == ["rejected", "won", "skipped"]


def test_a_slow_judge_is_bounded_by_the_deadline():
    async def judge(answer):
        await asyncio.sleep(10)

    (answer,), (row,) = decided(
        cascade(target("small", 10), LARGE, accept=Valid(judge)), RouteRequest("x", timeout=0.05)
    )
    assert answer.accepted is False and row.good and "before the judge" in row.attempts[0].verdict


def test_speculation_does_not_wait_for_a_slow_judge():
    async def judge(answer):
        await asyncio.sleep(0.15)
        return False

    route = cascade(target("small", 10), LARGE, accept=Valid(judge, "slow"), speculate=True)
    (answer,), (row,) = decided(route, RouteRequest("x", timeout=0.2))
    assert (answer.text, answer.accepted) == ("large", True)
    assert story(row) == [("small", "first", "rejected"), ("large", "speculative", "won")]
    assert row.attempts[1].began < 100 * MS and row.attempts[0].verdict == "slow: failed"


@pytest.mark.parametrize("kind", [TimeoutError, DeadlineError])
def test_a_judges_own_timeout_ends_the_request(kind):
    """A timeout inside the judge is its error like any other, and not the request's deadline."""

    async def judge(answer):
        raise kind("the grader did not answer")

    for timeout in (0, 1):
        (end,), (row,) = decided(
            cascade(target("small", 10), LARGE, accept=Valid(judge)),
            RouteRequest("x", timeout=timeout),
        )
        assert type(end) is kind and str(end) == row.error == "the grader did not answer"


def test_a_missed_deadline_is_the_error_even_if_a_target_failed_before():
    small, hangs = target("small", 10, fails=ALWAYS), target("large", 50, hangs=ALWAYS)
    (end,), (row,) = decided(cascade(small, hangs), RouteRequest("x", timeout=0.2))
    assert isinstance(end, DeadlineError) and "asked: small, large" in str(end)
    assert story(row) == [("small", "first", "failed"), ("large", "escalated", "late")]


def test_a_request_without_time_left_asks_no_target():
    (end,), (row,) = decided(cascade(target("small", 1), LARGE), RouteRequest("x", deadline=0))
    assert isinstance(end, DeadlineError) and row.attempts == ()


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: Cascade([LARGE], Confident(-1)), "two targets"),
        (lambda: Cascade([LARGE, LARGE], Confident(-1)), "all different"),
        (lambda: Cascade([target("a", 1), LARGE], [Confident(-1)] * 2), "2 judges for 1"),
        (lambda: Cascade([target("a", 1), LARGE], bool), "'bool'> is no judge; Valid"),
        (lambda: Cascade([target("a", 1), LARGE], [None]), "None is no judge"),
        (lambda: Confident(float("nan")), "calibrated"),
        (lambda: Agreed(1), "2 or more"),
        (lambda: matches("("), "no regular expression"),
        (lambda: follows_schema({"type": "thing"}), "cannot be used"),
        (lambda: CircuitSettings(0), "cannot open"),
    ],
)
def test_invalid_settings_of_cascades_judges_and_circuits_are_refused(make, why):
    with pytest.raises(SettingError, match=why):
        make()
