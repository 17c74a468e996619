"""Fallbacks in virtual time: refusals, errors, lateness, circuits, hedges."""

import asyncio

import pytest

from headway.core.request import NEVER
from headway.errors import DeadlineError, EngineError, PromptError, RefusedError, SettingError
from headway.routing import (
    CircuitSettings,
    Fallback,
    LeastLoaded,
    RouteAnswer,
    RouteRequest,
    SimulatedTarget,
)
from headway.sim.loop import run
from tests.simulated_targets import MS, decided, story, target

B = target("b", 10)
DEAD = [(0, 10**18)]
SECOND = 10**9


class Refusing(SimulatedTarget):
    """Refuses every request, and says when to retry if `after` is set."""

    def __init__(self, name, after):
        super().__init__(name, lambda request: MS, lambda request: RouteAnswer(name, name))
        self.after, self.asked = after, 0

    async def ask(self, request, bill):
        self.asked += 1
        if self.after is None:
            raise RefusedError(f"{self.name} is full", NEVER)
        raise RefusedError(
            f"{self.name} is full",
            round(asyncio.get_running_loop().time() * 1e9) + self.after,
        )


def fallback(*targets, **settings):
    return lambda sink: Fallback(targets, rows=sink, **settings)


def x(timeout=0.0, lane=""):
    return RouteRequest("x", timeout=timeout, lane=lane)


def test_a_refusal_or_an_error_leads_to_the_next_target():
    full, dead = Refusing("full", None), target("dead", 1, fails=DEAD)
    (answer,), (row,) = decided(fallback(full, dead, B), x())
    assert answer.text == "b"
    assert story(row) == [
        ("full", "first", "refused"),
        ("dead", "after_refusal", "failed"),
        ("b", "after_error", "won"),
    ]
    assert row.attempts[2].words == "dead: dead is down"


def test_a_refusal_is_honoured_in_its_lane_until_its_retry_time():
    full = Refusing("full", SECOND)
    decided(fallback(full, B), x(), x(), x(lane="other"), x(lane="other"))
    assert full.asked == 2, "once in each lane"

    async def main():
        async with Fallback([full, B]) as route:
            await route.ask(x())
            await asyncio.sleep(1.1)
            await route.ask(x())
            await asyncio.sleep(1.1)
            await route.ask(x(lane="other"))
            return list(route.not_before)

    assert run(main()) == [("full", "other")], "what is over is forgotten"
    assert full.asked == 5


def test_if_all_targets_refuse_the_error_has_the_earliest_retry_time():
    ends, rows = decided(fallback(Refusing("a", 3 * SECOND), Refusing("b", 2 * SECOND)), x(), x())
    assert all(isinstance(end, RefusedError) for end in ends)
    assert [end.retry_at for end in ends] == [2 * SECOND] * 2
    assert story(rows[1]) == [("a", "retry_later", "skipped"), ("b", "retry_later", "skipped")]
    (end,), _ = decided(fallback(Refusing("a", None)), x())
    assert end.retry_at == NEVER and "every target refused" in str(end)


def test_an_invalid_prompt_asks_no_other_target_and_opens_no_circuit():
    def raising(request):
        raise PromptError("wrong")

    ends, rows = decided(fallback(target("a", 1, raising), B, circuit=CircuitSettings(1)), x(), x())
    assert all(isinstance(end, PromptError) for end in ends)
    assert [len(row.attempts) for row in rows] == [1, 1], "and opens no circuit"


def test_a_target_that_cancels_the_request_has_failed():
    class Cancels(SimulatedTarget):
        async def ask(self, request, bill):
            raise asyncio.CancelledError

    gone = Cancels("gone", lambda request: MS, lambda request: RouteAnswer("gone", "gone"))
    (answer,), (row,) = decided(fallback(gone, B), x())
    assert answer.text == "b" and row.attempts[1].words == "gone: gone has cancelled the request"
    (end,), _ = decided(fallback(gone), x())
    assert isinstance(end, EngineError)


def test_a_timeout_cancels_its_target_and_asks_the_next():
    slow = target("slow", 500)
    (answer,), (row,) = decided(fallback(slow, B, timeout=0.05), x())
    assert answer.text == "b" and row.e2e == 60 * MS
    assert story(row) == [("slow", "first", "late"), ("b", "after_lateness", "won")]
    assert row.attempts[0].nanoseconds == 50 * MS and row.cost == 60 * MS
    (end,), (row,) = decided(fallback(slow, target("b", 90), timeout=(0.05, 0.02)), x())
    assert isinstance(end, DeadlineError) and row.e2e == 70 * MS


def test_a_hedge_keeps_the_late_target_and_takes_the_first_answer():
    (answer,), (row,) = decided(fallback(target("slow", 55), B, timeout=0.05, hedge=True), x())
    assert answer.text == "slow" and row.e2e == 55 * MS
    assert story(row) == [("slow", "first", "won"), ("b", "after_lateness", "lost")]
    (answer,), (row,) = decided(fallback(target("slow", 500), B, timeout=0.05, hedge=True), x())
    assert answer.text == "b" and row.attempts[0].nanoseconds == 60 * MS
    (end,), (row,) = decided(
        fallback(target("slow", 500), target("b", 400), timeout=0.05, hedge=True), x()
    )
    assert isinstance(end, DeadlineError) and row.e2e == 100 * MS
    dying = target("dying", 1, fails=[(50 * MS, SECOND)])
    (answer,), (row,) = decided(fallback(target("slow", 60), dying, timeout=0.05, hedge=True), x())
    assert answer.text == "slow", "the second one failed, and the first one still ran"


