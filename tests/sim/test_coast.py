"""Steps that are skipped in one go leave the same rows as single steps."""

import gc
from dataclasses import replace

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from headway.core.commands import Add, Cancel, Retune
from headway.core.cost.gathering import UNPADDED, Gathering
from headway.core.cost.step_cost import Echo, Rates, Residuals, Rounding, StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.planning.newcomers import LOOK
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.defer import WithoutDeadline, WithTimeToSpare
from headway.core.policies.join import Continuous, Dynamic, Start, Static
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane
from headway.core.policies.relegate import Hopeless
from headway.core.request import NEVER
from headway.core.scheduler import Scheduler
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from headway.sim.simulate import uncollected
from tests.traces import BLOCK, MS, THRASH, Case, Crowd, ask, cases, make

NOISY = tuple(range(700, 1_400, 50))
COST = StepCost(
    device=Rates(
        step=8_000_000_001,
        row=7_000_003,
        read=11_003,
        pair=13_007,
        logit=17_011,
        head=400_009,
        decode=1_000_000_009,
    ),
    pieces=((0, 1_000_000_007), (6, 2_000_000_011)),
    host=Rates(step=300_000_001, row=5_000_003),
    after=Rates(step=200_000_001, row=3_000_003),
    wake=1_234_567,
    wake_tail=(543_210, 123_456),
    cooling=7_654_321,
    turn=765_432,
    knee=6,
    tile=77_777,
    rounding=Rounding(least=3, digits=2, tile=2),
    residuals=(Residuals(NOISY), Residuals(NOISY[::2])),
    echoes=(Echo(300, 10_000_000), Echo(500, 900_000_000)),
)
MANY = 12 * MS // LOOK  # if more wait, they are not looked at in each step
CHEAPER = replace(
    COST, wake=0, wake_tail=(), turn=0, knee=7
)  # other prices for the scheduler, so that it sees a drift
PADDED = Gathering(
    3, at_once=5
)  # gathered in other blocks than the engine's, and in several groups


class Asked(PricedExecutor):
    """An executor that counts the steps really submitted."""

    submitted = 0

    def submit(self, batch):
        self.submitted += 1
        return super().submit(batch)


def left(case, coasting, seed=1, size=BLOCK, gathering=UNPADDED, known=CHEAPER):
    """The scheduler after a run, its events by request, and how many steps were really built.

    known: the prices that the scheduler knows.
    """
    known, cost = (replace(each, gathering=gathering) for each in (known, COST))
    settings = replace(case.settings, cost=known, block_size=size)
    scheduler, clock, told = Scheduler(settings), VirtualClock(), {}
    priced, inbox = Asked(cost, clock, seed=seed), TraceInbox(case.timed, clock)
    engine = VirtualEngine(scheduler, priced, inbox, clock, priced, coasting)
    while not scheduler.finished:
        for each in engine.step():
            tokens, finish = told.get(each.id, ((), None))
            assert not finish
            told[each.id] = tokens + each.tokens, each.finish
        scheduler.check()
    return scheduler, told, priced.submitted


def assert_same(case, size=BLOCK, gathering=UNPADDED, known=CHEAPER):
    by_step, told, built = left(case, False, 1, size, gathering, known)
    at_once, told_at_once, fewer = left(case, True, 1, size, gathering, known)
    assert at_once.ledger.steps == by_step.ledger.steps
    assert at_once.ledger.requests == by_step.ledger.requests
    assert at_once.ledger.changes == by_step.ledger.changes
    assert told_at_once == told
    assert vars(at_once.pool) == vars(by_step.pool), "blocks are reused in another order"
    ours, theirs = list(at_once.pool._cached), list(by_step.pool._cached)
    assert ours == theirs and at_once.load(0) == by_step.load(0)
    assert built == len(by_step.ledger.steps)
    return built, fewer


