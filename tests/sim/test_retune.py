"""Another strategy and other lanes between two steps: no request is lost, a replay is exact."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.commands import Add, Retune
from headway.core.lane import Budget, Lane, Share
from headway.core.policies.calls import Calls
from headway.core.policies.chunk import Fixed
from headway.core.policies.fairly import Fairly
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.core.policies.order import FirstCome
from headway.core.policies.policies import Policies
from headway.core.policies.relegate import Hopeless
from headway.core.request import Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import SettingError
from headway.journal import journal
from headway.sim.replay import replay
from tests.traces import COST, MS, Case, answer, ask, cases, crowded, plain_cases, run

LANES = (Lane("bulk"), Lane("chat", priority=-1))


@st.composite
def retuned_cases(draw: st.DrawFn) -> Case:
    """A case in which other cases' strategies and lanes come into force, up to three times."""
    case = draw(cases())
    case = replace(case, cost=COST)  # strategies that predict may come later
    timed = list(case.timed)
    for number in range(draw(st.integers(1, 3))):
        other = draw(st.one_of(crowded(), plain_cases()))
        order, base = other.policies.order, case.policies.order
        inner = order.order if isinstance(order, Fairly) else order
        order = replace(base, order=inner) if isinstance(base, Fairly) else inner
        policies = replace(other.policies, order=order)
        at = draw(st.integers(0, 300)) * MS
        with suppress(SettingError):  # a function does not become a model
            case.settings.retuned(policies, other.lanes, number + 1)
            timed.append((at, Retune(number + 1, policies, other.lanes)))
    return replace(case, timed=sorted(timed, key=lambda pair: pair[0]))


def budgets_of(case):
    """By version, the budget of each lane."""
    found = {0: {lane.name: lane.budget for lane in case.lanes}}
    for _, command in case.timed:
        if isinstance(command, Retune):
            found[command.version] = {lane.name: lane.budget for lane in command.lanes}
    return found


@pytest.mark.no_cover
@settings(deadline=None)
@given(retuned_cases())
def test_retunes_change_no_answer_books_balance_and_a_replay_is_exact(case):
    done = run(case)
    said = {id: [] for id in case.requests}
    for each in done.events:
        said[each.id] += each.tokens
    rows, budgets = done.scheduler.ledger.requests, budgets_of(case)
    assert sorted(row.id for row in rows) == sorted(case.requests)
    interrupted = {c.id for _, c in case.timed if not isinstance(c, Add | Retune)}
    for row in rows:
        alone = answer(case.requests[row.id])
        assert row.budget == budgets[row.version][row.lane], "the one with which it came"
        event(f"{row.finish}, under version {row.version > 0}")
        if row.finish in (Finish.EXPIRED, Finish.REFUSED) or row.id in interrupted:
            assert said[row.id] == alone[: len(said[row.id])]
        else:
            assert said[row.id] == alone and row.generated == len(alone)
    assert done.scheduler.pool.num_free == case.blocks
    ended, again = journal.read(done.journal.splitlines())
    scheduler, _ = replay(ended, again)
    assert scheduler.ledger.requests == rows
    assert scheduler.ledger.steps == done.scheduler.ledger.steps
    assert scheduler.settings == done.scheduler.settings


def policies(**parts):
    return Policies(**{"join": Continuous(4), "step_tokens": 24} | parts)


def test_a_group_ends_under_the_strategy_it_began_with():
    """Three requests start together. The strategy that would let a fourth join waits for them."""
    adds = [(0, Add(ask(f"r{i}", 4, 3 + i, lane="chat"))) for i in range(3)]
    fourth = 15 * MS, Add(ask("r3", 4, 2, 15 * MS, lane="chat"))
    retune = 16 * MS, Retune(1, policies(), LANES)
    case = Case(40, policies(join=Static(3)), [*adds, fourth, retune])
    rows = {row.id: row for row in run(case).scheduler.ledger.requests}
    assert rows["r3"].first_scheduled >= rows["r2"].finished
    assert {row.version for row in rows.values()} == {0}, "all came before it was in force"
    again = Case(40, policies(), [*adds, fourth])
    rows = {row.id: row for row in run(again).scheduler.ledger.requests}
    assert rows["r3"].first_scheduled < rows["r2"].finished


def test_of_two_retunes_that_wait_for_a_group_the_later_one_counts():
    adds = [(0, Add(ask(f"r{i}", 4, 9, lane="chat"))) for i in range(3)]
    first, second = Retune(1, policies(), LANES), Retune(2, policies(chunk=Fixed(3)), LANES)
    last = 400 * MS, Add(ask("late", 4, 2, 400 * MS, lane="chat"))
    case = Case(40, policies(join=Static(3)), [*adds, (5, first), (6, second), last])
    done = run(case)
    assert done.scheduler.settings.version == 2
    assert done.scheduler.ledger.requests[-1].version == 2


def test_running_requests_end_before_the_first_group_starts():
    adds = [(0, Add(ask("r0", 4, 9, lane="chat"))), (0, Add(ask("r1", 4, 2, lane="chat")))]
    retune = 30 * MS, Retune(1, policies(join=Dynamic(2, 0)), LANES)
    late = 31 * MS, Add(ask("late", 4, 2, 31 * MS, lane="chat"))
    rows = run(Case(40, policies(), [*adds, retune, late])).scheduler.ledger.requests
    by_id = {row.id: row for row in rows}
    assert by_id["late"].first_scheduled >= by_id["r0"].finished