def test_a_target_predicted_to_be_late_is_skipped_unless_no_other_is_left():
    (answer,), (row,) = decided(fallback(target("slow", 500), B), x(0.1))
    assert answer.text == "b"
    assert story(row) == [("slow", "no_time", "skipped"), ("b", "after_skip", "won")]
    assert row.is_measured, "nothing was spent on who was passed over"
    believed = target("believed", 20, expected=lambda request: 300 * MS)
    (answer,), (row,) = decided(fallback(target("slow", 500), believed), x(0.1))
    assert answer.text == "believed" and story(row)[-1] == ("believed", "soonest", "won")


def test_a_circuit_opens_after_failures_in_a_row_and_is_tried_again():
    async def main():
        rows = []
        flaky = target("flaky", 10, fails=[(0, 2 * SECOND)])
        settings = CircuitSettings(failures=3, pause=1.0)
        async with Fallback([flaky, B], circuit=settings, rows=rows.append) as route:
            for _ in range(5):
                await route.ask(x())
            await asyncio.sleep(1.0)
            await route.ask(x())  # a probe, which fails
            await route.ask(x())
            await asyncio.sleep(1.5)
            await asyncio.gather(route.ask(x()), route.ask(x()))  # one of them probes
            await route.ask(x())
        return [row.attempts[0] for row in rows]

    first = run(main())
    told = [(str(each.why), str(each.outcome)) for each in first]
    assert told[:3] == [("first", "failed")] * 3
    assert told[3:5] == [("circuit_open", "skipped")] * 2
    assert told[5:7] == [("probe", "failed"), ("circuit_open", "skipped")]
    assert sorted(told[7:9]) == [("circuit_open", "skipped"), ("probe", "won")]
    assert told[9] == ("first", "won")


def test_a_hanging_target_opens_its_circuit_but_too_short_a_deadline_does_not():
    hangs = target("hangs", 10, hangs=DEAD)
    settings = CircuitSettings(failures=2, pause=60)
    ends, rows = decided(fallback(hangs, B, timeout=0.05, circuit=settings), x(), x(), x(), x(0.04))
    assert [row.e2e // MS for row in rows] == [60, 60, 10, 10]
    ends, rows = decided(fallback(hangs, timeout=0.02, circuit=settings), *[x()] * 3)
    assert [type(end) for end in ends] == [DeadlineError, DeadlineError, RefusedError]
    assert ends[2].retry_at > 60 * SECOND
    # Without a timeout, only the caller sets a limit, even one longer than the estimate.
    ends, rows = decided(fallback(hangs, circuit=settings), *[x(0.02)] * 3)
    assert [type(end) for end in ends] == [DeadlineError] * 3
    # A target that was predicted to take 300 ms and had 100 ms has not failed.
    slow = target("slow", 300)
    ends, rows = decided(fallback(slow, circuit=CircuitSettings(1)), x(0.1), x(0.1))
    assert [row.attempts[-1].why for row in rows] == ["soonest", "soonest"]


def test_a_nested_route_that_hangs_opens_its_circuit():
    inner = LeastLoaded([target("hangs", 10, hangs=DEAD, slots=9)], name="inner")
    settings = CircuitSettings(failures=2, pause=60)
    _, rows = decided(fallback(inner, B, timeout=0.05, circuit=settings), x(), x(), x(), x(0.04))
    assert [row.e2e // MS for row in rows] == [59, 59, 10, 10]
    # The caller's deadline comes before the timeout, so the nested route has not failed.
    inner = LeastLoaded([target("hangs", 10, hangs=DEAD, slots=9)], name="inner")
    _, rows = decided(fallback(inner, B, timeout=0.05, circuit=settings), *[x(0.04)] * 3)
    assert [row.attempts[0].outcome for row in rows] == ["late"] * 3


def test_after_a_probe_whose_caller_leaves_the_next_request_probes_again():
    async def main():
        hangs = target("hangs", 10, hangs=[(0, SECOND)])
        settings = CircuitSettings(failures=1, pause=0.5)
        rows = []
        async with Fallback([hangs, B], timeout=0.1, circuit=settings, rows=rows.append) as route:
            await route.ask(x())
            await asyncio.sleep(0.6)
            left = asyncio.create_task(route.ask(x()))
            await asyncio.sleep(0.01)
            left.cancel()
            await asyncio.wait([left])
            await asyncio.sleep(1)
            await route.ask(x())
        return rows

    rows = run(main())
    assert rows[1].error == "the caller left" and story(rows[1]) == [
        ("hangs", "probe", "cancelled")
    ]
    assert story(rows[2]) == [("hangs", "probe", "won")]


def test_without_a_circuit_a_dead_target_is_asked_every_time():
    dead = target("dead", 1, fails=DEAD)
    _, rows = decided(fallback(dead, B, circuit=None), *[x()] * 8)
    assert [row.attempts[0].outcome for row in rows] == ["failed"] * 8
    (end,), _ = decided(fallback(dead), x())
    assert isinstance(end, EngineError)


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: Fallback([B, B]), "each target once"),
        (lambda: Fallback([B], timeout=(1, 2)), "no timeout for 1"),
        (lambda: Fallback([B], timeout=-1), "no timeout for 1"),
        (lambda: Fallback([B, target("c", 1)], hedge=True), "needs a timeout"),
    ],
)
def test_invalid_settings_of_fallbacks_are_refused(make, why):
    with pytest.raises(SettingError, match=why):
        make()
