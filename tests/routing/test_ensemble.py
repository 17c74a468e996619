"""Ensembles in virtual time: votes, the best of several, quorums, stragglers."""

import asyncio
import math

import pytest

from headway.errors import DeadlineError, EngineError, PromptError, SettingError
from headway.llm.options import Options
from headway.routing import Best, Ensemble, Majority, RouteRequest
from tests.simulated_targets import MS, decided, story, target

DEAD = [(0, 10**18)]


def ensemble(targets, *rest, **settings):
    return lambda sink: Ensemble(targets, *rest, rows=sink, **settings)


def test_the_majority_wins_and_the_rest_is_cancelled_once_the_vote_is_settled():
    targets = [target("a", 10, "Yes"), target("b", 20, "no"), target("c", 30, " yes")]
    targets += [target("d", 40, "yes"), target("e", 90, "no")]
    (answer,), (row,) = decided(ensemble(targets), RouteRequest("x"))
    assert (answer.text, answer.target, row.e2e) == ("Yes", "a", 40 * MS)
    assert row.attempts[0].verdict == "3 of 4 votes"
    assert story(row)[4] == ("e", "member", "lost") and row.attempts[4].nanoseconds == 40 * MS
    assert row.cost == (10 + 20 + 30 + 40 + 40) * MS


def test_the_first_answer_wins_a_tie():
    targets = [target("slow", 20, "b"), target("fast", 10, "a")]
    (answer,), _ = decided(ensemble(targets), RouteRequest("x"))
    assert answer.text == "a"
    keyed = Majority(lambda answer: answer.text in "ab")
    (answer,), (row,) = decided(ensemble([*targets, target("c", 15, "c")], keyed), RouteRequest(""))
    assert answer.text == "a" and row.attempts[1].verdict == "2 of 3 votes"


def test_an_answer_that_came_first_can_still_win_by_a_tie():
    targets = [target("a", 10, "B"), target("b", 20, "A"), target("c", 30, "A")]
    (answer,), (row,) = decided(ensemble([*targets, target("d", 40, "B")]), RouteRequest("x"))
    assert (answer.text, answer.target, row.e2e) == ("B", "a", 40 * MS)
    (answer,), (row,) = decided(ensemble([*targets[1:], target("d", 40, "B")]), RouteRequest("x"))
    assert (answer.text, row.e2e) == ("A", 30 * MS), "the last one cannot change that"


@pytest.mark.parametrize("settings", [{"least": 3}, {"least": 3, "quorum": 3}])
def test_a_settled_vote_still_waits_for_the_least_number_of_answers(settings):
    targets = [target(name, wait, "yes") for name, wait in (("a", 10), ("b", 20), ("c", 30))]
    (answer,), (row,) = decided(ensemble(targets, **settings), RouteRequest("x"))
    assert (answer.text, row.e2e) == ("yes", 30 * MS)
    assert row.attempts[0].verdict == "3 of 3 votes"
    quick = ensemble(targets, least=2)
    (answer,), (row,) = decided(quick, RouteRequest("x"))
    assert (answer.text, row.e2e) == ("yes", 20 * MS)


def test_best_picks_by_log_probability_or_by_a_given_score():
    targets = [target("a", 10, logprob=-2), target("b", 20, logprob=-0.5), target("c", 5, "ccc")]
    (answer,), (row,) = decided(ensemble(targets[:2], Best()), RouteRequest("x"))
    assert answer.text == "b" and row.attempts[1].verdict == "a score of -0.5, the best of 2"

    async def length(answer):
        await asyncio.sleep(0.001)
        return len(answer.text)

    (answer,), (row,) = decided(ensemble(targets, Best(length)), RouteRequest("x"))
    assert answer.text == "ccc" and row.e2e == 23 * MS
    assert Best().options(Options()).logprobs == 0 and Best(length).options(Options()) == Options()
    unknown = [target("a", 1, logprob=math.nan), target("b", 2, logprob=-9)]
    (answer,), _ = decided(ensemble(unknown, Best()), RouteRequest("x"))
    assert answer.text == "b"


