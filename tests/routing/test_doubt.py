"""Wrong or outdated predictions: routes leave a target that became slow, and come back to it.

In virtual time.
"""

import asyncio

import pytest

from headway.core.request import NEVER
from headway.errors import DeadlineError, PromptError
from headway.routing import (
    Cheapest,
    Fallback,
    LeastLoaded,
    Price,
    RouteAnswer,
    RouteRequest,
    SimulatedTarget,
)
from headway.routing.targets.doubt import Doubt
from headway.routing.targets.learned import Learned
from headway.routing.targets.target import Estimate
from headway.sim.loop import run
from tests.simulated_targets import MS, check, story, target

DEAD = [(0, 10**18)]


class Learning(SimulatedTarget):
    """Takes `ms` milliseconds, which may change, and predicts from the times of its answers."""

    def __init__(self, name, ms, price=1.0, **settings):
        says = RouteAnswer(name, name)
        takes = lambda request: round(self.ms * MS)  # noqa: E731
        super().__init__(name, takes, lambda request: says, price=Price(price), **settings)
        self.ms, self.learned, self.error, self.asked = ms, Learned(), None, 0

    def estimate(self, request):
        return self.learned.estimate(1, 0)

    async def ask(self, request, bill):
        self.asked += 1
        if self.error:
            raise self.error
        began = asyncio.get_running_loop().time()
        answer = await super().ask(request, bill)
        span = round((asyncio.get_running_loop().time() - began) * 1e9)
        self.learned.see(1, span, bill.nanoseconds, bill.cost)
        return answer


class Rig:
    """A route, asked one request after another."""

    def __init__(self, make):
        self.rows = []
        self.route = make(self.rows.append)

    async def ask(self, count=1, timeout=2.0):
        """Returns how often each target answered. A missed deadline counts as "late"."""
        ends = {}
        for _ in range(count):
            try:
                end = (await self.route.ask(RouteRequest("x", timeout=timeout))).target
            except DeadlineError:
                end = "late"
            finally:
                await self.route.settle()
                check(self.rows[-1])
            ends[end] = ends.get(end, 0) + 1
        return ends


def cheapest(*targets, **settings):
    return Rig(lambda sink: Cheapest(targets, rows=sink, **settings))


async def slowed(rig, cheap):
    """The cheap target becomes too slow, and the route leaves it."""
    assert await rig.ask(10) == {"cheap": 10}
    cheap.ms = 400
    await rig.ask(100)
    assert await rig.ask() == {"dear": 1}


def test_cheapest_comes_back_to_a_target_that_has_recovered():
    async def main():
        cheap, dear = Learning("cheap", 10, 0.1), Learning("dear", 20)
        rig = cheapest(cheap, dear, budget=0.1)
        await slowed(rig, cheap)
        cheap.ms = 10
        asked = cheap.asked
        assert await rig.ask(100) == {"dear": 100} and cheap.asked == asked
        await asyncio.sleep(10)
        assert await rig.ask(100) == {"cheap": 100}
        return rig.rows[-100:-98]

    probe, after = run(main())
    assert story(probe) == [("cheap", "probe", "won")]
    assert story(after) == [("cheap", "cheapest", "won")]


def test_a_probe_of_a_slow_target_delays_its_request_no_longer_than_the_budget():
    async def main():
        cheap, dear = Learning("cheap", 10, 0.1), Learning("dear", 20)
        rig = cheapest(cheap, dear, budget=0.1)
        await slowed(rig, cheap)
        await asyncio.sleep(10)
        assert await rig.ask(2) == {"dear": 2}
        return rig.rows[-2:]

    probe, after = run(main())
    assert story(probe) == [("cheap", "probe", "lost"), ("dear", "cheapest", "won")]
    assert 90 * MS < probe.e2e <= 100 * MS
    assert story(after) == [("dear", "cheapest", "won")] and after.e2e == 20 * MS


def test_cheapest_leaves_a_target_slower_than_every_deadline_and_comes_back():
    async def main():
        cheap, dear = Learning("cheap", 100, 0.1, slots=9), Learning("dear", 200)
        rig = cheapest(cheap, dear)
        assert await rig.ask(3) == {"cheap": 3}
        assert await rig.ask(1, timeout=0.01) == {"late": 1}, "as predicted: it says nothing"
        cheap.ms = 5_000
        assert await rig.ask(5) == {"late": 5}
        assert await rig.ask(30) == {"dear": 30}
        assert await rig.ask(1, timeout=9.0) == {"cheap": 1}, "there is time enough for it"
        assert await rig.ask(5) == {"late": 5}
        await asyncio.sleep(10)
        assert await rig.ask(30) == {"dear": 30}, "one of them probes it in vain"
        cheap.ms = 100
        await asyncio.sleep(10)
        assert await rig.ask(30) == {"cheap": 30}

    run(main())


