"""A trial over made-up rows: what it judges, what trips it, what it reports."""

from dataclasses import replace
from math import log
from random import Random

import pytest

from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.errors import SettingError
from headway.rollout.control import Expected, VirtualQueue, best_rate
from headway.rollout.guardrail import FIGURES, Guardrail
from headway.rollout.plan import HardStop, TrialPlan
from headway.rollout.proposal import Expectation, Proposal, differences, merged
from headway.rollout.switchback import SECOND, Switchback
from headway.rollout.trial import Outcome, Trial

MS = 1_000_000
RATE = 2_000  # tokens a second of the made-up engine
PLAN = TrialPlan(longest=300 * SECOND, settle=20 * SECOND, learning=4, fewest=5)


def row(number, at, wait, lane="chat", **more):
    end = at + wait + 50 * MS
    made = RequestRow(
        *(f"r{number}", lane, Budget(ttft=5 * SECOND), Finish.LENGTH, at, at + wait - MS),
        *(at + wait, end, end, 10, 5, 0, 0, 0, 1_000),
    )
    return replace(made, **more)


def rows_of(seed, seconds=300):
    """Bursts in a queue of one server: waits that vary a hundredfold."""
    random, queue, at, found = Random(seed), VirtualQueue(RATE), 0, []
    while at < seconds * SECOND:
        busy = (at // SECOND) % 4 < 1
        at += round(random.expovariate(40 if busy else 4) * SECOND)
        tokens = random.randrange(20, 100)
        wait = 2.718 ** queue.arrive(at, tokens) * random.uniform(0.8, 1.25)
        found.append(row(len(found), at, round(wait * SECOND), prompt=tokens))
    return found


def tried(rows, plan=PLAN, change=lambda row: row, lanes=("chat",)):
    """The trial's end. change: what the candidate does to a row."""
    trial = Trial(plan, lanes, 0)
    happened = [(each.arrived, 0, n) for n, each in enumerate(rows)]
    happened += [(each.finished, 1, n) for n, each in enumerate(rows)]
    happened += [(second * SECOND, 2, 0) for second in range(1, 330)]
    for at, kind, n in sorted(happened):
        candidate = trial.times.has_candidate(trial.times.place(rows[n].arrived))
        if kind == 0:
            trial.arrived(rows[n].id, rows[n].lane, at, rows[n].prompt)
        elif kind == 1:
            trial.ended(change(rows[n]) if candidate else rows[n])
        else:
            trial.tick(at, {})
    return trial


def slower(factor):
    def change(row):
        return replace(row, first_token=row.arrived + round(row.ttft * factor))

    return change


def busy(rate, seconds):
    """Requests at `rate` a second, with independent waits."""
    random, at, found = Random(1), 0, []
    while at < seconds * SECOND:
        at += round(random.expovariate(rate) * SECOND)
        found.append(row(len(found), at, round(random.lognormvariate(-2.5, 0.4) * SECOND)))
    return found


@pytest.mark.evidence
@pytest.mark.parametrize("rate, seconds", [(20, 330), (100, 330), (500, 130)])
def test_a_slower_version_is_taken_back_at_any_rate_of_requests(rate, seconds):
    """A pair is judged a minute after its end. Many more requests have arrived by then."""
    plan = replace(PLAN, slice=2 * SECOND, wash_out=SECOND // 2, settle=60 * SECOND)
    verdict = tried(busy(rate, seconds), plan, slower(4.0)).verdict
    assert verdict.outcome == Outcome.TRIPPED and "of lane chat is worse" in verdict.why


def test_the_requests_that_a_trial_remembers_are_bounded(monkeypatch):
    monkeypatch.setattr("headway.rollout.trial.MOST", 300)
    monkeypatch.setattr("headway.rollout.trial.FITTED", 100)
    trial, most = Trial(PLAN, ("chat",), 0), 0
    for each in busy(50, 300):
        trial.arrived(each.id, "chat", each.arrived, each.prompt)
        trial.ended(each)
        trial.tick(each.arrived, {})
        most = max(most, len(trial._past))
    assert trial.verdict.outcome == Outcome.RUNNING and trial.watches[0].pairs > 10
    assert most < 3_000, "of 15 000: those of two pairs, and of the time to settle"


@pytest.mark.parametrize(
    "rows, plan, counted",
    [
        (rows_of(3, 1), PLAN, 0),
        (rows_of(3, 40), PLAN, 0),
        (rows_of(3), replace(PLAN, fewest=99), 21),
    ],
)
def test_a_trial_in_which_no_guardrail_was_judged_says_so(rows, plan, counted):
    verdict = tried(rows, plan).verdict
    assert verdict.outcome == Outcome.ENDED and verdict.why.endswith(
        f"no guardrail was judged: {counted} pairs of slices counted, {plan.fewest} are needed"
    )


@pytest.mark.parametrize("quiet", [50, 60, 100])
def test_a_trial_learns_from_traffic_that_begins_after_the_learning_pairs(quiet):
    rows = [each for each in rows_of(3) if each.arrived >= quiet * SECOND]
    assert tried(rows).verdict.outcome == Outcome.ENDED
    verdict = tried(rows, change=slower(2.0)).verdict
    assert verdict.outcome == Outcome.TRIPPED and "ttft_p95" in verdict.why


def test_a_pair_has_each_version_once_and_a_coin_says_which_is_first():
    times = Switchback(7, 10, 3, seed=1)
    pairs = [(times.has_candidate(2 * n), times.has_candidate(2 * n + 1)) for n in range(400)]
    assert set(pairs) == {(True, False), (False, True)}
    assert 150 < sum(first for first, _ in pairs) < 250
    assert [times.is_judged(at) for at in (6, 7, 9, 10, 16, 17, 20)] == [
        *(False, False, False, True, True, False, True),
    ]
    assert (times.place(6), times.place(7), times.end(0)) == (-1, 0, 17)


def test_the_traffic_is_learnt_from_arrivals_and_waits():
    rows = rows_of(1)
    arrivals = [(each.arrived, each.prompt, 0) for each in rows]
    waits = [(n, log(each.ttft / SECOND)) for n, each in enumerate(rows)]
    assert best_rate(arrivals, [waits]) == pytest.approx(RATE, rel=0.06)
    expected, queue = Expected(), VirtualQueue(RATE)
    for (at, tokens, _), (_, wait) in zip(arrivals, waits, strict=True):
        expected.learn(queue.arrive(at, tokens), wait)
    assert expected.at(-2.0) == pytest.approx(-2.0, abs=0.25), "a wait is what was expected"
    assert expected.at(-99) >= min(wait for _, wait in waits)


def test_equal_versions_trip_nothing_and_a_slower_one_is_taken_back():
    rows = rows_of(3)
    equal = tried(rows)
    assert equal.verdict.outcome == Outcome.ENDED and equal.verdict.pairs == 25
    assert len(equal.verdict.evidence) == 6, "each figure of the one lane"
    trial = tried(rows, change=slower(1.5))
    assert trial.verdict.outcome == Outcome.TRIPPED
    assert "ttft_p95 of lane chat is worse" in trial.verdict.why
    (found,) = [each for each in trial.verdict.evidence if each.figure == "ttft_p95"]
    assert found.e_value >= found.needed and 0.1 < found.change < 0.9
    assert not trial.candidate_in_force(0), "it is taken back at once"


def test_a_late_last_tick_judges_no_pair_that_ended_after_the_trial():
    trial = Trial(PLAN, ("chat",), 0)
    for each in rows_of(3, 600):
        trial.arrived(each.id, "chat", each.arrived, each.prompt)
        trial.ended(each)
    trial.tick(600 * SECOND, {})
    assert (trial.verdict.outcome, trial.verdict.pairs) == (Outcome.ENDED, 25)


def test_an_allowed_loss_does_not_trip_and_a_gain_is_evidence():
    rows = rows_of(4)
    plan = replace(PLAN, guardrails=(Guardrail("ttft_p95", allowed=0.8),))
    assert tried(rows, plan, slower(1.5)).verdict.outcome == Outcome.ENDED
    (gain,) = tried(rows, plan, slower(0.7)).verdict.evidence
    assert gain.gain > 20 and gain.change < -0.1 and gain.high < 0


def test_guardrails_trip_on_attainment_abandonment_and_cost_per_good():
    rows = rows_of(5)
    for change, figure in (
        (lambda row: replace(row, budget=Budget(ttft=1)), "attainment"),
        (lambda row: replace(row, finish=Finish.CANCELLED), "abandonment"),
        (lambda row: replace(row, nanoseconds=1_500), "cost_per_good"),
    ):
        plan = replace(PLAN, guardrails=(Guardrail(figure),))
        trial = tried(rows, plan, change)
        assert trial.verdict.outcome == Outcome.TRIPPED, figure
        assert tried(rows, plan).verdict.outcome == Outcome.ENDED


def test_a_version_without_good_requests_trips_the_cost_per_good_request():
    """Such pairs were once left out, so the worst of versions was never judged."""
    plan = replace(PLAN, guardrails=(Guardrail("cost_per_good"),))
    missed = tried(rows_of(5), plan, lambda row: replace(row, budget=Budget(ttft=1)))
    assert missed.verdict.outcome == Outcome.TRIPPED
    assert missed.verdict.evidence[0].change > 3
    neither = [replace(each, budget=Budget(ttft=1)) for each in rows_of(5)]
    assert tried(neither, plan).verdict.outcome == Outcome.ENDED
    dearer = tried(neither, plan, lambda row: replace(row, nanoseconds=3_000))
    assert dearer.verdict.outcome == Outcome.TRIPPED


def test_the_guardrails_that_were_not_judged_are_named():
    """One lane had no traffic, and the rows of the other have no device time."""
    rows = [replace(each, nanoseconds=0) for each in rows_of(3)]
    verdict = tried(rows, lanes=("chat", "bulk")).verdict
    assert verdict.outcome == Outcome.ENDED and verdict.why.endswith(
        "no guardrail has tripped; not judged, with fewer than 5 pairs: "
        "cost_per_good of lane chat, all of lane bulk"
    )


def test_a_trial_is_judged_if_each_guardrail_of_a_lane_with_traffic_is():
    rows = rows_of(3)
    assert tried(rows, lanes=("chat", "bulk")).is_judged, "bulk had no traffic"
    assert not tried(rows, replace(PLAN, fewest=99)).is_judged
    assert not Trial(PLAN, ("chat",), 0).is_judged, "there was no traffic"
    few = [*rows, row(len(rows), 290 * SECOND, MS, lane="bulk")]
    assert not tried(few, lanes=("chat", "bulk")).is_judged
    free = [replace(each, nanoseconds=0) for each in rows]
    assert not tried(free).is_judged, "cost_per_good was not"


@pytest.mark.parametrize("seed", range(4))
def test_after_its_longest_time_only_the_control_is_in_force(seed):
    """The last requests still settle. The switch does not wait for the slice's end."""
    trial = Trial(replace(PLAN, longest=299 * SECOND, settle=60 * SECOND, seed=seed), ("chat",), 0)
    assert trial.next_at(298 * SECOND) == 299 * SECOND
    last = 298 * SECOND
    assert trial.candidate_in_force(last) == trial.times.has_candidate(trial.times.place(last))
    for second in range(299, 359):
        trial.tick(second * SECOND, {})
        assert trial.verdict.outcome == Outcome.RUNNING
        assert not trial.candidate_in_force(second * SECOND)
        assert trial.next_at(second * SECOND) > second * SECOND
    trial.tick(359 * SECOND, {})
    assert trial.verdict.outcome == Outcome.ENDED


def test_an_absolute_limit_trips_within_seconds():
    trial = Trial(TrialPlan(seed=2, stop=HardStop(wait=2 * SECOND)), ("chat",), 0)
    place = next(n for n in range(9) if trial.times.has_candidate(n))
    at = trial.times.end(place - 1) + 2 * SECOND
    for n in range(20):
        trial.arrived(f"r{n}", "chat", at, 5)
        trial.ended(row(n, at, MS, finish=Finish.ERROR if n % 2 else Finish.LENGTH))
    trial.tick(at + SECOND, {})
    assert trial.verdict.why.startswith("lane chat: 10 of 20 requests were refused")
    waiting = Trial(TrialPlan(seed=2, stop=HardStop(wait=2 * SECOND)), ("chat",), 0)
    waiting.tick(at, {"chat": at - 2 * SECOND})
    assert waiting.verdict.outcome == Outcome.RUNNING
    waiting.tick(at + 1, {"chat": at - 2 * SECOND})
    assert "has waited 2 s under the candidate, more than 2 s" in waiting.verdict.why


def test_a_wait_under_the_control_does_not_count_against_the_candidate():
    """One request came long before the candidate. The other waits over several slices."""
    trial = Trial(replace(PLAN, slice=6 * SECOND, stop=HardStop(wait=8 * SECOND)), ("chat",), 0)
    place = next(
        n for n in range(1, 40) if [trial.times.has_candidate(n + k) for k in (-1, 0)] == [0, 1]
    )
    begins = trial.times.end(place - 1)
    trial.tick(begins + SECOND, {"chat": begins - 6 * SECOND})
    assert trial.verdict.outcome == Outcome.RUNNING
    came = begins - 2 * SECOND
    later = next(n for n in range(place + 1, 40) if trial.times.has_candidate(n))
    now = trial.times.end(later - 1) + 2 * SECOND
    for at, outcome in ((now, Outcome.RUNNING), (now + 1, Outcome.TRIPPED)):
        trial.tick(at, {"chat": came})
        assert trial.verdict.outcome == outcome
    assert trial.times.with_candidate(came, now) == 8 * SECOND


def test_requests_that_no_version_could_answer_trip_nothing():
    trial = Trial(TrialPlan(seed=2), ("chat",), 0)
    place = next(n for n in range(9) if trial.times.has_candidate(n))
    at = trial.times.end(place - 1) + 2 * SECOND
    for n in range(40):
        trial.arrived(f"r{n}", "chat", at, 5)
        trial.ended(row(n, at, MS, finish=Finish.UNSATISFIABLE))
    trial.tick(at + SECOND, {})
    assert trial.verdict.outcome == Outcome.RUNNING
    assert {FIGURES["attainment"][0](each) for each in trial._past} == {None}


@pytest.mark.parametrize("first", [NEVER, 5])
@pytest.mark.parametrize("own", [(False, False), (False, True), (True, False), (True, True)])
def test_a_deadline_that_the_client_set_itself_trips_no_absolute_limit(own, first):
    trial = Trial(TrialPlan(seed=2), ("chat",), 0)
    place = next(n for n in range(9) if trial.times.has_candidate(n))
    at = trial.times.end(place - 1) + 2 * SECOND
    for n in range(40):
        trial.arrived(f"r{n}", "chat", at, 5, own=own)
        trial.ended(row(n, at, MS, finish=Finish.EXPIRED, first_scheduled=first))
        trial.refused("chat", at, own_start=True)
    trial.tick(at + SECOND, {})
    was_own = own[first != NEVER]
    assert trial.verdict.outcome == (Outcome.RUNNING if was_own else Outcome.TRIPPED)


def test_failures_under_the_control_do_not_count_against_the_candidate():
    trial = Trial(TrialPlan(seed=2), ("chat",), 0)
    place = next(n for n in range(9) if not trial.times.has_candidate(n))
    at = trial.times.end(place - 1) + 2 * SECOND
    for n in range(40):
        trial.arrived(f"r{n}", "chat", at, 5)
        trial.ended(row(n, at, MS, finish=Finish.ERROR))
        trial.refused("chat", at)
    trial.tick(at + SECOND, {})
    assert trial.verdict.outcome == Outcome.RUNNING


def test_a_request_that_still_waits_counts_with_its_wait_so_far():
    """Otherwise a version that starves requests would look good: their rows never come."""
    trial = Trial(replace(PLAN, learning=1, fewest=1), ("chat",), 0)
    end = trial.times.end(1)
    trial.arrived("starved", "chat", end - SECOND, 5)
    (seen,) = trial._slices[1]
    trial.tick(end + PLAN.settle, {"chat": end - SECOND})
    assert (seen.row, seen.waits_until) == (None, end + PLAN.settle)


def test_a_stopped_trial_stays_stopped():
    trial = Trial(PLAN, ("chat",), 0)
    trial.stop("enough")
    trial.stop("again")
    trial.tick(10**15, {})
    assert (trial.verdict.outcome, trial.verdict.why) == (Outcome.STOPPED, "enough")
    assert trial.verdict.as_json()["evidence"][0]["low"] is None


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: TrialPlan(slice=5, wash_out=5), "longer than its wash-out"),
        (lambda: TrialPlan(longest=SECOND), "longest is 1 s, .* one pair of slices at least: 12 s"),
        (lambda: TrialPlan(alpha=1.0), "alpha is a probability"),
        (lambda: TrialPlan(guardrails=()), "one guardrail"),
        (lambda: Guardrail("ttft"), "there is no figure 'ttft'"),
        (lambda: Guardrail("ttft_p95", allowed=-1.0), "allowed is from 0 on"),
        (lambda: HardStop(failing=0.0), "failing is a share"),
        (lambda: HardStop(within=0), "within is a time above 0"),
        (lambda: HardStop(within=NEVER), "within is a time above 0, and has an end"),
        (lambda: TrialPlan(settle=NEVER), "settle has an end"),
        (lambda: Expectation("ttft_p95", "chat", 0.1), "change is below 0"),
        (lambda: Expectation("ttft_p95", "*", -0.1), "expects: lane is the name of one lane"),
        (lambda: Proposal({"lanes": {}}, "", "why"), "an author and a reason"),
        (lambda: Proposal({"lanes": {}}, "me", "why", pressure="much"), "owns the pressure"),
        (
            lambda: Proposal({"lanes": {}}, "me", "why", Expectation("ttft_p95", "chat", -0.1)),
            "there is no lane 'chat'",
        ),
    ],
)
def test_invalid_plans_guardrails_and_proposals_are_refused(make, why):
    with pytest.raises(SettingError, match=why):
        make()


def test_a_proposal_is_restored_from_its_json():
    config = {"engine": {"slots": 4}, "lanes": {"chat": {"ttft": "1s"}}}
    rails, stop = (Guardrail("refusals", "chat", 0.01),), HardStop(wait=9)
    expects = Expectation("ttft_p95", "chat", -0.1)
    made = Proposal(config, "me", "why", expects, "wait", "ops", rails, stop)
    assert Proposal.from_json(made.as_json()) == made
    again = dict(reversed(config.items()))
    assert replace(made, config=again).digest == made.digest, "the order says nothing"
    change = merged(config, {"lanes": {"chat": {"tpot": "9ms"}}, "engine": {"slots": 2}})
    assert differences(config, change) == [
        ("engine.slots", 4, 2),
        ("lanes.chat.tpot", None, "9ms"),
    ]
    assert NEVER not in change.values()
