"""The same engine on the wall clock, asked from several threads and from asyncio."""

import asyncio
import io
import threading

import pytest

from headway.core.batch import Batch, Event
from headway.core.commands import Add, Close
from headway.core.policies.join import Static
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.engine import Engine
from headway.errors import EngineDownError, RefusedError
from headway.executor.fake import FakeExecutor
from headway.journal import journal
from headway.live.callers import Callers, QueueCaller
from headway.live.clock import WallClock
from headway.live.engine import LiveEngine
from headway.live.inbox import LiveInbox
from headway.sim.replay import JournalInbox
from tests.traces import BLOCK, Spy, answer, ask, make, spy


class Gated(FakeExecutor):
    """Gives one token, then waits until the gate is opened."""

    def __init__(self, blocks):
        super().__init__(blocks, BLOCK)
        self.gate = threading.Event()

    def submit(self, batch: Batch) -> int:
        assert batch.step == 1 or self.gate.wait(60)
        return super().submit(batch)


def said(events):
    return [token for event in events for token in event.tokens]


def test_many_threads_are_served_and_the_journal_replays():
    executor, file, scheduler = spy(32), io.StringIO(), make(32)
    journal.begin(scheduler.settings, file)
    rows = []
    engine = LiveEngine(
        scheduler,
        executor,
        lambda record: journal.write(record, file),
        lambda steps, requests: rows.extend(requests),
    )
    heard: dict[int, list[int]] = {}

    def caller(i):
        heard[i] = said(engine.events(ask(f"r{i}", (i, 1, 2), 5, engine.clock.now())))

    threads = [threading.Thread(target=caller, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    engine.close()
    assert heard == {i: answer(ask("", (i, 1, 2), 5)) for i in range(6)}
    assert sorted(row.id for row in rows) == [f"r{i}" for i in range(6)]
    assert scheduler.ledger.requests == [], "taken events are not kept"
    settings, records = journal.read(file.getvalue().splitlines())
    replay = JournalInbox(records)
    again = Spy(replay, [])
    second = Engine(Scheduler(settings), again, replay, replay)
    while replay.left:
        second.step()
    assert again.batches == executor.batches
    assert second.scheduler.ledger.requests == rows


def test_one_queue_gets_the_events_of_many_requests():
    engine, caller = LiveEngine(make(32), FakeExecutor(32, BLOCK)), QueueCaller()
    asked = {f"r{i}": ask(f"r{i}", (i, 1, 2), 4) for i in range(5)}
    engine.submit(asked.values(), caller)
    engine.close()
    heard = {id: [] for id in asked}
    while not caller.queue.empty():
        event = caller.queue.get()
        heard[event.id] += event.tokens
    assert heard == {id: answer(request) for id, request in asked.items()}


def test_many_asyncio_tasks_get_their_streams():
    async def one(engine, i):
        request = ask(f"r{i}", (i, 1, 2), 5)
        return [token async for event in engine.stream(request) for token in event.tokens]

    async def main():
        engine = LiveEngine(make(32), FakeExecutor(32, BLOCK))
        heard = await asyncio.gather(*(one(engine, i) for i in range(6)))
        await asyncio.to_thread(engine.close)
        return heard

    assert asyncio.run(main()) == [answer(ask("", (i, 1, 2), 5)) for i in range(6)]


def test_a_step_wakes_an_event_loop_once_for_all_its_streams():
    scheduler, executor, streams = make(96), Gated(96), 24

    async def one(engine, i):
        request = ask(f"r{i}", (i, 1, 2), 5)
        return [token async for event in engine.stream(request) for token in event.tokens]

    async def main():
        loop = asyncio.get_running_loop()
        wakes, wake = [], loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *about: (wakes.append(about), wake(*about))
        engine = LiveEngine(scheduler, executor)
        tasks = [asyncio.create_task(one(engine, i)) for i in range(streams)]
        await asyncio.sleep(0)  # all are submitted, and one may have begun
        executor.gate.set()
        heard = await asyncio.gather(*tasks)
        count = len(wakes)
        await asyncio.to_thread(engine.close)
        return heard, count

    heard, wakes = asyncio.run(main())
    assert heard == [answer(ask("", (i, 1, 2), 5)) for i in range(streams)]
    assert wakes <= scheduler.steps < streams


def test_a_task_that_is_cancelled_cancels_its_request():
    scheduler, executor = make(32), Gated(32)

    async def main():
        engine = LiveEngine(scheduler, executor, rows=lambda steps, requests: rows.extend(requests))
        first = asyncio.Event()

        async def listen():
            async for _ in engine.stream(ask("a", (1, 2, 3), 100)):
                first.set()

        task = asyncio.create_task(listen())
        await first.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        executor.gate.set()
        await asyncio.to_thread(engine.close)

    rows = []
    asyncio.run(main())
    assert [row.finish for row in rows] == [Finish.CANCELLED]
    assert scheduler.pool.num_free == 32


def test_a_caller_that_leaves_early_cancels_its_request():
    scheduler, executor, rows = make(32), Gated(32), []
    engine = LiveEngine(scheduler, executor, rows=lambda steps, requests: rows.extend(requests))
    events = engine.events(ask("a", (1, 2, 3), 100))
    assert len(next(events).tokens) == 1
    events.close()
    executor.gate.set()
    engine.close()
    assert [row.finish for row in rows] == [Finish.CANCELLED]
    assert scheduler.pool.num_free == 32


def test_a_closed_event_loop_does_not_affect_other_callers():
    scheduler, executor = make(32), Gated(32)

    async def leave(engine):
        stream = engine.stream(ask("gone", (1, 2, 3), 3))
        task = asyncio.ensure_future(anext(stream))
        await asyncio.wait([task])
        abandoned.append(stream)  # kept alive, so that nothing cancels it

    abandoned: list[object] = []
    engine = LiveEngine(scheduler, executor)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave(engine))
    loop.close()
    executor.gate.set()
    assert said(engine.events(ask("b", (4, 5), 3))) == answer(ask("b", (4, 5), 3))
    engine.close()


def test_a_caller_that_raises_does_not_affect_the_others():
    class Failing:
        def tell(self, news):
            raise KeyError("its own")

        def flush(self):
            heard.append("flushed")

    class Hearing(Failing):
        def tell(self, news):
            heard.append(news.id)

    callers, heard = Callers(), []
    callers.add(["a"], Failing())
    callers.add(["b", "c"], Hearing())
    with pytest.raises(ExceptionGroup) as caught:
        callers.tell([Event("b", (1,)), Event("a", (1,)), Event("c", (1,))])
    assert heard == ["b", "c", "flushed", "flushed"]
    assert [str(each) for each in caught.value.exceptions] == ["'its own'"]


def test_closing_the_engine_starts_a_group_that_is_not_full():
    engine = LiveEngine(make(32, Policies(join=Static(8))), FakeExecutor(32, BLOCK))
    events = engine.events(ask("a", (1, 2, 3), 2))
    engine.close()
    assert [each.finish for each in events][-1] is Finish.LENGTH


def test_an_interrupted_close_cancels_what_is_open_and_ends_the_thread(monkeypatch):
    scheduler, executor, rows = make(32), Gated(32), []
    engine = LiveEngine(scheduler, executor, rows=lambda steps, requests: rows.extend(requests))
    events = engine.events(ask("a", (1, 2, 3), 100))
    assert len(next(events).tokens) == 1
    wait, waits = engine._over.wait, []

    def interrupted(timeout=None):
        waits.append(timeout)
        if len(waits) == 1:
            raise KeyboardInterrupt
        executor.gate.set()
        wait(timeout)

    monkeypatch.setattr(engine._over, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.close()
    assert engine.down == "the engine is closed"
    assert [row.finish for row in rows] == [Finish.CANCELLED]


def test_an_impossible_request_is_refused_with_the_reason():
    engine = LiveEngine(make(2), FakeExecutor(2, BLOCK))
    with pytest.raises(RefusedError, match="10 prompt tokens and 2 to generate cannot fit"):
        engine.events(ask("a", (1,) * 10, 2))
    engine.close()
    with pytest.raises(EngineDownError, match="the engine is closed"):
        engine.submit([ask("b", (1,), 2)], QueueCaller())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_executor_fails_every_caller_with_the_cause():
    class Broken(FakeExecutor):
        def submit(self, batch: Batch) -> int:
            raise MemoryError("no device")

    engine = LiveEngine(make(8), Broken(8, BLOCK))
    for id in "ab":
        (event,) = engine.events(ask(id, (1,), 2))
        assert event == Event(id, (), Finish.ERROR, "the step failed: no device")
    with pytest.raises(EngineDownError, match="no device") as caught:
        list(engine.events(ask("c", (1,), 2)))
    assert isinstance(caught.value.__cause__, MemoryError)
    engine._thread.join(60)
    with pytest.raises(EngineDownError, match="no device"):
        engine.events(ask("d", (1,), 2))
    engine._inbox.put([Close()])  # the stream is not read


def test_callers_keep_the_first_reason_why_the_engine_is_down():
    callers = Callers()
    for reason in ("the first reason", "a later one"):
        callers.fail(EngineDownError(reason))
    assert callers.down == "the first reason"
    with pytest.raises(EngineDownError, match="the first reason"):
        callers.add(["a"], QueueCaller())


def test_a_caller_that_raises_does_not_hide_the_engines_end_from_the_others():
    callers, heard = Callers(), []

    class Breaks:
        def tell(self, news):
            raise ValueError("mine")

        def flush(self):
            pass

    class Hears:
        def tell(self, news):
            heard.append(news)

        def flush(self):
            heard.append("flushed")

    callers.add(["a"], Breaks())
    callers.add(["b"], Hears())
    down = EngineDownError("why")
    with pytest.raises(ExceptionGroup) as raised:
        callers.fail(down)
    assert heard == [down, "flushed"] and len(raised.value.exceptions) == 1


def test_a_wake_before_the_commands_are_taken_ends_the_next_wait():
    inbox = LiveInbox(WallClock())
    inbox.wake()
    assert inbox.poll() == []
    waiter = threading.Thread(target=inbox.wait, args=(NEVER,), daemon=True)
    waiter.start()
    waiter.join(30)
    assert not waiter.is_alive()
    inbox.wait(inbox.clock.now() + 1)  # the wake counts once: this wait ends by its time


@pytest.mark.parametrize("due", [{"start_by": 5}, {"end_by": 5}])
def test_an_unread_request_that_is_due_ends_a_wait_for_several(due):
    inbox, command = LiveInbox(WallClock()), Add(ask("a", 1, 0, **due))
    for before, during in (([command], []), ([], [command])):
        inbox.put(before)
        waiter = threading.Thread(target=inbox.wait, args=(NEVER, 3), daemon=True)
        waiter.start()
        inbox.put(during)
        waiter.join(30)
        assert not waiter.is_alive()
        assert inbox.poll() == [command]