def test_a_quorum_ends_the_wait():
    targets = [target("a", 10, "x"), target("b", 20, "y"), target("c", 30, "y"), target("d", 500)]
    (answer,), (row,) = decided(ensemble(targets, quorum=3), RouteRequest("x"))
    assert (answer.text, row.e2e) == ("y", 30 * MS)
    assert [each.outcome for each in row.attempts] == ["lost", "won", "lost", "lost"]


def test_a_deadline_ends_an_ensemble_with_the_answers_so_far():
    targets = [target("a", 10, "x"), target("b", 500, "y"), target("c", 500, "y")]
    (answer,), (row,) = decided(ensemble(targets), RouteRequest("x", timeout=0.1))
    assert answer.text == "x" and row.good and row.e2e == 99 * MS
    (end,), (row,) = decided(ensemble(targets, least=2), RouteRequest("x", timeout=0.1))
    assert isinstance(end, DeadlineError) and row.e2e <= 100 * MS


def test_scores_that_come_too_late_leave_the_first_answer():
    async def slow(answer):
        await asyncio.sleep(9)

    (answer,), (row,) = decided(
        ensemble([target("a", 10)], Best(slow)), RouteRequest("x", timeout=0.1)
    )
    assert (answer.text, answer.accepted) == ("a", False) and row.good


def test_a_scores_own_timeout_ends_the_request():
    async def score(answer):
        raise TimeoutError("the scorer did not answer")

    for timeout in (0, 1):
        (end,), (row,) = decided(
            ensemble([target("a", 10)], Best(score)), RouteRequest("x", timeout=timeout)
        )
        assert type(end) is TimeoutError and row.error == "the scorer did not answer"


def test_the_answer_comes_from_the_other_members_if_one_fails():
    dead = target("dead", 1, fails=DEAD)
    (answer,), (row,) = decided(ensemble([dead, target("b", 10)]), RouteRequest("x"))
    assert answer.text == "b" and story(row)[0] == ("dead", "member", "failed")
    (end,), _ = decided(ensemble([dead, target("e", 2, fails=DEAD)]), RouteRequest("x"))
    assert isinstance(end, EngineError) and str(end) in ("dead is down", "e is down")

    def raising(request):
        raise PromptError("wrong")

    (end,), (row,) = decided(ensemble([target("a", 1, raising), target("b", 9)]), RouteRequest("x"))
    assert isinstance(end, PromptError)
    assert [each.outcome for each in row.attempts] == ["failed", "cancelled"]


def test_a_member_that_fails_may_settle_the_vote():
    def raising(request):
        raise EngineError("broken off")

    targets = [target("a", 10, "yes"), target("b", 20, raising), target("c", 9_000, "no")]
    (answer,), (row,) = decided(ensemble(targets), RouteRequest("x"))
    assert (answer.text, row.e2e) == ("yes", 20 * MS), "the last one can only make it a tie"
    (answer,), (row,) = decided(ensemble(targets, least=2), RouteRequest("x"))
    assert (answer.text, row.e2e) == ("yes", 9_000 * MS)


def test_samples_of_one_target_have_seeds_of_their_own():
    seeds = []
    same = target("same", 10, lambda request: seeds.append(request.options.seed) or "x", slots=3)
    decided(ensemble([same] * 3), RouteRequest("x", Options(seed=2**63 - 1)))
    assert sorted(seeds) == [0, 1, 2**63 - 1] or sorted(seeds) == [0, 2**63 - 1]
    # Two of three agree, so the third may have been cancelled.


@pytest.mark.parametrize("settings", [{"quorum": 3}, {"quorum": 1, "least": 2}, {"least": 0}])
def test_an_impossible_quorum_is_refused(settings):
    with pytest.raises(SettingError, match="a quorum of"):
        Ensemble([target("a", 1), target("b", 1)], **settings)