def test_cheapest_leaves_a_target_that_has_never_answered():
    async def main():
        hangs = Learning("hangs", 10, slots=99, hangs=DEAD)
        rig = cheapest(hangs, Learning("well", 20))
        assert await rig.ask(8) == {"late": 5, "well": 3}

    run(main())


def test_a_request_whose_probe_fails_asks_the_best_at_once():
    async def main():
        cheap, dear = Learning("cheap", 10, 0.1), Learning("dear", 20)
        rig = cheapest(cheap, dear, budget=0.1)
        await slowed(rig, cheap)
        await asyncio.sleep(10)
        cheap.error = ValueError("broken")
        assert await rig.ask() == {"dear": 1}
        await asyncio.sleep(10)
        cheap.error = PromptError("the caller's own fault")
        with pytest.raises(PromptError):
            await rig.ask()
        return rig.rows[-2]

    row = run(main())
    assert story(row) == [("cheap", "probe", "failed"), ("dear", "cheapest", "won")]
    assert row.e2e == 20 * MS


def test_a_probe_is_the_answer_if_the_best_one_fails_beside_it():
    async def main():
        cheap, dear = Learning("cheap", 10, 0.1), Learning("dear", 20)
        rig = cheapest(cheap, dear, budget=0.1)
        await slowed(rig, cheap)
        await asyncio.sleep(10)
        dear.error = ValueError("broken")
        assert await rig.ask() == {"cheap": 1}
        await asyncio.sleep(10)
        cheap.error = ValueError("broken, too")
        with pytest.raises(ValueError, match="broken"):
            await rig.ask()
        return rig.rows[-2]

    row = run(main())
    assert story(row) == [("cheap", "probe", "won"), ("dear", "cheapest", "failed")]
    assert row.e2e == 400 * MS


def test_a_target_that_became_dearer_is_probed_but_one_always_dearer_is_not():
    async def main():
        cheap, dear = Learning("cheap", 10, 0.5), Learning("dear", 20)
        rig = cheapest(cheap, dear)
        assert await rig.ask(3, timeout=0) == {"cheap": 3}
        cheap.ms = 400
        assert await rig.ask(9, timeout=0) == {"cheap": 9}, "it is still the only one known"
        assert await rig.ask(1, timeout=0.03) == {"dear": 1}
        assert await rig.ask(9, timeout=0) == {"dear": 9}, "the cheap one costs more by now"
        cheap.ms = 10
        await asyncio.sleep(10)
        assert await rig.ask(9, timeout=0) == {"cheap": 9}
        asked = dear.asked
        await asyncio.sleep(20)
        assert await rig.ask(9, timeout=0) == {"cheap": 9} and dear.asked == asked

    run(main())


def test_a_fallback_comes_back_to_a_target_that_has_recovered():
    async def main():
        first, second = Learning("first", 10), Learning("second", 20)
        rig = Rig(lambda sink: Fallback([first, second], rows=sink))
        assert await rig.ask(10) == {"first": 10}
        first.ms = 500
        assert await rig.ask(60) == {"first": 60}
        assert await rig.ask(10, timeout=0.3) == {"second": 10}
        await asyncio.sleep(10)
        assert await rig.ask(2, timeout=0.3) == {"second": 2}
        slow, passed = rig.rows[-2:]
        first.ms = 10
        await asyncio.sleep(10)
        assert await rig.ask(9, timeout=0.3) == {"first": 9}
        return slow, passed, rig.rows[-9]

    slow, passed, well = run(main())
    assert story(slow) == [("first", "probe", "lost"), ("second", "after_lateness", "won")]
    assert 290 * MS < slow.e2e < 300 * MS
    assert story(passed) == [("first", "no_time", "skipped"), ("second", "after_skip", "won")]
    assert story(well) == [("first", "probe", "won")]