@pytest.mark.no_cover
@settings(deadline=None)
@given(cases(), st.sampled_from([UNPADDED, PADDED]))
@example(THRASH, UNPADDED)
@example(THRASH, PADDED)
def test_coasting_gives_the_rows_of_single_steps(case, gathering):
    built, fewer = assert_same(case, gathering=gathering)
    event("some skipped" if fewer < built else "none skipped")


@pytest.mark.parametrize("gathering", [UNPADDED, PADDED])
@pytest.mark.parametrize("join", [Continuous(3), Static(3), Dynamic(3, 20 * MS)])
def test_most_steps_of_long_answers_are_skipped(join, gathering):
    """An answer ends early while others wait for its slot, blocks run out, and a cancel comes."""
    asks = [ask(f"r{i}", (i,) * (5 + i), 60 - 9 * i, arrived=i * MS) for i in range(5)]
    asks = [replace(each, lane="chat") for each in asks]
    timed = [*((each.arrived, Add(each)) for each in asks), (400 * MS, Cancel("r0"))]
    case = Case(60, Policies(join=join), timed)
    built, fewer = assert_same(case, gathering=gathering)
    assert fewer < built / 3
    assert left(case, coasting=True)[0].load(0).drift != 1_000, "something was learned on the way"


def test_a_policy_that_depends_on_time_is_asked_at_every_step():
    class AfterAWhile:
        def start(self, view):
            return Start(int(view.now > 200 * MS and len(view.running) < 2))

    asks = [ask(f"r{i}", (i,) * 5, 40, lane="chat") for i in range(2)]
    first = Case(60, Policies(join=AfterAWhile()), [(201 * MS, Add(asks[0]))])
    built, fewer = assert_same(first)
    assert fewer < built / 3, "none waits, so the policy has nothing to decide"

    class Later(AfterAWhile):
        def start(self, view):
            return Start(int(not view.running or (view.now > 200 * MS and len(view.running) < 2)))

    both = Case(60, Policies(join=Later()), [(0, Add(each)) for each in asks])
    assert_same(both)


def test_coasting_keeps_the_turns_of_more_sequences_than_a_step_has_tokens():
    asks = [ask(f"r{i}", (i,) * 2, 12, lane="chat") for i in range(4)]
    case = Case(60, Policies(Crowd(4)), [(0, Add(each)) for each in asks])
    fewer = Retune(1, replace(case.policies, step_tokens=3), case.lanes)
    assert_same(replace(case, timed=[*case.timed, (60 * MS, fewer)]))


def test_coasting_keeps_the_preemptions_of_a_lane_at_its_block_limit():
    lanes = (Lane("bulk"), Lane("chat", blocks=Share(0, 6)))
    asks = [ask(f"r{i}", (i,) * 5, 14, lane="chat") for i in range(2)]
    case = Case(60, Policies(), [(0, Add(each)) for each in asks], lanes=lanes)
    assert_same(case)
    rows = left(case, True)[0].ledger.requests
    assert [row.preemptions for row in rows] == [0, 1]


def test_answers_given_together_are_not_skipped():
    asks = [ask(f"r{i}", (i,) * 5, 20, lane="chat") for i in range(2)]
    case = Case(60, Policies(join=Static(2, together=True)), [(0, Add(each)) for each in asks])
    built, fewer = assert_same(case)
    assert built == fewer


def test_each_seed_draws_its_own_residuals():
    case = Case(60, Policies(), [(0, Add(ask("a", 5, 30, lane="chat")))])
    one, other = left(case, True, seed=1)[0], left(case, True, seed=2)[0]
    assert one.ledger.steps != other.ledger.steps
    assert all(row.first_token != NEVER for row in other.ledger.requests)


