"""Live pipelines: the real batchers, threads and event loops."""

import asyncio
import logging
import threading
import time

import pytest

import headway
from headway import Batcher, Pipeline, each, stage
from headway.core.request import NEVER, Finish
from headway.errors import DeadlineError, EngineDownError, RefusedError, SettingError
from headway.pipelines.split import Fixed
from tests.held import Held
from tests.pipelines.fake_time import FakeTime


def found(queries):
    return [[(query, document) for document in range(query)] for query in queries]


def scored(pairs):
    return [10 * query + document for query, document in pairs]


def added(lists):
    return [sum(scores) for scores in lists]


def same(items):
    return items


def expected(query):
    return sum(10 * query + document for document in range(query))


def test_a_pipeline_of_three_stages_gives_answers_and_complete_rows():
    rows = []
    with Pipeline(found >> each(stage(scored)) >> added, rows=rows.append, deadline=60) as made:
        assert made.call(3) == expected(3)
        assert list(made.map(range(60))) == [expected(query) for query in range(60)]
    assert len(rows) == 61 and all(row.good for row in rows)
    for row in rows:
        row.check()
        assert [visit.stage for visit in row.visits if row.items > 2] in (
            [],
            ["found", "scored", "added"],
        )
    first = rows[0]
    assert first.items == 5 and first.nanoseconds > 0
    assert [visit.batch for visit in first.visits] == [1, 1, 1]
    assert first.visits[1].batch_items == 3, "the elements of a list come together"
    assert first.visits[2].given <= 60e9


def test_elements_of_several_workflows_share_a_call(held):
    gate = Held(scored)
    with Pipeline(stage(found) >> each(stage(gate, size=64)) >> added) as made:
        one = made.submit(2)
        assert gate.began.acquire(timeout=30)
        others = [made.submit(3) for _ in range(4)]
        waiting = made._course.places[1].pace
        wait_until(lambda: waiting.inside == 14)
        gate.free()
        assert one.result(30) == expected(2)
        assert [other.result(30) for other in others] == [expected(3)] * 4
    assert [len(call) for call in gate.calls] == [2, 12]


