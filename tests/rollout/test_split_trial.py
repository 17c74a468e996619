"""A trial of two engines over made-up rows: differences of engines cancel, slower versions trip."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from headway.core.request import Finish
from headway.errors import SettingError
from headway.rollout.control import VirtualQueue
from headway.rollout.plan import HardStop, TrialPlan
from headway.rollout.switchback import SECOND, Switchback
from headway.rollout.trial import Outcome, Trial
from tests.rollout.test_trial import MS, RATE, row, slower

PLAN = TrialPlan(longest=180 * SECOND, settle=20 * SECOND, learning=4, fewest=5, engines=2)
SLOW = 1.4  # how much slower the second engine is, whatever its version


@cache
def rows_of(seed, seconds=180):
    """Bursts, divided by chance between two engines, one slower: pairs of a row and its engine."""
    random, queue, at, found = Random(seed), VirtualQueue(RATE), 0, []
    while at < seconds * SECOND:
        busy = (at // SECOND) % 4 < 1
        at += round(random.expovariate(80 if busy else 8) * SECOND)
        tokens, engine = random.randrange(20, 100), random.randrange(2)
        wait = 2.718 ** queue.arrive(at, tokens, engine) * random.uniform(0.8, 1.25)
        wait *= SLOW if engine else 1
        found.append((row(len(found), at, round(wait * SECOND), prompt=tokens), engine))
    return tuple(found)


def tried(seed, change=lambda row: row, plan=PLAN, times=None):
    """The trial's end. change: what the candidate does to a row."""
    trial, rows = Trial(plan, ("chat",), 0), rows_of(seed)
    trial.times = times or trial.times
    happened = [(each.arrived, 0, n) for n, (each, _) in enumerate(rows)]
    happened += [(each.finished, 1, n) for n, (each, _) in enumerate(rows)]
    happened += [(second * SECOND, 2, 0) for second in range(1, 210)]
    for at, kind, n in sorted(happened):
        each, engine = rows[n]
        if kind == 0:
            trial.arrived(each.id, each.lane, at, each.prompt, engine)
        elif kind == 1:
            place = trial.times.place(each.arrived)
            trial.ended(change(each) if trial.times.has_candidate(place, engine) else each)
        else:
            trial.tick(at, {}, {})
    return trial


def test_two_engines_never_have_the_same_version():
    times = Switchback(0, 10, 3, seed=1)
    for place in range(100):
        assert times.has_candidate(place, 0) != times.has_candidate(place, 1)
        if place % 2:
            assert times.has_candidate(place, 1) == times.has_candidate(place - 1, 0)


class Fixed(Switchback):
    """As if the second engine always had the candidate."""

    def has_candidate(self, place, engine=0):
        return engine == 1


def test_a_slower_machine_is_not_taken_for_a_slower_version():
    """It would be if each version stayed on its own engine."""
    for seed in range(2):
        found = tried(1, plan=replace(PLAN, seed=seed))
        assert found.verdict.outcome == Outcome.ENDED, found.verdict.why
    blamed = tried(1, times=Fixed(0, PLAN.slice, PLAN.wash_out, 0))
    assert blamed.verdict.outcome == Outcome.TRIPPED


def test_a_slower_version_is_taken_back_though_one_machine_is_slower():
    trial = tried(2, slower(1.3))
    assert trial.verdict.outcome == Outcome.TRIPPED
    assert "of lane chat is worse" in trial.verdict.why
    (found,) = [each for each in trial.verdict.evidence if each.figure == "ttft_p95"]
    assert 0.1 < found.change < 0.5


def test_absolute_limits_apply_only_to_the_engine_that_has_the_candidate():
    limits = HardStop(wait=2 * SECOND)
    for engine in (0, 1):
        trial = Trial(replace(PLAN, stop=limits), ("chat",), 0)
        at = trial.times.end(3) + 5 * SECOND // 2
        lines = [{}, {}]
        lines[engine] = {"chat": at - 5 * SECOND // 2}
        trial.tick(at, *lines)
        tripped = trial.verdict.outcome == Outcome.TRIPPED
        assert tripped == trial.times.has_candidate(4, engine)
        failing = Trial(PLAN, ("chat",), 0)
        for n in range(40):
            failing.arrived(f"r{n}", "chat", at, 5, engine)
            failing.ended(row(n, at, MS, finish=Finish.ERROR))
        failing.tick(at + SECOND, {}, {})
        assert (failing.verdict.outcome == Outcome.TRIPPED) == failing.times.has_candidate(
            4, engine
        )


def test_more_than_two_engines_are_not_compared():
    with pytest.raises(SettingError, match="two engines are compared, not 3"):
        replace(PLAN, engines=3)
