"""The front admits only what the engine will accept, however stale its snapshot is."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.admission import Refuse
from headway.core.commands import Add, Cancel
from headway.core.lane import Lane
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.server.engine.in_flight import InFlight
from tests.traces import BLOCK, ask

LANES = Lane("chat", max_waiting=3), Lane("bulk", max_waiting_tokens=20)


def made():
    settings = Settings(64, BLOCK, LANES, Policies(Continuous(2)))
    scheduler, backlog = Scheduler(settings), InFlight()
    backlog.publish(scheduler.load(0), 0)
    return scheduler, backlog


def test_a_burst_between_two_snapshots_is_limited_by_the_lanes_max_waiting():
    scheduler, backlog = made()
    burst = [ask(f"r{i}", 4, 2, lane="chat") for i in range(5)]
    answers = [backlog.admit([each], 0) for each in burst]
    assert answers[:3] == [None] * 3
    assert answers[3].reason == "3 requests wait in 'chat' already"
    assert backlog.load.lanes["chat"].tokens == 12
    scheduler.apply([Add(each) for each in burst[:2]], 0)
    backlog.publish(scheduler.load(0), 2)
    assert backlog.load.lanes["chat"].waiting == 3, "two wait in the engine, one is on its way"


def test_the_requests_of_a_call_are_admitted_together_or_not_at_all():
    _, backlog = made()
    before = backlog.load
    several = [ask(f"r{i}", 9, 2, lane="bulk") for i in range(3)]
    assert isinstance(backlog.admit(several, 0), Refuse)
    assert backlog.load == before
    assert backlog.admit(several[:2], 0) is None


def test_a_request_that_replaces_another_enters_a_full_line():
    scheduler, backlog = made()
    inside = [ask(f"r{i}", 4, 2, lane="chat") for i in range(3)]
    assert [backlog.admit([each], 0) for each in inside] == [None] * 3
    scheduler.apply([Add(each) for each in inside], 0)
    backlog.publish(scheduler.load(0), 3)
    last, full = ask("last", 4, 2, lane="chat"), backlog.load
    several = [ask(f"s{i}", 1, 2, lane="chat") for i in range(2)]
    for refused in (([last], []), ([last], [ask("b", 4, 2, lane="bulk")]), (several, inside[:1])):
        assert isinstance(backlog.admit(refused[0], 0, refused[1]), Refuse)
        assert backlog.load == full
    assert backlog.admit([last], 0, inside[:1]) is None
    assert backlog.load == full, "there is one place, and another request takes it"
    assert isinstance(backlog.admit([ask("more", 4, 2, lane="chat")], 0), Refuse)
    events = scheduler.apply([Cancel("r0"), Add(last)], 1)
    assert [event.finish for event in events] == [Finish.CANCELLED]
    backlog.publish(scheduler.load(1), 4)
    assert backlog.load.lanes["chat"].waiting == 3


def test_replacing_running_requests_never_counts_a_line_below_zero():
    """The replaced call had two requests, and both already run."""
    scheduler, backlog = made()
    two = [ask(f"r{i}", 4, 2, lane="chat") for i in range(2)]
    assert backlog.admit(two, 0) is None
    scheduler.apply([Add(each) for each in two], 0)
    scheduler.schedule(0)
    backlog.publish(scheduler.load(0), 2)
    assert backlog.admit([ask("later", 4, 2, lane="chat")], 0, instead=two) is None
    line = backlog.load.lanes["chat"]
    assert (line.waiting, line.tokens) == (0, 0)


def test_more_requests_than_may_ever_wait_are_told_not_to_retry():
    _, backlog = made()
    refused = backlog.admit([ask(f"r{i}", 1, 2, lane="chat") for i in range(4)], 0)
    assert refused.retry_at == NEVER and refused.reason.startswith("4 requests come together")


def test_pending_says_whether_the_engine_has_work():
    scheduler, backlog = made()
    assert not backlog.pending
    backlog.admit([ask("a", 4, 2, lane="chat")], 0)
    assert backlog.pending, "it is on its way"
    scheduler.apply([Add(ask("a", 4, 2, lane="chat"))], 0)
    backlog.publish(scheduler.load(0), 1)
    assert not backlog.pending, "it waits, perhaps for others"
    scheduler.schedule(0)
    backlog.publish(scheduler.load(0), 1)
    assert backlog.pending, "it runs"


def test_a_closed_backlog_admits_nobody():
    _, backlog = made()
    backlog.close()
    backlog.publish(Scheduler(Settings(64, BLOCK, LANES)).load(0), 0)
    assert backlog.admit([ask("a", 1, 1, lane="chat")], 0).reason == "the engine is closing"


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["chat", "bulk"]), st.integers(1, 12)),
            st.sampled_from(["take", "hear"]),
        ),
        max_size=60,
    )
)
def test_the_engine_accepts_all_that_the_front_admits(moves):
    """In any order of the engine's polls and the front's snapshots."""
    scheduler, backlog = made()
    sent, taken, published = [], 0, (scheduler.load(0), 0)
    for number, move in enumerate(moves):
        if move == "take":
            events = scheduler.apply([Add(each) for each in sent[taken:]], number)
            assert all(event.finish is not Finish.REFUSED for event in events)
            taken, published = len(sent), (scheduler.load(number), len(sent))
        elif move == "hear":
            backlog.publish(*published)
            assert backlog.load.lanes["chat"].waiting == len(
                [each for each in sent if each.lane == "chat"]
            )
        else:
            request = ask(f"r{number}", move[1], 2, lane=move[0])
            if backlog.admit([request], number) is None:
                sent.append(request)