def wait_until(holds):
    """Wait until another thread has made the condition true."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def picky(items):
    if bad := [item for item in items if item[1] == 7]:
        raise ValueError(f"{bad[0]} is bad")
    return [item[1] for item in items]


def test_one_bad_item_fails_its_own_workflow_alone(caplog):
    with (
        caplog.at_level(logging.CRITICAL, "headway.batching"),
        Pipeline(stage(found) >> each(stage(picky))) as made,
    ):
        futures = [made.submit(width) for width in (3, 9, 5)]
        assert futures[0].result(30) == [0, 1, 2]
        with pytest.raises(ValueError, match="bad"):
            futures[1].result(30)
        assert futures[2].result(30) == [0, 1, 2, 3, 4]


def test_cancelling_a_future_drops_the_items_of_its_own_workflow_alone(held):
    rows = []
    with Pipeline(stage(found) >> each(stage(held, size=1)), rows=rows.append) as made:
        one = made.submit(3)
        assert held.began.acquire(timeout=30)
        two = made.submit(1)
        wait_until(lambda: made._course.places[1].pace.inside == 4)
        assert one.cancel()
        held.free()
        assert two.result(30) == [(1, 0)]
    assert (3, 2) not in [call[0] for call in held.calls], "the next one is decided already"
    assert sorted(row.finish for row in rows) == [Finish.CANCELLED, Finish.COMPUTED]
    for row in rows:
        row.check()


def test_a_deadline_ends_the_workflow_wherever_it_is(held, monkeypatch):
    rows, clock = [], FakeTime(monkeypatch)
    with Pipeline(stage(found) >> each(stage(held, size=1)), rows=rows.append) as made:
        late = made.submit(3, deadline=0.05)
        assert held.began.acquire(timeout=30)
        other = made.submit(1)
        clock.advance_to(60_000_000)  # 60 ms
        held.free()
        with pytest.raises(DeadlineError, match="deadline was over in stage 'Held'"):
            late.result(30)
        assert other.result(30) == [(1, 0)]
    assert (3, 2) not in [call[0] for call in held.calls]
    assert {row.finish for row in rows} == {Finish.EXPIRED, Finish.COMPUTED}


def test_a_full_stage_refuses_new_workflows(held):
    with Pipeline(stage(same) >> stage(held, size=1, max_waiting=3, name="slow")) as made:
        futures = [made.submit(at) for at in range(3)]
        with pytest.raises(RefusedError, match="the line of 'slow' is full: 3 items") as refused:
            made.submit(3)
        assert refused.value.retry_at < NEVER
        held.free()
        assert [future.result(30) for future in futures] == [0, 1, 2]
        assert made.call(4) == 4
        assert list(made.map(range(20))) == list(range(20)), "it waits for places"


def test_cancelling_a_coroutine_cancels_its_own_workflow_alone(held):
    with Pipeline(stage(same) >> stage(held, size=1)) as made:

        async def main():
            first = asyncio.create_task(made.acall(1))
            second = asyncio.create_task(made.acall(2))
            assert await asyncio.to_thread(held.began.acquire, timeout=30)
            third = asyncio.create_task(made.acall(3))
            await asyncio.sleep(0)
            third.cancel()
            held.free()
            assert await first == 1 and await second == 2
            with pytest.raises(asyncio.CancelledError):
                await third

        asyncio.run(main())


def test_the_last_stage_may_stream():
    def spelled(words):
        for at in range(max(map(len, words))):
            yield [word[at] if at < len(word) else headway.DONE for word in words]

    with Pipeline(stage(lambda words: [word * 2 for word in words], name="twice") >> spelled) as p:
        assert list(p.stream("ab")) == ["a", "b", "a", "b"]
        with pytest.raises(SettingError, match="use stream or astream"):
            p.call("ab")
        left = p.stream("abc")
        assert next(left) == "a"
        left.close()

        async def main():
            return [piece async for piece in p.astream("xy")]

        assert asyncio.run(main()) == ["x", "y", "x", "y"]
    with pytest.raises(SettingError, match="'spelled' yields pieces: only the last stage can"):
        Pipeline(stage(spelled) >> same)


def test_a_plain_last_stage_streams_one_piece():
    with Pipeline(stage(same) >> same) as made:
        assert list(made.stream(3)) == [3]
        with pytest.raises(DeadlineError):
            list(made.stream(3, deadline=1e-9))


def test_closing_a_pipeline_leaves_the_callers_batchers_open():
    batched = headway.batch(same)
    with Batcher(same) as batcher:
        with Pipeline(batched >> batcher) as made:
            assert made.call(1) == 1 and batched(2) == 2 and batcher.call(3) == 3
            names = [place.name for place in made._course.places]
        assert batcher.call(3) == 3 and batched(2) == 2
    assert names == ["same", "same 2"]
    batched.close()
    with pytest.raises(EngineDownError, match="the pipeline is closed"):
        made.call(1)


def test_a_stage_that_was_closed_fails_the_workflow():
    batcher = Batcher(same)
    with Pipeline(stage(same) >> batcher) as made:
        assert made.call(1) == 1
        batcher.close()
        with pytest.raises(EngineDownError):
            made.call(1)


def test_a_function_that_was_closed_is_a_stage_again(held):
    gate, rows = Held(), []
    function = headway.batch(size=1)(held)
    with Pipeline(function >> stage(gate, size=1), rows=rows.append) as made:
        left = made.submit(1)
        assert held.began.acquire(timeout=30)
        closing = threading.Thread(target=function.close)
        closing.start()
        wait_until(lambda: function._batcher is None)
        two = made.submit(2)  # its id is the same in the new batcher as 1's in the old one
        assert held.began.acquire(timeout=30)
        assert left.cancel()
        held.free()
        gate.free()
        assert two.result(30) == 2
        closing.join(30)
        function.close()
    assert function._batcher is None, "the pipeline's end has started none"
    assert [row.finish for row in rows].count(Finish.CANCELLED) == 1
    for row in rows:
        row.check()


def test_closing_a_pipeline_waits_for_its_workflows(held):
    made = Pipeline(stage(same) >> stage(held, size=1))
    futures = [made.submit(at) for at in range(3)]
    closer = threading.Thread(target=made.close)
    closer.start()
    held.free()
    closer.join(30)
    assert [future.result(30) for future in futures] == [0, 1, 2]


@pytest.mark.parametrize("ask", ["call", "map", "stream", "acall", "astream", "close"])
def test_a_stage_or_callback_cannot_wait_for_its_own_pipeline(ask):
    def asks():
        match ask:
            case "close":
                made.close()
            case "acall":
                asyncio.run(made.acall(0))
            case "astream":
                asyncio.run(anext(made.astream(0)))
            case "call":
                made.call(0)
            case _:
                next(getattr(made, ask)([0]))

    def inner(items):
        assert goes_on.wait(30)
        with pytest.raises(SettingError, match="cannot wait for its own batcher: submit does not"):
            asks()
        return items

    def told(future):
        inner([])
        heard.append(future.result())

    heard, goes_on = [], threading.Event()
    with Pipeline(stage(same) >> inner) as made:
        future = made.submit(1)
        future.add_done_callback(told)
        goes_on.set()
        assert future.result(30) == 1
    assert heard == [1]


def test_a_rows_callback_that_raises_does_not_lose_an_answer(caplog):
    def broken(row):
        raise RuntimeError("no")

    with Pipeline(stage(same) >> same, rows=broken) as made:
        assert made.call(1) == 1 and made.call(2) == 2
    assert "`rows` failed" in caplog.text


def test_a_split_must_fit_the_stages():
    with pytest.raises(SettingError, match="2 shares do not fit 1 stages"):
        Pipeline(stage(same), split=Fixed((0.5, 0.5)))
    for shares in ((0.5, 0.6), (1.0, float("nan")), (float("nan"), 1.0), ()):
        with pytest.raises(SettingError, match="sum to 1"):
            Fixed(shares)


@pytest.mark.parametrize("deadline", [-1, float("nan"), float("inf"), 1e300])
def test_a_deadline_that_cannot_be_kept_is_refused(deadline):
    with pytest.raises(SettingError, match="cannot be kept"):
        Pipeline(stage(same), deadline=deadline)
    with Pipeline(stage(same)) as made, pytest.raises(SettingError, match="cannot be kept"):
        made.call(1, deadline=deadline)
