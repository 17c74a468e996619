"""Rules, LeastLoaded and Cheapest, in virtual time."""

import asyncio

import pytest

from headway.errors import RefusedError, SettingError
from headway.llm.options import Options
from headway.routing import (
    Cheapest,
    Fallback,
    LeastLoaded,
    Price,
    RouteAnswer,
    RouteRequest,
    Rule,
    Rules,
    SimulatedTarget,
)
from headway.routing.targets.simulated import table
from headway.sim.loop import run
from tests.simulated_targets import MS, decided, story, target

SMALL, LARGE = target("small", 10), target("large", 100)


def test_the_first_rule_that_matches_counts():
    rules = [
        Rule(SMALL, lanes=["voice"]),
        Rule(LARGE, least=10, metadata={"tier": "gold"}),
        Rule(SMALL, tenants=["a"], most=3, name="short ones of a"),
        Rule(LARGE, when=lambda request: request.options.max_tokens == 7),
        Rule(SMALL, most=20),
    ]
    requests = [
        RouteRequest("x" * 12, lane="voice", metadata={"tier": "gold"}),
        RouteRequest("x" * 12, metadata={"tier": "gold", "more": "y"}),
        RouteRequest([1, 2, 3], tenant="a"),
        RouteRequest([{"role": "user", "content": "x" * 30}], Options(max_tokens=7)),
        RouteRequest("x" * 20),
        RouteRequest("x" * 21),
    ]
    ends, rows = decided(lambda sink: Rules(rules, rows=sink), *requests)
    assert [each.text for each in ends[:5]] == ["small", "large", "small", "large", "small"]
    words = [row.attempts[0].words for row in rows[:5]]
    assert words == [
        "rule 1: lane voice",
        "rule 2: length 10 or more, tier is gold",
        "rule 3: short ones of a",
        "rule 4: <lambda>",
        "rule 5: length 0 to 20",
    ]
    assert isinstance(ends[5], RefusedError) and "no rule matches" in str(ends[5])
    assert rows[5].attempts == () and rows[5].error == str(ends[5])
    assert (rows[0].lane, rows[2].tenant) == ("voice", "a")


def test_an_invalid_rule_is_refused():
    with pytest.raises(SettingError, match="lists, not one name"):
        Rule(SMALL, lanes="voice")
    with pytest.raises(SettingError, match="from 5 to 3"):
        Rule(SMALL, least=5, most=3)


def test_least_loaded_compares_waits_then_request_counts_then_positions():
    picked = []

    async def main():
        slow, fast = target("slow", 100, slots=2), target("fast", 40)
        rows = []
        async with LeastLoaded([slow, fast], rows=rows.append) as route:
            tasks = []
            for _ in range(5):
                tasks.append(asyncio.create_task(route.ask(RouteRequest("x"))))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            picked.extend(row.attempts[0].target for row in sorted(rows, key=lambda r: r.id))
            assert all(row.attempts[0].why == "least_loaded" for row in rows)
            assert route.load == (0, 0)

    run(main())
    # 1: both are idle, so the first. 2: fast has fewer. 3: slow has a free slot, fast a wait.
    # 4: neither has a free slot, and the waits are 100 and 40 ms. 5: 100 and 80 ms.
    assert picked == ["slow", "fast", "slow", "fast", "fast"]


def priced(name, ms, price, **settings):
    return target(name, ms, price=Price(price), **settings)


def test_cheapest_picks_the_cheapest_target_that_keeps_the_deadline():
    targets = [priced("dear", 10, 50), priced("cheap", 100, 1), priced("middle", 50, 3)]
    make = lambda sink: Cheapest(targets, rows=sink)  # noqa: E731
    ends, rows = decided(
        make,
        RouteRequest("x"),
        RouteRequest("x", timeout=0.08),
        RouteRequest("x", timeout=0.02),
        RouteRequest("x", timeout=0.005),
    )
    assert [each.text for each in ends[:3]] == ["cheap", "middle", "dear"]
    assert story(rows[3]) == [("dear", "soonest", "late")]
    assert [row.attempts[0].cost for row in rows[:3]] == [100 * MS, 150 * MS, 500 * MS]
    assert rows[0].saved == 50 * MS and rows[2].saved == -350 * MS  # compared with middle alone
    assert rows[0].baseline.basis == "estimated" and rows[1].baseline.basis == "measured"


def test_a_budget_counts_like_a_deadline_but_drops_no_request():
    targets = [priced("cheap", 100, 1), priced("dear", 10, 50)]
    ends, _ = decided(lambda sink: Cheapest(targets, budget=0.05, rows=sink), RouteRequest("x"))
    assert ends[0].text == "dear"
    ends, _ = decided(lambda sink: Cheapest(targets, budget=0.001, rows=sink), RouteRequest("x"))
    assert ends[0].text == "dear"


def test_cheapest_passes_over_a_cheap_target_whose_load_makes_it_too_late():
    async def main():
        targets = [priced("cheap", 40, 1), priced("dear", 10, 50)]
        rows = []
        async with Cheapest(targets, rows=rows.append) as route:
            asked = [route.ask(RouteRequest(str(n), timeout=0.1)) for n in range(5)]
            answers = []
            for each in asked:
                answers.append(asyncio.create_task(each))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            return [answer.text for answer in await asyncio.gather(*answers)]

    # Two on the cheap target end after 40 and 80 ms, within 99. A third would take 120 ms.
    assert run(main()) == ["cheap", "cheap", "dear", "dear", "dear"]


def test_an_unknown_target_is_asked_if_no_known_target_is_in_time():
    class New(SimulatedTarget):
        def estimate(self, request):
            return Fallback([SMALL]).estimate(request)  # a route that has answered nothing

    new = New("new", lambda request: 5 * MS, lambda request: RouteAnswer("new", "new"))
    ends, rows = decided(
        lambda sink: Cheapest([target("slow", 90), new], rows=sink),
        RouteRequest("x"),
        RouteRequest("x", timeout=0.05),
    )
    assert [each.text for each in ends] == ["slow", "new"]
    assert rows[1].attempts[0].words == "nothing is known of it yet"
    assert rows[0].baseline.basis == "unknown" and rows[0].saved == 0


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: Fallback([]), "needs a target"),
        (lambda: LeastLoaded([target("a", 1), target("a", 2)]), "two targets have the name 'a'"),
        (lambda: Cheapest([SMALL], budget=-1), "budget of -1"),
        (lambda: Price(-1.0), "no price"),
        (lambda: RouteRequest("x", timeout=-1), "timeout of -1"),
    ],
)
def test_invalid_settings_of_routes_and_requests_are_refused(make, why):
    with pytest.raises(SettingError, match=why):
        make()


def test_a_price_is_by_tokens_or_by_device_time():
    assert Price(0, prompt=2.0, answer=8.0).cost(10**9, 1_000, 500) == 6_000_000  # that is 0.006
    assert Price().cost(123) == 123


def test_a_simulated_target_may_take_its_times_from_a_recorded_table():
    takes = table([10 * MS, 30 * MS], lambda request: request.length)
    recorded = SimulatedTarget("recorded", takes, lambda request: RouteAnswer(None))
    _, rows = decided(
        lambda sink: Fallback([recorded], rows=sink), RouteRequest("x"), RouteRequest("xy")
    )
    assert [row.e2e for row in rows] == [30 * MS, 10 * MS]
    with pytest.raises(SettingError, match="needs one at least"):
        table([], len)