def test_a_fallbacks_probe_has_its_own_timeout_and_leaves_time_to_an_unknown_target():
    async def main(timeout):
        first, second = Learning("first", 500), Learning("second", 20)
        rig = Rig(lambda sink: Fallback([first, second], timeout=timeout, rows=sink))
        first.learned.see(1, 500 * MS, 0, 0)
        await rig.ask(1, timeout=0.3)
        second.learned = Learned()
        await asyncio.sleep(10)
        assert await rig.ask(1, timeout=0.3) == {"second": 1}
        return rig.rows[-1]

    row = run(main((0, 0)))
    assert story(row) == [("first", "probe", "lost"), ("second", "after_lateness", "won")]
    assert 165 * MS < row.e2e < 170 * MS, "half of the time, and 20 ms"
    row = run(main((0.1, 0)))
    assert story(row) == [("first", "probe", "late"), ("second", "after_lateness", "won")]
    assert row.e2e == 120 * MS


def test_a_probe_goes_on_alone_if_no_other_target_can_be_asked():
    async def main():
        first, second = Learning("first", 200), Learning("second", 500)
        rig = Rig(lambda sink: Fallback([first, second], rows=sink))
        first.learned.see(1, 600 * MS, 0, 0)
        second.learned.see(1, 500 * MS, 0, 0)
        assert await rig.ask(1, timeout=0.3) == {"late": 1}, "the soonest"
        await asyncio.sleep(10)
        assert await rig.ask(9, timeout=0.3) == {"first": 9}
        return rig.rows[1]

    row = run(main())
    assert story(row)[0] == ("first", "probe", "won") and row.e2e == 200 * MS


def test_a_target_that_says_it_is_away_is_not_probed():
    class Away(Learning):
        def estimate(self, request):
            return Estimate(likely=NEVER - 1, surely=NEVER + 1)

    async def main():
        away, well = Away("away", 10), Learning("well", 20)
        rigs = cheapest(away, well), Rig(lambda sink: Fallback([away, well], rows=sink))
        for rig in rigs:
            await rig.ask(2)
            await asyncio.sleep(20)
            assert await rig.ask(2) == {"well": 2}
        assert away.asked == 0

    run(main())


def test_a_late_target_is_believed_to_be_slower_than_its_longest_late_attempt():
    doubt, found = Doubt(), Estimate(5 * MS, 6 * MS)
    for span in (10, 200, 30, 20):
        doubt.late(span * MS)
    assert doubt.believed(found) == found, "four may be chance"
    doubt.late(10 * MS)
    assert doubt.believed(found) == Estimate(220 * MS, 220 * MS)
    doubt.answered()
    assert doubt.believed(found) == found


def test_an_old_prediction_is_forgotten_only_for_a_clearly_faster_answer():
    async def main():
        learned = Learned()
        for at in range(20):
            learned.see(1, (100 + at % 2 * 20) * MS, 5, 5)
        near = learned.estimate(1, 0)
        learned.see(1, 20 * MS, 1, 1)
        recent = learned.estimate(1, 0)
        await asyncio.sleep(10)
        learned.see(1, 100 * MS, 1, 1)
        usual = learned.estimate(1, 0)
        await asyncio.sleep(10)
        learned.see(1, 20 * MS, 1, 1)
        return near, recent, usual, learned.estimate(1, 0)

    near, recent, usual, anew = run(main())
    assert 100 * MS < near.likely < 120 * MS and 90 * MS < recent.likely < near.likely
    assert 90 * MS < usual.likely < 120 * MS
    assert anew == Estimate(20 * MS, 20 * MS, 1, 1)


@pytest.mark.parametrize("kind", [LeastLoaded, Cheapest])
def test_a_fallback_opens_the_circuit_of_a_nested_route_whose_target_is_down(kind):
    async def main(**outages):
        down, other = target("down", 10, slots=99, **outages), target("other", 50)
        inner = kind([down, target("up", 10, price=Price(9))], name="inner")
        rows = []
        async with Fallback([inner, other], timeout=(1, 0), rows=rows.append) as route:
            answers = [(await route.ask(RouteRequest("x"))).text for _ in range(8)]
        return answers, rows

    answers, rows = run(main(fails=DEAD))
    assert answers == ["other"] * 8 and story(rows[7])[0] == ("inner", "circuit_open", "skipped")
    answers, rows = run(main(hangs=DEAD))
    assert answers == ["other"] * 8 and story(rows[7])[0] == ("inner", "circuit_open", "skipped")
    assert [row.e2e // MS for row in rows] == [1_049] * 5 + [50] * 3
