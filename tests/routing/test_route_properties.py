"""Any route over any targets: requests end once, losers are cancelled, and the accounts balance."""

import asyncio

from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.request import NEVER
from headway.errors import RefusedError
from headway.routing import (
    Agreed,
    Best,
    Cascade,
    Cheapest,
    CircuitSettings,
    Confident,
    Ensemble,
    Fallback,
    LeastLoaded,
    RouteAnswer,
    RouteRequest,
    Rule,
    Rules,
    SimulatedTarget,
    Valid,
)
from headway.sim.loop import run
from tests.simulated_targets import MS, check


class Spied(SimulatedTarget):
    """Adds up its bills, refuses some requests, and knows which are still being served."""

    def __init__(self, name, says, **settings):
        ms, refuses, guess = says
        super().__init__(
            name,
            lambda request: (ms + len(str(request.input))) * MS,
            lambda request: RouteAnswer(name, f"{name[0]}{request.input}", -ms / 10),
            expected=lambda request: guess * MS,
            **settings,
        )
        self.spent, self.refuses, self.number = 0, refuses, 0
        self.serving = set()  # ids of the requests that wait or are served

    async def ask(self, request, bill):
        self.number += 1
        if self.refuses and self.number % self.refuses == 0:
            again = round(asyncio.get_running_loop().time() * 1e9) + 5 * MS
            raise RefusedError("no", again if self.number % 2 else NEVER)
        self.serving.add(request.id)
        try:
            return await super().ask(request, bill)
        finally:
            self.serving.remove(request.id)
            self.spent += bill.nanoseconds


outages = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 100)).map(
        lambda pair: (pair[0] * MS, (pair[0] + pair[1]) * MS)
    ),
    max_size=2,
)
leaf = st.fixed_dictionaries(
    {
        "says": st.tuples(st.integers(1, 40), st.integers(0, 4), st.integers(1, 60)),
        "slots": st.integers(1, 3),
        "max_waiting": st.integers(0, 4),
        "hangs": outages,
        "fails": outages,
    }
)
judges = st.sampled_from(
    [Confident(-1.5), Agreed(2), Valid(lambda answer: len(answer.text) % 2 == 0)]
)
kinds = st.sampled_from(["rules", "loaded", "cheapest", "cascade", "ensemble", "fallback"])


@st.composite
def plans(draw, depth=2):
    """A route as data: its kind, its settings, its targets."""
    if not depth or draw(st.booleans()):
        return draw(leaf)
    count = draw(st.integers(2, 3))
    return {
        "kind": draw(kinds),
        "targets": [draw(plans(depth=depth - 1)) for _ in range(count)],
        "judge": draw(judges),
        "speculate": draw(st.booleans()),
        "best_effort": draw(st.booleans()),
        "quorum": draw(st.integers(1, count)),
        "best": draw(st.booleans()),
        "timeout": draw(st.sampled_from([0.0, 0.02])),
        "hedge": draw(st.booleans()),
        "circuit": draw(st.booleans()),
    }


def built(plan, name, leaves, rows):
    """The targets of a plan."""
    if "kind" not in plan:
        leaves.append(Spied(name, **plan))
        return leaves[-1]
    targets = [
        built(each, f"{name}{number}", leaves, rows) for number, each in enumerate(plan["targets"])
    ]
    common = {"name": name, "rows": rows.append}
    match plan["kind"]:
        case "rules":
            rules = [Rule(targets[0], lanes=["odd"]), *[Rule(each) for each in targets[1:]]]
            return Rules(rules, **common)
        case "loaded":
            return LeastLoaded(targets, **common)
        case "cheapest":
            return Cheapest(targets, budget=plan["timeout"], **common)
        case "cascade":
            extra = {"speculate": plan["speculate"], "best_effort": plan["best_effort"]}
            return Cascade(targets, plan["judge"], **extra, **common)
        case "ensemble":
            chooser = [Best()] if plan["best"] else []
            return Ensemble(targets, *chooser, quorum=plan["quorum"], **common)
    circuit = CircuitSettings(2, 0.05) if plan["circuit"] else None
    hedge = plan["hedge"] and plan["timeout"] > 0
    return Fallback(targets, timeout=plan["timeout"], hedge=hedge, circuit=circuit, **common)


requests = st.lists(
    st.tuples(
        st.integers(0, 60),  # milliseconds after the previous request
        st.sampled_from([0, 3, 20, 50, 200]),  # milliseconds until its deadline; 0: 2 s
        st.sampled_from([None, None, None, 0, 5, 30]),  # ms until its caller leaves
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=80)
@given(st.data(), requests)
def test_every_request_ends_once_and_the_accounts_balance(data, asked):
    plan = data.draw(plans().filter(lambda plan: "kind" in plan))
    leaves, rows, ends = [], [], {}
    route = built(plan, "t", leaves, rows)

    async def call(number, timeout, leave):
        request = RouteRequest(
            "x" * number,
            lane="odd" if number % 2 else "",
            timeout=(timeout or 2_000) / 1e3,
            id=f"r{number}",
        )
        task = asyncio.create_task(route.ask(request))
        if leave is not None:
            await asyncio.sleep(leave / 1e3)
            task.cancel()
        await asyncio.wait([task])
        assert number not in ends
        ends[number] = asyncio.CancelledError() if task.cancelled() else task.exception()
        if ends[number] is None:
            ends[number] = task.result()
        for _ in range(20):  # turns of the loop, in which each level passes a cancel on
            await asyncio.sleep(0)
        own = [id for each in leaves for id in each.serving if id.split(".")[0] == f"r{number}"]
        assert own == [], "every loser is cancelled at once"

    async def main():
        calls = []
        for number, (gap, timeout, leave) in enumerate(asked):
            await asyncio.sleep(gap / 1e3)
            calls.append(asyncio.create_task(call(number, timeout, leave)))
        await asyncio.gather(*calls)
        await route.settle()
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        return [each.load.outstanding for each in leaves]

    assert set(run(main())) == {0}
    assert set(ends) == set(range(len(asked)))
    own = {row.id: row for row in rows}
    assert len(own) == len(rows), "one row for each request of each route"
    top = [row for row in rows if row.route == "t"]
    # A caller that leaves before the route has begun has no row.
    for number, end in ends.items():
        row = own.get(f"r{number}")
        assert row is not None or isinstance(end, asyncio.CancelledError)
        if row is None:
            continue
        check(row)
        assert row.finished <= row.deadline, "kept to the nanosecond, in virtual time"
        assert (row.winner >= 0) == isinstance(end, RouteAnswer) != bool(row.error)
        for each in row.attempts:
            event(f"{each.why} {each.outcome}")
    for row in rows:
        for each in row.attempts:
            if nested := own.get(each.id):
                sums = nested.nanoseconds, nested.cost
                assert (each.nanoseconds, each.cost) == sums
    assert sum(row.nanoseconds for row in top) == sum(each.spent for each in leaves)