def test_a_lane_whose_blocks_shrink_still_ends_the_requests_that_came_before():
    """A request needs four blocks, and its lane has one from now on. Alone it may have four."""
    small = Lane("chat", priority=-1, blocks=Share(0, 1))
    adds = [(0, Add(ask(f"r{i}", 12, 3, lane="chat"))) for i in range(2)]
    retune = 0, Retune(1, policies(join=Continuous(1)), (Lane("bulk"), small))
    late = 5 * MS, Add(ask("late", 12, 3, 5 * MS, lane="chat"))
    case = Case(12, policies(join=Continuous(1)), [*adds, retune, late])
    rows = {row.id: row for row in run(case).scheduler.ledger.requests}
    assert rows["r0"].finish == rows["r1"].finish == Finish.LENGTH
    assert rows["late"].finish is Finish.REFUSED, "it could never fit"


def test_a_request_is_judged_by_the_budget_with_which_it_came():
    strict = (Lane("bulk"), Lane("chat", Budget(ttft=1), -1))
    adds = [(0, Add(ask("before", 4, 3, lane="chat")))]
    late = 5 * MS, Add(ask("after", 4, 3, 5 * MS, lane="chat"))
    rows = run(Case(12, policies(), [*adds, (1, Retune(7, policies(), strict)), late]))
    before, after = rows.scheduler.ledger.requests
    assert (before.good, before.version) == (True, 0)
    assert (after.good, after.version) == (False, 7)
    assert not rows.scheduler.roster._earlier, "nothing is kept of those that have ended"
    assert rows.scheduler.load(0).version == 7


def test_slots_that_follow_the_load_begin_again_only_if_their_share_changes():
    bulk, chat = LANES[0], Lane("chat", Budget(ttft=9), -1, slots=Share(0, 4, 2))
    scheduler = Scheduler(Settings(12, 4, (bulk, chat), policies()))
    line = scheduler.roster.lines["chat"]
    assert line.slots == 2
    line.slots = 3  # as they have grown with the load
    scheduler.apply([Retune(1, policies(), (bulk, replace(chat, priority=1)))], MS)
    assert line.lane.priority == 1 and line.slots == 3
    scheduler.apply([Retune(2, policies(), (bulk, replace(chat, slots=Share(0, 4, 1))))], MS)
    assert line.slots == 1


def test_a_retune_to_a_policy_that_relegates_nobody_restores_the_relegated():
    lanes = (Lane("bulk"), Lane("chat", Budget(ttft=1), -1))
    hopeless = policies(relegate=Hopeless())
    scheduler = Scheduler(Settings(12, 4, lanes, hopeless, cost=COST))
    scheduler.apply([Add(ask("a", 4, 3, lane="chat"))], MS)
    assert scheduler.load(MS).lanes["chat"].relegated == 1
    scheduler.apply([Retune(1, policies(), lanes)], MS)
    scheduler.check()
    assert scheduler.load(MS).lanes["chat"].relegated == 0


def relegating(budget, late="relegate"):
    lanes = (Lane("bulk"), Lane("chat", budget, -1, late=late))
    return policies(relegate=Hopeless()), lanes


def test_a_retune_to_a_lane_that_takes_late_requests_restores_the_relegated():
    hopeless, lanes = relegating(Budget(ttft=1))
    scheduler = Scheduler(Settings(12, 4, lanes, hopeless, cost=COST))
    scheduler.apply([Add(ask("a", 4, 3, lane="chat"))], MS)
    assert scheduler.load(MS).lanes["chat"].relegated == 1
    scheduler.apply([Retune(1, *relegating(Budget(ttft=1), "take"))], MS)
    scheduler.check()
    assert scheduler.load(MS).lanes["chat"].relegated == 0


def test_a_waiting_request_can_be_late_by_the_new_e2e_limit_of_its_lane():
    hopeless, lanes = relegating(Budget(ttft=10**10))
    scheduler = Scheduler(Settings(12, 4, lanes, hopeless, cost=COST))
    scheduler.apply([Add(ask("a", 4, 3, lane="chat"))], MS)
    assert scheduler.load(MS).lanes["chat"].relegated == 0
    scheduler.apply([Retune(1, *relegating(Budget(e2e=2)))], 2 * MS)
    assert scheduler.load(2 * MS).lanes["chat"].relegated == 1


@pytest.mark.parametrize(
    "settings, retune, why",
    [
        (Settings(9, 4, LANES), Retune(1, policies(), LANES[:1]), "lanes neither come nor go"),
        (Settings(9, 4, LANES), Retune(1, policies(join=Calls(3)), LANES), "a function"),
        (
            Settings(9, 4, LANES),
            Retune(1, policies(order=Fairly(FirstCome(), {"acme": 2})), LANES),
            "whether tenants share",
        ),
        (Settings(9, 4, LANES), Retune(1, policies(relegate=Hopeless()), LANES), "cost model"),
    ],
)
def test_a_retune_of_what_cannot_change_is_refused_by_name(settings, retune, why):
    with pytest.raises(SettingError, match=why):
        settings.retuned(retune.policies, retune.lanes, retune.version)
