"""Streams of routes in virtual time: the target is chosen until the first piece, and then kept."""

import asyncio

import pytest

from headway.core.request import NEVER
from headway.errors import DeadlineError, EngineError
from headway.routing import Fallback, RouteRequest, SimulatedTarget
from headway.sim.loop import run
from tests.simulated_targets import MS, check, story


class Speaking(SimulatedTarget):
    """Streams its name by letters. first, each: milliseconds for the first and for each other."""

    streams = True

    def __init__(self, name, first, each=10, breaks=NEVER):
        super().__init__(name, lambda request: first * MS, lambda request: None)
        self.first, self.each, self.breaks, self.open = first, each, breaks, 0

    async def stream(self, request, bill):
        limit = None if request.deadline == NEVER else request.deadline / 1e9
        said = 0
        self.open += 1
        try:
            for at, letter in enumerate(self.name):
                async with asyncio.timeout_at(limit):
                    await asyncio.sleep((self.each if at else self.first) / 1e3)
                if at == self.breaks:
                    raise EngineError(f"{self.name} broke")
                said += 1
                yield letter
        finally:
            self.open -= 1
            bill.close(said, said)


def told(*targets, timeout=0.0, **settings):
    """The pieces of a fallback, with the type of its error as the last one, and its row."""
    rows, pieces = [], []

    async def main():
        async with Fallback(targets, rows=rows.append, **settings) as route:
            try:
                async for piece in route.stream(RouteRequest("x", timeout=timeout)):
                    pieces.append(piece)
            except Exception as error:
                pieces.append(type(error))
        assert [each.open for each in targets] == [0] * len(targets), "every generator is closed"

    run(main())
    check(rows[0])
    return pieces, rows[0]


def test_another_target_is_chosen_until_the_first_piece():
    pieces, row = told(Speaking("broken", 10, breaks=0), Speaking("ab", 10))
    assert pieces == ["a", "b"]
    assert story(row) == [("broken", "first", "failed"), ("ab", "after_error", "won")]
    pieces, row = told(Speaking("slow", 500), Speaking("ab", 10))
    assert pieces == list("slow") and row.e2e == 530 * MS


def test_a_timeout_applies_only_to_the_first_piece():
    rows, pieces = [], []

    async def main():
        targets = [Speaking("steady", 40, each=40), Speaking("b", 10)]
        async with Fallback(targets, timeout=0.05, rows=rows.append) as route:
            async for piece in route.stream(RouteRequest("x")):
                pieces.append(piece)

    run(main())
    assert pieces == list("steady") and story(rows[0]) == [("steady", "first", "won")]


def test_no_other_target_is_asked_after_the_first_piece():
    pieces, row = told(Speaking("abc", 10, breaks=2), Speaking("z", 10))
    assert pieces == ["a", "b", EngineError]
    assert story(row) == [("abc", "first", "failed")] and row.winner == 0
    assert row.error == "abc broke" and row.nanoseconds == 2


def test_a_deadline_ends_a_stream():
    pieces, row = told(Speaking("abcdef", 10, each=20), timeout=0.06)
    assert pieces == ["a", "b", "c", DeadlineError]
    assert row.finished <= row.deadline and story(row) == [("abcdef", "first", "late")]


def test_a_targets_own_deadline_error_reaches_the_caller_of_a_stream():
    class Late(Speaking):
        async def stream(self, request, bill):
            yield "a"
            raise DeadlineError("the target's own deadline")

    async def main():
        async with Fallback([Late("late", 10)]) as route:
            async for _ in route.stream(RouteRequest("x")):
                pass

    with pytest.raises(DeadlineError, match="the target's own deadline"):
        run(main())


def test_the_hedged_stream_with_the_first_piece_wins_and_the_other_is_closed():
    rows, pieces = [], []
    late, quick = Speaking("late", 60), Speaking("quick", 10)

    async def main():
        async with Fallback([late, quick], timeout=0.05, hedge=True, rows=rows.append) as route:
            async for piece in route.stream(RouteRequest("x")):  # both are due at 60 ms
                pieces.append(piece)

    run(main())
    assert "".join(pieces) == "late" and [late.open, quick.open] == [0, 0]
    assert story(rows[0]) == [("late", "first", "won"), ("quick", "after_lateness", "lost")]
    check(rows[0])


def test_a_loser_that_speaks_as_the_winner_is_chosen_is_closed():
    rows, pieces = [], []
    follower, leader = Speaking("f", 0), Speaking("leader", 10)
    spoken = asyncio.Event()

    async def following(request, bill):
        follower.open += 1
        try:
            await spoken.wait()
            yield "f"
        finally:
            follower.open -= 1
            bill.close(1, 1)

    async def leading(request, bill):
        async for piece in Speaking.stream(leader, request, bill):
            asyncio.get_running_loop().call_soon(spoken.set)  # the follower is a turn behind
            yield piece

    follower.stream, leader.stream = following, leading

    async def main():
        targets, timeouts = [follower, leader], [0.05, 9]
        async with Fallback(targets, timeout=timeouts, hedge=True, rows=rows.append) as route:
            async for piece in route.stream(RouteRequest("x")):
                pieces.append(piece)

    run(main())
    assert "".join(pieces) == "leader" and [follower.open, leader.open] == [0, 0]
    assert story(rows[0]) == [("f", "first", "lost"), ("leader", "after_lateness", "won")]
    check(rows[0])


def test_an_empty_stream_has_no_pieces():
    pieces, row = told(Speaking("", 10))
    assert pieces == [] and row.winner == 0 and not row.error


def test_an_exception_of_the_row_sink_does_not_reach_the_caller():
    heard = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: heard.append(str(context["exception"]))
        )

        def sink(row):
            raise RuntimeError("the sink is broken")

        async with Fallback([Speaking("ab", 1)], rows=sink) as route:
            return [piece async for piece in route.stream(RouteRequest("x"))]

    assert run(main()) == ["a", "b"] and heard == ["the sink is broken"]


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_caller_that_leaves_a_stream_closes_its_target(pieces):
    rows, speaking = [], Speaking("abc", 10)

    async def main():
        async with Fallback([speaking], rows=rows.append) as route:
            stream = route.stream(RouteRequest("x"))
            for _ in range(pieces):
                await anext(stream)
            await stream.aclose()

    run(main())
    assert rows[0].error == "the caller left" and story(rows[0]) == [("abc", "first", "cancelled")]
    assert speaking.open == 0 and rows[0].nanoseconds == pieces