@pytest.mark.parametrize(
    "tail, cooling, taken",
    [
        ((), 0, (7, 6, 5, 7, 5)),
        ((), 4 * MS, (5.5, 6, 5, 7, 5)),
        ((), 200 * MS, (5, 6, 5, 5.4, 5)),
        ((3 * MS // 2, MS // 2), 0, (7, 6.5, 5.5, 7, 6.5)),
        ((3 * MS // 2, MS // 2), 2 * MS, (6, 6, 5.2, 7, 6.5)),
    ],
)
def test_a_step_soon_after_a_sleep_or_after_prompts_takes_longer(tail, cooling, taken):
    cost = StepCost(Rates(step=5 * MS * 1_000), wake=2 * MS, turn=MS, after=Rates(step=MS * 1_000))
    cost = replace(cost, wake_tail=tail, cooling=cooling)
    asks = [replace(ask("a", 5, 3), arrived=MS), replace(ask("b", 5, 2), arrived=60 * MS)]
    for coasting in (False, True):
        scheduler, clock = make(60), VirtualClock()
        priced = PricedExecutor(cost, clock)
        inbox = TraceInbox([(each.arrived, Add(each)) for each in asks], clock)
        engine = VirtualEngine(scheduler, priced, inbox, clock, priced, coasting)
        while not scheduler.finished:
            engine.step()
        spent = [round(row.nanoseconds / MS, 1) for row in scheduler.ledger.steps]
        # All but one token of the second prompt are cached, and one position is no prompt.
        assert spent == list(taken)


def test_a_run_with_a_journal_takes_every_step():
    scheduler, clock, kept = make(60), VirtualClock(), []
    priced = PricedExecutor(COST, clock)
    inbox = TraceInbox([(0, Add(ask("a", 5, 30)))], clock)
    engine = VirtualEngine(scheduler, priced, inbox, clock, priced, coasting=True)
    engine.keep = kept.append
    while not scheduler.finished:
        engine.step()
    assert [record.step for record in kept] == [row.step for row in scheduler.ledger.steps]


def test_coasting_keeps_an_end_in_the_step_before_another_sequence_fills_a_block():
    """Blocks have four tokens. The prompt of five ends when that of one is at eight."""
    asks = [ask("a", (1,) * 5, 8, lane="chat"), ask("b", (2,), 30, lane="chat")]
    assert_same(Case(60, Policies(), [(0, Add(each)) for each in asks]))


@pytest.mark.parametrize("size, blocks", [(1, 150), (3, 40), (16, 12)])
def test_coasting_works_with_other_block_sizes(size, blocks):
    """An arrival and a cancel come during stretches; in the end too few blocks are free."""
    asks = [ask(f"r{i}", (i,) * (5 + 7 * i), 60 - 9 * i, arrived=137 * i * MS) for i in range(4)]
    asks = [replace(each, lane="chat") for each in asks]
    timed = [*((each.arrived, Add(each)) for each in asks), (555 * MS, Cancel("r1"))]
    built, fewer = assert_same(Case(blocks, Policies(), timed), size)
    assert fewer < built / 2


def test_coasting_sees_a_lacking_block_beside_a_sequence_with_one_to_spare():
    """A sequence recomputed in chunks of a block has one block more than it has begun to fill."""
    asks = [ask(f"r{i}", (i,) * 4, 14, lane="chat", arrived=30 * i * MS) for i in range(3)]
    policies = Policies(Continuous(4), chunk=Fixed(BLOCK))
    built, fewer = assert_same(Case(9, policies, [(each.arrived, Add(each)) for each in asks]))
    assert fewer < built


def test_equal_blocks_are_evicted_and_published_in_the_order_of_single_steps():
    """Three equal prompts in a pool too small for them; the order of events decides."""
    asks = [
        ask("a", (1,) * 4, 15, lane="chat"),
        ask("b", (1,) * 8, 27, lane="chat"),
        ask("c", (1,) * 4, 25, lane="chat", arrived=100 * MS),
    ]
    assert_same(Case(9, Policies(), [(each.arrived, Add(each)) for each in asks]))


@pytest.mark.parametrize("was_on", [True, False])
def test_the_garbage_collector_is_left_as_it_was(was_on):
    (gc.enable if was_on else gc.disable)()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == was_on
    finally:
        gc.enable()


def test_no_step_is_skipped_before_every_request_has_its_promise(monkeypatch):
    """So many wait that the last to come are looked at a few steps later. A look takes eight times
    as long as it does, so that fewer have to wait."""
    monkeypatch.setattr("headway.core.planning.newcomers.LOOK", 8 * LOOK)
    times = [MS * (i // 12) for i in range((MANY + 200) // 8)]
    asked = [ask(f"r{i}", (i,) * 4, 9, arrived=at, lane="chat") for i, at in enumerate(times)]
    policies = Policies(Continuous(1), chunk=Fixed(4), step_tokens=8)
    case = Case(99, policies, [(each.arrived, Add(each)) for each in asked], cost=COST)
    (by_step, told, built), (at_once, told_at_once, fewer) = left(case, False), left(case, True)
    assert at_once.ledger.requests == by_step.ledger.requests and told_at_once == told
    assert all(row.was_promised for row in at_once.ledger.requests)
    assert fewer < built


@pytest.mark.no_cover
@pytest.mark.parametrize("late", ["refuse", "relegate"])
def test_the_pace_of_a_long_answer_is_seen_while_its_steps_are_skipped(late, monkeypatch):
    """Alone, the answer gets faster. By its pace a new request can end in time or not."""
    cost = StepCost(device=Rates(step=10_000 * MS, row=20_000 * MS), pieces=((0, 1_000 * MS),))
    lanes = (Lane("chat", Budget(e2e=5_000 * MS), late=late),)
    asks = [ask("long", (9,) * 5, 400, lane="chat", expected=400)]
    asks += [ask(f"s{i}", (i,) * 5, 70, lane="chat", expected=70) for i in range(3)]
    asks.append(ask("new", (8,) * 2_650, 40, arrived=11_000 * MS, lane="chat", expected=40))
    timed = [(each.arrived, Add(each)) for each in asks]
    case = Case(4_000, replace(SLACK, step_tokens=512), timed, lanes=lanes, cost=cost)
    monkeypatch.setitem(globals(), "COST", cost)  # of the executor, too
    built, fewer = assert_same(case, known=cost)
    assert fewer < built // 4


SLACK = Policies(
    Continuous(6),
    order=ByDeadline(),
    chunk=BySlack(sure=0.9),
    preempt=ByLane(),
    defer=WithTimeToSpare(),
    relegate=Hopeless(),
)


def mixed(tpot, bulk=24, least=0):
    """Three timed requests and three untimed ones, whose lane keeps `least` slots."""
    lanes = (Lane("bulk", slots=Share(least)), Lane("chat", Budget(ttft=NEVER, tpot=tpot)))
    asks = [ask(f"c{i}", (i,) * 5, 60 - 9 * i, lane="chat") for i in range(3)]
    asks += [ask(f"b{i}", (9, i) * 3, bulk - i, lane="bulk") for i in range(3)]
    return Case(90, SLACK, [(0, Add(each)) for each in asks], lanes=lanes, cost=COST)


def test_steps_with_time_for_untimed_decodes_are_skipped():
    built, fewer = assert_same(mixed(60 * MS, bulk=70))
    assert fewer < built / 2


@pytest.mark.no_cover
@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("gathering", [UNPADDED, PADDED])
def test_untimed_decodes_miss_the_same_steps(gathering, least):
    """A step of all six takes longer than the timed requests have for a token."""
    case = mixed(12 * MS, bulk=70, least=least)
    assert_same(case, gathering=gathering)
    rows = left(case, True, gathering=gathering)[0].ledger.steps
    assert any(row.rows < row.running for row in rows[3:]), "nobody misses a step"


def test_steps_are_skipped_if_all_untimed_decodes_are_within_their_lanes_least():
    built, fewer = assert_same(mixed(12 * MS, bulk=70, least=3))
    assert fewer < built / 2


@pytest.mark.parametrize("slots, in_time", [(4, 1), (4, 3), (3, 0)])
def test_steps_are_skipped_while_untimed_requests_wait_for_a_slot(slots, in_time):
    lanes = (Lane("bulk"), Lane("chat", Budget(ttft=NEVER, tpot=60 * MS)))
    asks = [ask(f"c{i}", (i,) * 5, 60 - 9 * i, lane="chat") for i in range(in_time)]
    asks += [ask(f"b{i}", (9, i) * 3, 70 - 7 * i, lane="bulk") for i in range(8)]
    policies = replace(SLACK, join=Continuous(slots))
    case = Case(200, policies, [(0, Add(each)) for each in asks], lanes=lanes, cost=COST)
    built, fewer = assert_same(case)
    assert fewer < built / 2


def test_no_step_is_skipped_while_a_waiting_request_may_become_late():
    """A request with a TTFT waits for another's slot, and is relegated while it waits."""
    lanes = (Lane("bulk"), Lane("chat", Budget(ttft=300 * MS, tpot=60 * MS)))
    asks = [ask(f"c{i}", (i,) * 5, 60, lane="chat") for i in range(2)]
    case = Case(90, replace(SLACK, join=Continuous(1)), [(0, Add(each)) for each in asks])
    built, fewer = assert_same(replace(case, lanes=lanes, cost=COST))
    assert built - 62 < fewer < built, "until the first has ended"


def test_a_decode_too_late_to_catch_up_does_not_prevent_skipping():
    built, fewer = assert_same(mixed(MS, bulk=70))
    assert fewer < built / 2


@pytest.mark.parametrize("tpot", [12_400_000, 12_700_000])
def test_each_stretch_ends_where_the_drift_may_change(tpot):
    """Steps take longer than the scheduler knows at first, and fewer and fewer have time for all. A
    block has as many tokens as there are steps between two changes of the drift."""
    known = replace(COST, device=replace(COST.device, step=1_000_000_000, decode=0))
    built, fewer = assert_same(mixed(tpot, bulk=140), size=16, known=known)
    assert fewer < built


def test_coasting_restores_a_relegated_request_that_is_in_time_after_all():
    """The request was relegated while it waited, because steps were expected to take longer."""
    lanes = (Lane("bulk"), Lane("chat", Budget(ttft=40 * MS, tpot=9 * MS)))
    asks = [ask("b", (9,) * 5, 60, lane="bulk"), ask("c", (1,) * 9, 30, lane="chat")]
    timed = [(0, Add(each)) for each in asks]
    known = replace(COST, device=replace(COST.device, step=29_000_000_000))
    case = Case(90, SLACK, timed, lanes=lanes, cost=COST)
    assert_same(case, known=known)
    rows = left(case, True, known=known)[0].ledger.requests
    assert any(row.relegated and row.ttft < 40 * MS for row in rows)


@pytest.mark.parametrize("chunk", [Whole(), Fixed(8)])
def test_steps_are_skipped_where_no_time_limits_them(chunk):
    policies = replace(SLACK, chunk=chunk, defer=WithoutDeadline())
    built, fewer = assert_same(replace(mixed(12 * MS, bulk=70), policies=policies))
    assert fewer < built / 2


class Unforeseen:
    """A chunk policy that does not say what it will allow."""

    def allow(self, view):
        return BySlack().allow(view)


class Unsteady:
    """A defer policy that does not say that its answer stays the same."""

    def deferred(self, view, *, joins):
        return WithoutDeadline().deferred(view, joins=joins)


@pytest.mark.parametrize("unknown", [{"chunk": Unforeseen()}, {"defer": Unsteady()}])
def test_a_policy_that_does_not_say_what_comes_is_asked_at_every_step(unknown):
    case = mixed(60 * MS, bulk=70)
    _, asked = assert_same(replace(case, policies=replace(SLACK, **unknown)))
    assert left(case, True)[2] < asked
