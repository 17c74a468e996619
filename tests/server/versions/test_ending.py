"""The end of a trial decides its version's state, and who and what is named as the cause."""

import pytest

from headway.core.lane import Lane
from headway.rollout.evidence import Evidence, Verdict
from headway.rollout.plan import TrialPlan
from headway.rollout.trial import Outcome, Trial
from headway.server.versions.ending import SURE, ending
from headway.server.versions.live_trial import LiveTrial

EXPECTS = {"figure": "ttft_p95", "lane": "chat", "change": -0.1}
BETTER = Evidence("ttft_p95", "chat", 0.1, 20.0, SURE, 30, -0.2, -0.3, -0.1)


def ended(outcome, stopped_by="", failure=""):
    live = LiveTrial(2, 1, TrialPlan(), [Lane("chat")], 0)
    live.promotes, live.expects, live.failure = True, EXPECTS, failure
    live.trial.verdict = Verdict(outcome, "its verdict", 30, (BETTER,))
    if stopped_by:
        live.roll_back(stopped_by, "callers complain")
    found = ending(live, 5)
    return found.state, found.author, found.why


@pytest.mark.parametrize(
    "outcome, stopped_by, expected",
    [
        (Outcome.ENDED, "", ("promoted", "headway", "the expected figure is better")),
        (Outcome.ENDED, "ops", ("rolled back", "ops", "callers complain")),
        (Outcome.STOPPED, "ops", ("rolled back", "ops", "callers complain")),
        (Outcome.STOPPED, "", ("rolled back", "headway", "its verdict")),
        (Outcome.TRIPPED, "", ("rolled back", "headway", "its verdict")),
        (Outcome.TRIPPED, "ops", ("rolled back", "headway", "its verdict")),
    ],
)
def test_a_trial_that_an_operator_ended_is_rolled_back_whatever_its_verdict(
    outcome, stopped_by, expected, monkeypatch
):
    monkeypatch.setattr(Trial, "is_judged", True)
    assert ended(outcome, stopped_by) == expected


def test_a_better_version_whose_guardrails_were_not_judged_is_not_promoted():
    """The trial has seen no traffic."""
    assert ended(Outcome.ENDED) == ("proposed", "headway", "its verdict")


def test_a_failed_trial_is_rolled_back_by_headway_with_the_failure():
    why = "the trial has failed: no judgement"
    assert ended(Outcome.RUNNING, "ops", why) == ("rolled back", "headway", why)
