"""Targets of routes in virtual time: the test says how long each request takes."""

from headway.routing import RouteAnswer, SimulatedTarget
from headway.sim.loop import run

MS = 1_000_000


def target(name, ms, says=None, logprob=0.0, **settings):
    """A target that takes `ms` milliseconds and answers `says`; by default, its own name."""

    def answer(request):
        text = says(request) if callable(says) else says if says is not None else name
        return RouteAnswer(text, text, logprob, 1)

    return SimulatedTarget(name, lambda request: round(ms * MS), answer, **settings)


def decided(make, *requests):
    """Ask a route one request after another. make: the route, from its sink of rows.

    Returns the end of each request (an answer or an error), and the rows.
    """
    rows, ends = [], []

    async def main():
        async with make(rows.append) as route:
            for request in requests:
                try:
                    ends.append(await route.ask(request))
                except Exception as error:
                    ends.append(error)
                await route.settle()

    run(main())
    for row in rows:
        check(row)
    return ends, rows


def check(row):
    """What holds for every row."""
    assert row.finished >= row.arrived
    assert row.winner >= 0 or row.error
    assert row.nanoseconds == sum(each.nanoseconds for each in row.attempts)
    assert [each.id for each in row.attempts] == [
        f"{row.id}.{number}" for number in range(1, len(row.attempts) + 1)
    ]
    for at, each in enumerate(row.attempts):
        assert (each.outcome == "won") == (at == row.winner and not row.error)
        if each.outcome != "skipped":
            assert row.arrived <= each.began <= each.ended


def story(row):
    """The target of each attempt, its reason and its outcome."""
    return [(each.target, str(each.why), str(each.outcome)) for each in row.attempts]
