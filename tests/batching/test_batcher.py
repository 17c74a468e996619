"""Any function, batched: the real engine, threads and event loops."""

import asyncio
import copy
import gc
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections import Counter, UserDict
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial

import anyio
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import headway
from headway.batching.async_pieces import AsyncPieces
from headway.batching.calling import ProcessDiedError, WrongResultsError
from headway.batching.executor import SharedError
from headway.batching.item import Deliveries, FutureSink, Item, LoopSink, Offer, Result
from headway.batching.line import Waiting
from headway.core.lane import Budget, Lane
from headway.core.load import LaneLoad, Load
from headway.core.request import NEVER, Finish
from headway.errors import (
    DeadlineError,
    EngineDownError,
    PromptError,
    RefusedError,
    SettingError,
)
from headway.live.engine import FORKED
from tests.batching.in_processes import coded, consuming, negated


def doubled(items):
    return [2 * item for item in items]


def test_items_become_calls_of_lists_and_each_has_its_own_result(held):
    held.function = doubled
    with headway.Batcher(held, size=4) as batcher:
        futures = [batcher.submit(0)]
        assert held.began.acquire(timeout=30)
        futures += [batcher.submit(item) for item in range(1, 10)]
        held.free()
        assert [future.result(30) for future in futures] == doubled(range(10))
    assert held.calls == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9]]


def test_map_keeps_the_order_and_holds_no_more_than_the_lane():
    with headway.Batcher(doubled, size=4, max_waiting=8) as batcher:
        assert list(batcher.map(range(500))) == doubled(range(500))
        mapped = batcher.map(iter(int, 1))  # an input without end
        assert [next(mapped) for _ in range(5)] == [0] * 5
        mapped.close()
        with pytest.raises(SettingError, match="no lane 'fast'; there are default"):
            list(batcher.map([1], lane="fast"))


def test_map_waits_for_its_own_items_where_others_fill_the_lane(held):
    with headway.Batcher(held, size=4, max_waiting=8) as batcher:
        batcher.submit(0)
        assert held.began.acquire(timeout=30)
        others = [batcher.submit(item) for item in range(7)]
        mapped = batcher.map(range(20))
        first = threading.Thread(target=lambda: others.append(next(mapped)))
        first.start()  # one place is left: its second item waits for its first
        held.free()
        first.join(30)
        assert [others[-1], *mapped] == list(range(20))


def test_map_is_refused_if_other_items_fill_the_lane(held):
    with headway.Batcher(held, max_waiting=1) as batcher:
        batcher.submit(0)
        assert held.began.acquire(timeout=30)
        batcher.submit(1)
        with pytest.raises(RefusedError, match="1 items wait"):
            list(batcher.map([2]))
        held.free()


def test_map_cancels_the_items_after_the_first_error(held):
    held.function = picky
    with headway.Batcher(held, size=1) as batcher:
        held.go.release(1)
        with pytest.raises(ValueError, match="-1 is negative"):
            list(batcher.map([-1, 1, 2, 3, 4]))
        held.free()
    assert held.calls in ([[-1]], [[-1], [1]]), "one had begun at most"


def test_a_batcher_can_be_closed_twice():
    batcher = headway.Batcher(doubled)
    assert batcher.call(3) == 6
    batcher.close()
    batcher.close()
    with pytest.raises(EngineDownError):
        batcher.call(3)


def test_a_closed_batcher_refuses_calls_from_any_thread():
    """A thread may get the identifier of the function's thread, which has ended."""
    batcher, ends = headway.Batcher(doubled), []
    assert batcher.call(3) == 6
    batcher.close()

    def call():
        together.wait(30)
        with pytest.raises(EngineDownError):
            batcher.call(3)
        ends.append(None)

    together = threading.Barrier(8)
    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(ends) == 8


def test_any_sequence_counts_as_a_list_of_results():
    with headway.Batcher(lambda items: np.array(items) + 1) as batcher:
        assert batcher.call(3) == 4
    with headway.Batcher(tuple) as batcher:
        assert batcher.call(3) == 3


class Fewer(list):
    """A list that is shorter than its length says."""

    def __len__(self):
        return 2


class Frame:
    """Like a DataFrame of two rows: its list has the names of its columns."""

    columns = ("score", "label")

    def __len__(self):
        return 2

    def __iter__(self):
        return iter(self.columns)


@pytest.mark.parametrize(
    "result, said",
    [
        ([1], "1 results for 2 items"),
        (Fewer([1]), "results for 2 items"),
        (None, "a NoneType for 2 items"),
        ("ab", "a str, not a list"),
        ({1: 2, 3: 4}, "a dict, not a list"),
        (bytearray(b"ab"), "a bytearray, not a list"),
        (Frame(), "a Frame, not a list"),
        (UserDict(input_ids=[[1], [2]], attention_mask=[[1], [1]]), "a UserDict, not a list"),
    ],
)
def test_a_wrong_list_of_results_fails_each_item_of_its_call(held, result, said):
    held.function = lambda items: result if len(items) == 2 else items
    with headway.Batcher(held) as batcher:
        first = batcher.submit(0)
        assert held.began.acquire(timeout=30)
        two = [batcher.submit(1), batcher.submit(2)]
        held.free()
        assert first.result(30) == 0
        for future in two:
            with pytest.raises(SharedError, match=said) as raised:
                future.result(30)
            assert isinstance(raised.value.__cause__, WrongResultsError)
        assert batcher.call(7) == 7
    assert len(held.calls) == 3, "it is not repeated"


async def aconsuming(items):
    return consuming(items)


@pytest.mark.parametrize("function, processes", [(consuming, 0), (aconsuming, 0), (consuming, 1)])
def test_a_function_may_empty_the_list_that_it_gets(function, processes):
    with headway.Batcher(function, size=2, window=900, processes=processes) as batcher:
        futures = [batcher.submit(item) for item in range(2)]
        assert [future.result(30) for future in futures] == [0, 1]


def test_a_function_that_returns_its_list_with_an_item_more_has_a_wrong_list():
    def function(items):
        items.append(0)
        return items

    with (
        headway.Batcher(function) as batcher,
        pytest.raises(WrongResultsError, match="2 results for 1 items"),
    ):
        batcher.call(1)


def draining(items):
    while items:
        yield [item.pop() for item in items]
        items.pop()


async def adraining(items):
    for pieces in draining(items):
        yield pieces


@pytest.mark.parametrize("function", [draining, adraining])
def test_each_list_of_pieces_has_one_of_each_item_of_the_call(function):
    with headway.Batcher(function, size=2, window=900) as batcher, ThreadPoolExecutor() as pool:
        other = pool.submit(list, batcher.stream([1, 2]))
        with pytest.raises(SharedError, match="1 results for 2 items"):
            list(batcher.stream([3, 4]))
        with pytest.raises(SharedError, match="1 results for 2 items"):
            other.result(30)


def picky(items):
    if bad := [item for item in items if item < 0]:
        raise ValueError(f"{bad[0]} is negative")
    return items


def test_the_item_that_makes_a_call_raise_is_found_and_fails_alone(held, caplog):
    held.function = picky
    with headway.Batcher(held, size=16) as batcher:
        futures = [batcher.submit(0)]
        assert held.began.acquire(timeout=30)
        futures += [batcher.submit(item) for item in (1, 2, -3, 4, 5, 6, 7, 8)]
        held.free()
        for item, future in zip((0, 1, 2, -3, 4, 5, 6, 7, 8), futures, strict=True):
            if item < 0:
                with pytest.raises(ValueError, match="-3 is negative"):
                    future.result(30)
            else:
                assert future.result(30) == item
    assert len(held.calls) <= 1 + 2 * 3 + 1, "halves, and not one by one"
    assert caplog.messages == ["a call of 1 items failed: ValueError: -3 is negative"]


class ComputedAsRead:
    """Results that are computed one by one, as they are read."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        for item in self.items:
            if isinstance(item, BaseException):
                raise item
            yield item


class Speechless(Exception):
    """An error that raises another one when its message is read."""

    def __str__(self):
        raise AttributeError("there is no message")


@pytest.mark.parametrize("computed", [ComputedAsRead, list])
@pytest.mark.parametrize("error", [ValueError("no"), Speechless(), KeyboardInterrupt()])
def test_an_odd_error_or_result_fails_its_item_and_an_interrupt_all_items(held, computed, error):
    def function(items):
        for item in items:
            if isinstance(item, BaseException) and computed is list:
                raise item
        return computed(items)

    held.function = function
    with headway.Batcher(held) as batcher:
        futures = [batcher.submit(0)]
        assert held.began.acquire(timeout=30)
        futures += [batcher.submit(item) for item in (1, error, 3)]
        held.free()
        one, other = futures[1], futures[3]
        if isinstance(error, Exception):
            assert (one.result(30), other.result(30)) == (1, 3)
            assert futures[2].exception(30) is error
        else:  # an interrupt is not searched for in halves
            assert isinstance(other.exception(30), SharedError)
        assert batcher.call(7) == 7 and not batcher.down


def test_the_search_in_halves_leaves_out_items_that_were_cancelled(held):
    held.function = lambda items: 1 / 0
    with headway.Batcher(held, size=8, window=900) as batcher:
        futures = [batcher.submit(item) for item in range(8)]
        assert held.began.acquire(timeout=30)
        assert all(futures[item].cancel() for item in (1, 2, 3, 4, 5, 6))
        held.free()
        for future in (futures[0], futures[7]):
            with pytest.raises(ZeroDivisionError):
                future.result(30)
    assert held.calls == [[*range(8)], [0], [7]]


def test_with_on_error_together_all_items_of_a_failed_call_fail(held):
    held.function = picky
    with headway.Batcher(held, on_error="together") as batcher:
        batcher.submit(0)
        assert held.began.acquire(timeout=30)
        futures = [batcher.submit(item) for item in (1, -2)]
        held.free()
        for future in futures:
            with pytest.raises(SharedError, match="the call of 2 items failed: -2 is negative"):
                future.result(30)
    assert len({id(future.exception()) for future in futures}) == 2, "each has its own"


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt()])
def test_an_exception_that_would_end_a_thread_is_an_error_of_its_item(error):
    def function(items):
        if "bad" in items:
            raise error
        return [error if item == "worse" else item for item in items]

    async def pieces(items):
        yield items
        if "bad" in items:
            raise error
        yield [error if item == "worse" else headway.DONE for item in items]

    async def ask(batcher, item):
        return await asyncio.gather(batcher.acall(item), return_exceptions=True)

    def check(raised):
        assert str(raised) == f"the function failed with {error!r}"
        assert type(raised.__cause__) is type(error)

    with headway.Batcher(function) as batcher, headway.Batcher(pieces) as streams:
        for item in ("bad", "worse"):
            check(*asyncio.run(ask(batcher, item)))
            check(batcher.submit(item).exception(30))
            stream = streams.stream(item)
            assert next(stream) == item
            with pytest.raises(RuntimeError) as raised:
                next(stream)
            check(raised.value)
        assert (batcher.call("a"), list(streams.stream("a"))) == ("a", ["a"])


@pytest.mark.parametrize("error, failed", [(SystemExit(1), 1), (KeyboardInterrupt(), 3)])
def test_an_exit_is_searched_for_in_halves_and_an_interrupt_is_not(held, error, failed):
    def function(items):
        if "bad" in items:
            raise error
        return items

    held.function = function
    with headway.Batcher(held) as batcher:
        batcher.submit("a")
        assert held.began.acquire(timeout=30)
        futures = [batcher.submit(item) for item in ("bad", "b", "c")]
        held.free()
        errors = [future.exception(30) for future in futures]
    assert len([each for each in errors if each]) == failed


def test_an_exception_in_a_results_place_is_that_items_error():
    def function(items):
        return [KeyError(item) if item == 2 else item for item in items]

    with headway.Batcher(function) as batcher:
        futures = [batcher.submit(item) for item in range(4)]
        assert [futures[at].result(30) for at in (0, 1, 3)] == [0, 1, 3]
        with pytest.raises(KeyError):
            futures[2].result(30)


class NoFaults(Exception):
    """An error that is empty, and so counts as false."""

    def __len__(self):
        return 0


def test_an_error_that_counts_as_false_still_fails_its_item():
    def function(items):
        if "raised" in items:
            raise NoFaults
        return [NoFaults() for _ in items]

    def pieces(items):
        yield [NoFaults() for _ in items]

    with headway.Batcher(function) as batcher:
        for item in ("raised", "in place"):
            with pytest.raises(RuntimeError, match="the function failed with NoFaults") as raised:
                batcher.call(item)
            assert type(raised.value.__cause__) is NoFaults
    with headway.Batcher(pieces) as batcher, pytest.raises(RuntimeError, match="NoFaults"):
        next(batcher.stream("a piece"))


def test_a_full_lane_refuses_at_once_and_leaves_other_lanes_free(held):
    with headway.Batcher(held, size=1, max_waiting=2, lanes={"a": None, "b": None}) as batcher:
        running = [batcher.submit(0)]
        assert held.began.acquire(timeout=30)
        waiting = [batcher.submit(1), batcher.submit(2)]
        with pytest.raises(RefusedError, match="2 items wait in 'a' already"):
            batcher.submit(3)
        other = batcher.submit(9, lane="b")
        held.free()
        assert [future.result(30) for future in [*running, *waiting, other]] == [0, 1, 2, 9]
        for item in range(50):  # no ended item holds a place
            assert batcher.call(item) == item


def test_a_refusal_counts_the_waiting_items_and_the_rest_of_the_running_call():
    second, costs = 10**9, (10, 20, 30)
    new = [Item("", "a", FutureSink(), cost=cost) for cost in costs]
    load = Load(lanes={"a": LaneLoad(Lane("a", max_waiting=2), 0, 0, 10.0)}, begins=7 * second)
    line = Waiting()
    line.enter(new[:1], load, 0)
    line.enter(new[1:2], load, 0)
    with pytest.raises(RefusedError, match="2 items wait in 'a' already; try again in 8 s") as said:
        line.enter(new[2:], load, 2 * second)
    assert said.value.retry_at == 10 * second
    with pytest.raises(RefusedError, match="3 items come together, and no more than 2 may") as said:
        line.enter(new, load, 0)
    assert said.value.retry_at == NEVER
    counted = line.counted(load).lanes["a"]
    assert (counted.waiting, counted.tokens) == (2, 30)
    line.leave(new)
    assert line.counted(load) == load


def test_an_item_that_is_cancelled_holds_no_place_while_a_call_runs(held):
    with headway.Batcher(held, max_waiting=1) as batcher:
        running = batcher.submit(0)
        assert held.began.acquire(timeout=30)
        for _ in range(3):
            assert batcher.submit(1).cancel()
        last = batcher.submit(2)
        held.free()
        assert (running.result(30), last.result(30)) == (0, 2)


@pytest.mark.parametrize("more", [{}, {"cost": len, "buckets": (8,)}])
def test_a_full_lane_counts_its_waiting_items_while_a_call_runs(held, more):
    with headway.Batcher(held, size=4, max_waiting=3, **more) as batcher:
        held.go.release()
        assert batcher.call("ab") == "ab"
        running = batcher.submit("ab")
        for _ in range(2):
            assert held.began.acquire(timeout=30)
        waiting = [batcher.submit("abc") for _ in range(3)]
        line = batcher.load.lanes["default"]
        assert (line.waiting, line.tokens) == (3, 9 if more else 3)
        with pytest.raises(RefusedError, match="3 items wait in 'default' already; try") as said:
            batcher.submit("d")
        assert said.value.retry_at > time.monotonic_ns()
        held.free()
        assert [each.result(30) for each in (running, *waiting)] == ["ab", *["abc"] * 3]


def test_an_unknown_lane_is_refused():
    with (
        headway.Batcher(doubled) as batcher,
        pytest.raises(SettingError, match="there is no lane 'x'; there are default"),
    ):
        batcher.submit(1, lane="x")


@pytest.mark.parametrize(
    "lanes",
    [
        {"offline": None, "chat": 600.0},
        {"offline": 900.0, "chat": 600.0},
        {"offline": Lane("offline", priority=1), "chat": Lane("chat")},
    ],
)
def test_the_lane_with_the_earlier_deadline_or_the_lower_priority_is_called_first(held, lanes):
    # With buckets, a call is decided once the one before it has ended: here, when all items wait.
    bucketed = {"cost": lambda item: 1, "buckets": (1,)}
    with headway.Batcher(held, size=2, lanes=lanes, **bucketed) as batcher:
        batcher.submit(0)
        assert held.began.acquire(timeout=30)
        futures = [batcher.submit(item, lane="offline") for item in (1, 2)]
        futures += [batcher.submit(item, lane="chat") for item in (3, 4)]
        held.free()
        assert [future.result(30) for future in futures] == [1, 2, 3, 4]
    assert held.calls == [[0], [3, 4], [1, 2]]


def test_an_item_that_waits_past_its_deadline_is_dropped(held):
    with headway.Batcher(held, size=1) as batcher:
        first = batcher.submit(0)
        assert held.began.acquire(timeout=30)
        late = batcher.submit(1, deadline=1e-9)
        held.free()
        assert first.result(30) == 0
        with pytest.raises(DeadlineError, match="the item's deadline was over"):
            late.result(30)
        with pytest.raises(SettingError, match="a deadline of -1 seconds cannot be kept"):
            batcher.submit(1, deadline=-1)
    assert held.calls == [[0]]
    assert issubclass(DeadlineError, TimeoutError)


@pytest.mark.parametrize("more", [{}, {"cost": len, "buckets": (8,)}])
def test_a_missed_deadline_is_raised_while_the_function_hangs(held, more):
    with headway.Batcher(held, **more) as batcher:
        futures = [batcher.submit("a")]
        assert held.began.acquire(timeout=30)
        futures += [batcher.submit("b", deadline=1e12), batcher.submit("c")]
        for _ in range(2):
            with pytest.raises(DeadlineError):
                batcher.submit("d", deadline=0.01).result(30)
        assert batcher.load.lanes["default"].waiting == 2
        held.free()
        assert [future.result(30) for future in futures] == ["a", "b", "c"]


def test_a_missed_deadline_is_raised_while_a_generator_hangs():
    began, go = threading.Event(), threading.Event()

    def hanging(items):
        began.set()
        assert go.wait(30)
        yield items

    with headway.Batcher(hanging) as batcher, ThreadPoolExecutor() as pool:
        first = pool.submit(list, batcher.stream(1))
        assert began.wait(30)
        with pytest.raises(DeadlineError):
            list(batcher.stream(2, deadline=0.01))
        assert not first.done()
        go.set()
        assert first.result(30) == [1]


def test_a_missed_deadline_is_raised_while_a_generators_cleanup_hangs():
    closing, end = threading.Event(), threading.Event()

    def function(items):
        try:
            while True:
                yield items
        finally:
            closing.set()
            assert end.wait(60)

    with headway.Batcher(function) as batcher, ThreadPoolExecutor() as pool:
        left = batcher.stream("leaves")
        assert next(left) == "leaves"
        left.close()
        assert closing.wait(30)
        late = [pool.submit(list, batcher.stream(item, deadline=0.1)) for item in range(2)]
        try:
            for each in late:
                with pytest.raises(DeadlineError, match="the item's deadline was over"):
                    each.result(30)
        finally:
            end.set()


def test_a_cancelled_item_is_not_called(held):
    rows = []
    batcher = headway.Batcher(held, size=4, rows=lambda steps, items: rows.extend(items))
    first = batcher.submit(0)
    assert held.began.acquire(timeout=30)
    one, two = batcher.submit(1), batcher.submit(2)
    assert one.cancel()
    held.free()
    assert (first.result(30), two.result(30)) == (0, 2)
    batcher.close()
    assert held.calls == [[0], [2]]
    assert Counter(row.finish for row in rows) == {Finish.COMPUTED: 2, Finish.CANCELLED: 1}


def test_waiting_for_a_cancelled_item_ends(held, caplog):
    with headway.Batcher(held, size=1) as batcher:
        first = batcher.submit(0)
        assert held.began.acquire(timeout=30)
        second = batcher.submit(1)
        assert second.cancel()
        held.free()
        assert wait([first, second], timeout=30).not_done == set()
    assert caplog.messages == []


def test_cancelling_a_task_cancels_its_item(held, caplog):
    async def main(batcher):
        first = asyncio.create_task(batcher.acall(0))
        assert await asyncio.to_thread(held.began.acquire, timeout=30)
        task = asyncio.create_task(batcher.acall(1))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        third = asyncio.create_task(batcher.acall(2))
        await asyncio.sleep(0)
        held.free()
        return await first, await third

    with headway.Batcher(held) as batcher:
        assert asyncio.run(main(batcher)) == (0, 2)
    assert held.calls == [[0], [2]] and caplog.messages == []


def test_close_calls_the_waiting_items_and_takes_no_new_ones(held):
    batcher = headway.Batcher(held, size=8, window=1e6)
    futures = [batcher.submit(item) for item in range(3)]
    held.free()
    batcher.close()
    assert [future.result(0) for future in futures] == [0, 1, 2]
    with pytest.raises(EngineDownError, match="closed"):
        batcher.submit(4)


def test_the_budget_of_a_lane_ends_a_window_early():
    """The window alone would be a quarter of an hour."""
    with headway.Batcher(doubled, size=99, window=900, lanes={"fast": 0.05}) as batcher:
        assert [batcher.submit(2).result(30) for _ in range(3)] == [4] * 3


def test_items_are_grouped_by_their_bucket_and_padded_to_it(held):
    def pad(item, cost):
        return item + "." * (cost - len(item))

    rows = []
    keep = lambda steps, items: rows.extend(steps)  # noqa: E731
    with headway.Batcher(held, cost=len, buckets=(4, 8), pad=pad, rows=keep) as batcher:
        batcher.submit("x")
        assert held.began.acquire(timeout=30)
        texts = ["abc", "abcdef", "ab", "abcdefgh", "abcdefghijk"]
        futures = [batcher.submit(text) for text in texts]
        held.free()
        results = [future.result(30) for future in futures]
    assert results == ["abc.", "abcdef..", "ab..", "abcdefgh", "abcdefghijk"]
    assert held.calls == [["x..."], ["abc.", "ab.."], ["abcdef..", "abcdefgh"], ["abcdefghijk"]]
    assert [(row.tokens, row.padding_tokens) for row in rows] == [(1, 3), (5, 3), (14, 2), (11, 0)]


def test_a_call_of_several_items_costs_at_most_max_cost(held):
    with headway.Batcher(held, cost=len, max_cost=5) as batcher:
        batcher.submit("x")
        assert held.began.acquire(timeout=30)
        futures = [batcher.submit(text) for text in ("aa", "bbb", "cc", "d" * 9)]
        held.free()
        for future in futures:
            future.result(30)
    assert held.calls[1:] == [["aa", "bbb"], ["cc"], ["d" * 9]]


@pytest.mark.parametrize("on_error", ["bisect", "together"])
@pytest.mark.parametrize("items", [(1, -2, 3), (-1, -2, -3)])
def test_a_padding_that_raises_fails_its_item_alone(caplog, items, on_error):
    def pad(item, cost):
        if item < 0:
            raise ValueError(f"no padding for {item}")
        return 10 * item

    more = {"cost": abs, "buckets": (4,), "pad": pad, "on_error": on_error}
    with (
        headway.Batcher(doubled, size=3, window=900, **more) as batcher,
        headway.Batcher(counting, size=3, window=900, **more) as streams,
        ThreadPoolExecutor() as pool,
    ):
        futures = [(each, batcher.submit(each)) for each in items]
        pieces = [(each, pool.submit(list, streams.stream(each))) for each in items]
        for each, future in (*futures, *pieces):
            if each < 0:
                with pytest.raises(ValueError, match=f"no padding for {each}"):
                    future.result(30)
        assert [future.result(30) for each, future in futures if each > 0] == [
            20 * each for each in items if each > 0
        ]
        assert [future.result(30) for each, future in pieces if each > 0] == [
            [f"{each}0{step}" for step in range(3)] for each in items if each > 0
        ]
    assert set(caplog.messages) == {
        f"the padding of an item failed: ValueError: no padding for {each}"
        for each in items
        if each < 0
    }


def test_a_cost_may_be_one_of_numpys_whole_numbers():
    rows = []

    def kept(steps, items):
        rows.extend(items)

    with headway.Batcher(doubled, cost=lambda item: np.int64(3), rows=kept) as batcher:
        assert batcher.call(4) == 8
    assert [(row.prompt, type(row.prompt)) for row in rows] == [(3, int)]


@pytest.mark.parametrize("cost", [0, -1, 1.5, None, 10**9, np.int64(0), np.float64(2)])
def test_an_invalid_cost_is_refused(cost):
    with (
        headway.Batcher(doubled, cost=lambda item: cost) as batcher,
        pytest.raises(PromptError, match="not a whole number"),
    ):
        batcher.call(3)


def test_the_cost_of_an_item_takes_no_memory():
    most = 1_000_000
    with (
        headway.Batcher(doubled, cost=lambda item: most) as batcher,
        headway.Batcher(counting, cost=lambda item: most) as streams,
    ):
        batcher.call(0), list(streams.stream("a"))  # makes what is made only once
        tracemalloc.start()
        try:
            futures = [batcher.submit(item) for item in range(8)]
            assert [future.result(30) for future in futures] == [0, 2, 4, 6, 8, 10, 12, 14]
            assert list(streams.stream("b")) == ["b0"]
            assert tracemalloc.get_traced_memory()[1] < most
        finally:
            tracemalloc.stop()
        assert batcher.load.lanes["default"].tokens == 0


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"sise": 3}, "there is no setting 'sise'"),
        ({"size": 0}, "a batch has 1 item or more"),
        ({"size": 2.5}, "size must be a whole number, not 2.5"),
        ({"size": 10**9}, "size is 1,000,000 at most"),
        ({"processes": "2"}, "processes must be a whole number, not '2'"),
        ({"window": -1}, "window: -1 is no time"),
        ({"window": float("nan")}, "window: nan is no time"),
        ({"windows": {"x": 1}}, "a window names no lane"),
        ({"windows": {"default": -1}}, "default: -1 is no time"),
        ({"lanes": {}}, "needs a lane"),
        ({"lanes": {"a": 0}}, "a budget of 0 seconds"),
        ({"lanes": {"a": Lane("b")}}, "is a Lane of the name 'b'"),
        ({"lanes": {"a": Lane("a", late="refuse")}}, "lane 'a': late='refuse' is for models"),
        ({"lanes": {"a": Lane("a", late="take")}}, "lane 'a': late='take' is for models"),
        ({"max_waiting": 0}, "max_waiting must be 1 or more"),
        ({"max_waiting": float("nan")}, "max_waiting must be a whole number, not nan"),
        ({"max_waiting": float("inf")}, "max_waiting must be a whole number, not inf"),
        ({"max_cost": 3}, "need `cost`"),
        ({"max_cost": -3, "cost": len}, "max_cost must be 0 or more"),
        ({"buckets": (3,)}, "need `cost`"),
        ({"buckets": (3, 3), "cost": len}, "positive and ascending"),
        ({"pad": max}, "`pad` needs buckets"),
        ({"on_error": "ignore"}, "on_error is"),
        ({"processes": -1}, "-1 processes"),
    ],
)
def test_invalid_settings_are_refused(wrong, said):
    with pytest.raises(SettingError, match=said):
        headway.Batcher(doubled, **wrong)


def test_a_given_lane_object_is_used_unchanged(held):
    lanes = {"a": Lane("a", Budget(e2e=10**9), max_waiting=1)}
    with headway.Batcher(held, size=1, lanes=lanes) as batcher:
        assert batcher.load.lanes["a"].lane == lanes["a"]


# -- asyncio


def test_an_async_function_runs_in_one_loop_for_callers_of_any_loop():
    loops = set()

    async def function(items):
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return doubled(items)

    async def main(batcher):
        return await asyncio.gather(*[batcher.acall(item) for item in range(50)])

    with headway.Batcher(function) as batcher:
        assert asyncio.run(main(batcher)) == doubled(range(50))
        assert asyncio.run(main(batcher)) == doubled(range(50))
        assert batcher.call(4) == 8
    assert len(loops) == 1


@pytest.mark.parametrize("in_place", [False, True])
def test_a_stop_iteration_fails_its_item_alone_as_a_runtime_error(held, in_place):
    """A future of asyncio cannot hold a StopIteration."""

    def function(items):
        if "bad" in items and not in_place:
            next(iter(()))
        return [StopIteration() if item == "bad" else item for item in items]

    async def main(batcher):
        first = asyncio.create_task(batcher.acall("a"))
        assert await asyncio.to_thread(held.began.acquire, timeout=30)
        calls = [asyncio.create_task(batcher.acall(item)) for item in ("b", "bad", "c", "d")]
        await asyncio.sleep(0)
        held.free()
        async with asyncio.timeout(30):
            return await asyncio.gather(first, *calls, return_exceptions=True)

    held.function = function
    with headway.Batcher(held) as batcher:
        first, second, error, *others = asyncio.run(main(batcher))
        assert [first, second, *others] == ["a", "b", "c", "d"]
        assert isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration)
        assert str(error) == "the function failed with StopIteration()"
        with pytest.raises(RuntimeError, match=r"failed with StopIteration\(\)"):
            batcher.call("bad")


def test_a_sink_that_raises_does_not_affect_the_other_sinks(caplog):
    async def main():
        deliveries, sink, broken = Deliveries(), LoopSink(), LoopSink()
        broken.take = None
        deliveries.add(broken, Result(1))
        deliveries.add(sink, Result(2))
        deliveries.send()
        async with asyncio.timeout(30):
            return await sink.future

    assert asyncio.run(main()) == 2
    assert caplog.messages == ["a caller could not be told its result"]


def test_what_callbacks_rows_or_staged_raise_is_logged_and_stops_nothing(held, caplog):
    def exits(future):
        raise SystemExit(1)

    def fails(*told):
        raise ValueError("not kept")

    with headway.Batcher(held, rows=fails, staged=fails) as batcher:
        futures = [batcher.submit(item) for item in range(3)]
        for future in futures:
            future.add_done_callback(exits)
        held.free()
        assert [future.result(30) for future in futures] == [0, 1, 2]
        assert batcher.call(3) == 3
        assert not batcher.down
    assert set(caplog.messages) == {
        "a caller could not be told its result",
        "`rows` failed after a call",
        "`staged` failed after a call",
    }


@pytest.mark.parametrize("ask", ["call", "close", "map", "stream", "acall", "astream"])
def test_a_function_or_callback_cannot_wait_for_its_own_batcher(ask):
    """While it waits, the function's thread calls nothing and the engine's answers nobody."""

    def asks(item):
        match ask:
            case "close":
                batcher.close()
            case "acall":
                asyncio.run(batcher.acall(item))
            case "astream":
                asyncio.run(anext(batcher.astream(item)))
            case _:
                list(getattr(batcher, ask)([item]))

    def function(items):
        assert goes_on.wait(30)
        with pytest.raises(SettingError, match="cannot wait for its own batcher"):
            asks(0)
        return items

    def pieces(items):
        yield function(items)

    def told(future):
        with pytest.raises(SettingError, match="cannot wait for its own batcher"):
            asks(0)
        heard.set()

    heard, goes_on = threading.Event(), threading.Event()
    streams = ask in ("stream", "astream")
    batcher = headway.Batcher(pieces if streams else function)
    if streams:
        goes_on.set()
        assert list(batcher.stream(1)) == [1]
    else:
        future = batcher.submit(1)
        future.add_done_callback(told)
        goes_on.set()
        assert future.result(30) == 1 and heard.wait(30)
    batcher.close()
    batcher.close()


class Settled:
    """Counts how often an account is settled; `begun` waits until it may go on."""

    def __init__(self):
        self.count, self.entered, self.go = 0, threading.Event(), threading.Event()

    def begun(self):
        self.entered.set()
        assert self.go.wait(30)

    def settled(self, row):
        self.count += 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_offer_during_the_engines_end_fails_every_item_once(held):
    """Every item hears of the end once, even items after one whose offer has just failed."""

    def exits(steps, items):
        if items:
            raise SystemExit(1)

    class Fails(FutureSink):
        def take(self, news):  # in the engine's thread, as it goes through the open items
            account.go.set()
            assert failed.wait(30)
            super().take(news)

    def offers():
        with pytest.raises(EngineDownError):
            batcher.offer([Offer(2, FutureSink()), Offer(3, FutureSink(), account)])
        failed.set()

    account, failed, first = Settled(), threading.Event(), Fails()
    batcher = headway.Batcher(held, rows=exits, max_waiting=8)
    batcher.offer([Offer(1, first)])
    with ThreadPoolExecutor(1) as pool:
        offered = pool.submit(offers)
        assert account.entered.wait(30)
        last = batcher.submit(4)
        held.free()
        offered.result(30)
        for future in (first.future, last):
            assert isinstance(future.exception(30), EngineDownError)
    batcher.close()
    assert account.count == 1 and not batcher.load.lanes["default"].waiting


def test_an_account_that_raises_does_not_affect_the_items(caplog):
    class Broken:
        def begun(self):
            pass

        def settled(self, row):
            raise ValueError("not kept")

    async def main():
        async with asyncio.timeout(30):
            return await batcher.acall(1, account=Broken()), await batcher.acall(2)

    with headway.Batcher(doubled) as batcher:
        assert asyncio.run(main()) == (2, 4)
    assert caplog.messages == ["an account could not be settled"]


class Counting:
    """An object that is called as a generator function."""

    def __call__(self, items):
        return (yield from counting(items))


class AsyncCounting:
    async def __call__(self, items):
        async for pieces in acounting(items):
            yield pieces


class AsyncDoubled:
    async def __call__(self, items):
        return doubled(items)


def test_an_object_is_called_as_its_call_method_wants():
    with headway.Batcher(AsyncDoubled()) as batcher:
        assert batcher.call(3) == 6
    later = headway.batch(AsyncDoubled())
    assert asyncio.run(later(3)) == 6
    later.close()
    for kind in (Counting, AsyncCounting):
        with headway.Batcher(kind()) as batcher:
            assert list(batcher.stream("a")) == ["a0", "a1", "a2"]
    with headway.Batcher(AsyncList) as batcher:
        assert batcher.call(3) == 3, "a class makes an object"


class AsyncList(list):
    async def __call__(self):
        """Nothing that makes the class a coroutine function."""


def test_a_batcher_of_an_async_function_can_be_closed_inside_an_event_loop():
    async def function(items):
        return items

    async def main():
        with headway.Batcher(function) as batcher:
            return await batcher.acall(1)

    assert asyncio.run(main()) == 1


# -- streams


def counting(items):
    for step in range(3):
        pieces = [f"{item}{step}" for item in items]
        yield [headway.DONE if step and piece[0] == "b" else piece for piece in pieces]


async def acounting(items):
    for pieces in counting(items):
        await asyncio.sleep(0)
        yield pieces


@pytest.mark.parametrize("function", [counting, acounting])
def test_a_generator_streams_its_pieces(function):
    async def main(batcher):
        return [piece async for piece in batcher.astream("c")]

    with headway.Batcher(function) as batcher:
        assert list(batcher.stream("a")) == ["a0", "a1", "a2"]
        assert list(batcher.stream("b")) == ["b0"]
        assert asyncio.run(main(batcher)) == ["c0", "c1", "c2"]
        with pytest.raises(SettingError, match="yields pieces: use stream"):
            batcher.call("a")


async def timed(items):
    async with asyncio.timeout(0.05):
        yield items
        await asyncio.Event().wait()  # would be for ever


async def timed_between(items):
    async with asyncio.timeout(0.01):
        for _ in iter(int, 1):
            yield items


async def grouped(items):
    async def fail():
        await began.wait()
        raise OSError("gone")

    began = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        yield items
        began.set()
        await asyncio.Event().wait()


async def grouped_between(items):
    async def fail():
        raise OSError("gone")

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        yield items
        yield items


async def scoped(items):
    with anyio.fail_after(0.05):
        yield items
        await anyio.sleep_forever()


@pytest.mark.parametrize(
    "function, error",
    [
        (timed, TimeoutError),
        (timed_between, TimeoutError),
        (grouped, ExceptionGroup),
        (grouped_between, ExceptionGroup),
        (scoped, TimeoutError),
    ],
)
def test_a_timeout_or_a_task_group_around_a_yield_ends_an_async_generator(function, error):
    with headway.Batcher(function) as batcher:
        for _ in range(2):
            pieces = batcher.stream(1)
            assert next(pieces) == 1
            with pytest.raises(error):
                list(pieces)


def test_an_async_generator_is_closed_with_what_it_has_open(caplog):
    closed = threading.Event()

    async def function(items):
        async with asyncio.timeout(900):
            try:
                for _ in iter(int, 1):
                    yield items
            finally:
                await asyncio.sleep(0)
                closed.set()

    with headway.Batcher(function) as batcher:
        for _ in range(2):
            pieces = batcher.stream(1)
            assert next(pieces) == 1
            pieces.close()
            assert closed.wait(30)
            closed.clear()
    assert caplog.messages == []


@pytest.mark.parametrize("ends", [True, False])
def test_an_async_generator_that_was_cancelled_between_two_pieces_is_closed(ends):
    closed = []

    async def function():
        try:
            asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
            yield 1
        except asyncio.CancelledError:
            if not ends:
                yield 2
        finally:
            closed.append(True)

    with asyncio.Runner() as runner:
        pieces = AsyncPieces(function(), runner.get_loop())
        assert next(pieces) == 1
        pieces.close()
        assert closed == [True]
        assert list(pieces) == []


@pytest.mark.parametrize("ends", [True, False])
def test_an_async_generator_that_is_cancelled_just_after_a_piece_loses_none(ends, caplog):
    async def function():
        loop, task, turn = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()

        def cancel_after_the_piece():
            turn.set()
            loop.call_soon(task.cancel)

        loop.call_soon(cancel_after_the_piece)
        await turn.wait()
        try:
            yield 1
        except asyncio.CancelledError:
            if ends:
                raise
            yield 2

    with asyncio.Runner() as runner:
        pieces = AsyncPieces(function(), runner.get_loop())
        assert next(pieces) == 1
        if ends:
            with pytest.raises(asyncio.CancelledError):
                next(pieces)
        assert list(pieces) == ([] if ends else [2])
        pieces.close()
    del pieces
    gc.collect()
    assert caplog.messages == [], "no error of a task was missed"


def test_a_plain_function_has_no_stream():
    with headway.Batcher(doubled) as batcher, pytest.raises(SettingError, match="yields no pieces"):
        next(batcher.stream(1))


def test_items_of_one_call_stream_side_by_side_and_fail_alone():
    ready = threading.Event()

    def function(items):
        assert ready.wait(30)
        for step in range(3):
            yield [
                ValueError("bad") if item == "bad" and step == 1 else (item, step) for item in items
            ]

    with headway.Batcher(function) as batcher:
        told = {}

        def read(name):
            told[name] = []
            try:
                for piece in batcher.stream(name):
                    told[name].append(piece)
            except ValueError as error:
                told[name].append(str(error))

        threads = [threading.Thread(target=read, args=(name,)) for name in ("a", "bad", "b")]
        for thread in threads:
            thread.start()
        ready.set()
        for thread in threads:
            thread.join(30)
    assert told["a"] == [("a", 0), ("a", 1), ("a", 2)]
    assert told["bad"] == [("bad", 0), "bad"]
    assert told["b"] == [("b", 0), ("b", 1), ("b", 2)]


def test_a_generator_that_raises_ends_its_streams_and_not_the_batcher():
    def function(items):
        yield items
        raise OSError("gone")

    with headway.Batcher(function) as batcher:
        read = []
        for _ in range(5):
            with pytest.raises(OSError, match="gone"):
                read.extend(batcher.stream(1))
        assert next(batcher.stream(2)) == 2


@pytest.mark.parametrize("leaves", [True, False])
def test_a_generator_is_closed_when_its_last_item_has_ended(leaves):
    closed, threads = threading.Event(), []

    def function(items):
        threads.append(threading.current_thread())
        try:
            yield items
            while True:
                yield [headway.DONE if item == "done" else item for item in items]
        finally:
            threads.append(threading.current_thread())
            closed.set()

    with headway.Batcher(function, size=2, window=900) as batcher, ThreadPoolExecutor() as pool:
        done = pool.submit(list, batcher.stream("done"))
        if leaves:
            stream = batcher.stream("leaves")
            assert next(stream) == "leaves"
        else:
            assert list(batcher.stream("done")) == ["done"]
        assert done.result(30) == ["done"]
        if leaves:
            assert not closed.is_set(), "the other item goes on"
            stream.close()
        assert closed.wait(30)
    assert len(set(threads)) == 1, "it is closed where it ran"


@pytest.mark.parametrize("leaves", [False, True])
def test_an_idle_batcher_keeps_nothing_of_its_last_stream(leaves):
    def function(items):
        yield items
        yield [None for _ in items]

    class Item:
        pass

    item, gone = Item(), threading.Event()
    weakref.finalize(item, gone.set)
    with headway.Batcher(function) as batcher:
        stream = batcher.stream(item)
        assert next(stream) is item
        if leaves:
            stream.close()
        else:
            assert list(stream) == [None]
        del item, stream
        assert gone.wait(30)


def test_a_generator_whose_cleanup_raises_does_not_affect_the_next_call(caplog):
    async def function(items):
        try:
            while True:
                yield items
        finally:
            raise RuntimeError("no end")

    before = set(threading.enumerate())
    batcher = headway.Batcher(function)
    for item in range(2):
        stream = batcher.stream(item)
        assert next(stream) == item
        stream.close()
    batcher.close()
    assert caplog.messages == ["the end of a stream failed: RuntimeError: no end"] * 2
    assert set(threading.enumerate()) <= before


# -- processes


def test_processes_share_each_call_and_a_dead_one_fails_only_its_call():
    with headway.Batcher(negated, processes=2, size=4, window=0.2) as batcher:
        results = list(batcher.map(range(8)))
        assert [item for _, item in results] == list(range(8))
        assert os.getpid() not in {process for process, _ in results}
        with pytest.raises(ValueError, match="raised there"):
            batcher.call("raise")
        with pytest.raises(ProcessDiedError, match="a process of the function has died"):
            batcher.call("die")
        assert batcher.call(5)[1] == 5


def test_an_error_that_cannot_be_pickled_leaves_the_processes_alive():
    with headway.Batcher(coded, processes=1, window=0.2) as batcher:
        process, _ = batcher.call("a")
        for bad, said in (("coded", "CodedError: 7: bad item"), ("locked", "LockedError: locked")):
            futures = [batcher.submit(item) for item in (bad, "b")]
            with pytest.raises(RuntimeError) as raised:
                futures[0].result(30)
            assert str(raised.value) == said
            assert "in coded" in str(raised.value.__cause__), "with its own traceback"
            assert futures[1].result(30) == (process, "b")


def test_an_error_in_a_results_place_that_cannot_be_pickled_keeps_its_message():
    with headway.Batcher(coded, processes=1, on_error="together", window=0.2) as batcher:
        coded_one, locked_one, other = map(batcher.submit, ("coded in place", "locked in place", 2))
        with pytest.raises(RuntimeError, match="CodedError: 7: bad item"):
            coded_one.result(30)
        with pytest.raises(RuntimeError, match="LockedError: locked"):
            locked_one.result(30)
        assert other.result(30)[1] == 2


@pytest.mark.parametrize("function", [counting, acounting])
def test_a_generator_cannot_be_called_in_processes(function):
    with pytest.raises(SettingError, match="cannot be called in processes"):
        headway.Batcher(function, processes=1)


# -- the decorator


def test_the_decorator_makes_a_function_of_one_item():
    @headway.batch
    def plain(items):
        """Doubles."""
        return doubled(items)

    @headway.batch(size=4, window=0.001)
    async def later(items):
        return doubled(items)

    @headway.batch
    def pieces(items):
        yield items
        yield items

    async def main():
        return await asyncio.gather(*[later(item) for item in range(9)])

    assert plain(3) == 6
    assert (plain.__name__, plain.__doc__) == ("plain", "Doubles.")
    assert asyncio.run(main()) == doubled(range(9))
    assert list(pieces(1)) == [1, 1]
    assert later.batcher.settings.size == 4
    for each in (plain, later, pieces):
        each.close()
    assert plain(4) == 8, "the next call begins another batcher"
    plain.close()


FORKS = """
import os
import signal
import headway

def doubled(items):
    return [2 * item for item in items]

own, shared = headway.batch(doubled), headway.Batcher(doubled)
before = own(1), shared.call(1)
if child := os.fork():
    print(before, own(3), shared.call(3), os.waitpid(child, 0)[1])
else:
    signal.alarm(30)
    own(2)
    try:
        shared.call(2)
    except headway.HeadwayError as error:
        print(own(2), shared.down == str(error), error, flush=True)
own.close()
shared.close()
"""


def test_a_forked_process_starts_another_batcher_or_is_told_why_not():
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True
    )
    child, parent = done.stdout.splitlines()
    assert child == f"4 True {FORKED}" and parent == "(2, 2) 6 6 0", done.stderr


def test_each_instance_has_its_own_batcher():
    class Model:
        def __init__(self, factor):
            self.factor = factor

        @headway.batch(size=2)
        def scaled(self, items):
            return [self.factor * item for item in items]

    two, three = Model(2), Model(3)
    assert (two.scaled(5), three.scaled(5)) == (10, 15)
    assert two.scaled.batcher is two.scaled.batcher is not three.scaled.batcher
    two.scaled.close()
    three.scaled.close()


def test_super_and_a_copy_have_batchers_of_their_own():
    class Model:
        def __init__(self, name):
            self.name = name

        @headway.batch
        def named(self, items):
            return [f"{self.name} {item}" for item in items]

    class Loud(Model):
        @headway.batch
        def named(self, items):
            return [f"{self.name.upper()} {item}" for item in items]

        def both(self, item):
            return self.named(item), super().named(item)

        def close(self):
            self.named.close()
            super().named.close()

    one = Loud("one")
    assert one.both("a") == ("ONE a", "one a") == one.both("a")
    two = copy.copy(one)
    two.name = "two"
    assert two.both("a") == ("TWO a", "two a")
    assert one.named.batcher is one.named.batcher is not two.named.batcher
    assert one.both("a") == ("ONE a", "one a")
    one.close()
    two.close()


class Kept:
    """A class at module level, so that its instances can be pickled."""

    def __init__(self, factor):
        self.factor = factor

    @headway.batch
    def scaled(self, items):
        return [self.factor * item for item in items]

    def doubled(self, items):
        return doubled(items)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_an_instance_is_copied_and_pickled_without_its_batcher(again):
    one = Kept(2)
    assert one.scaled(5) == 10
    two = again(one)
    two.factor = 3
    assert (two.scaled(5), one.scaled(5)) == (15, 10)
    assert one.scaled.batcher is not two.scaled.batcher
    one.scaled.close()
    two.scaled.close()


@headway.batch
def tripled(items):
    return [3 * item for item in items]


class Doubling:
    def __call__(self, items):
        return doubled(items)


def test_a_decorated_function_is_pickled_without_its_batcher():
    def again(each):
        return pickle.loads(pickle.dumps(each))

    one = Kept(2)
    assert (tripled(5), one.scaled(5)) == (15, 10)
    assert again(tripled) is tripled is copy.deepcopy(tripled)
    others = again(one.scaled), again(headway.batch(Doubling())), again(headway.batch(one.doubled))
    assert [other(5) for other in others] == [10, 10, 10]
    assert others[0] is others[0].function.__self__.scaled is not one.scaled
    for each in (tripled, one.scaled, *others):
        each.close()


def test_invalid_uses_of_batch_and_batcher_are_refused_at_once():
    with pytest.raises(SettingError, match="a batch has 1 item"):
        headway.batch(size=0)(doubled)
    with pytest.raises(SettingError, match="use Batcher"):
        headway.batch(processes=2)(doubled)
    with pytest.raises(SettingError, match="32 is no function: batch decorates one"):
        headway.batch(32)
    with pytest.raises(SettingError, match="None is no function of a list"):
        headway.Batcher(None)
    with headway.Batcher(doubled) as batcher, pytest.raises(SettingError, match="cannot be kept"):
        batcher.call(1, deadline=1e300)


def test_an_instance_that_cannot_keep_a_batcher_is_named():
    class Slotted:
        __slots__ = ()

        @headway.batch
        def doubled(self, items):
            return doubled(items)

    class Model:
        @classmethod
        @headway.batch
        def doubled(cls, items):
            return doubled(items)

        bare = headway.batch(partial(sorted))

    with pytest.raises(SettingError, match=r"doubled: each instance .* a Slotted has none"):
        Slotted().doubled(1)
    with pytest.raises(SettingError, match="a type has none to write to"):
        Model.doubled(1)
    assert Model().bare(1) == 1, "it is no method, as a partial is none"
    Model.bare.close()


# -- whatever happens


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(-2, 9),  # a negative value makes its call raise
            st.sampled_from(["", "chat", "bulk"]),
            st.sampled_from([0, 0, 1e-6, 30.0]),
            st.booleans(),  # whether the item is cancelled at once
        ),
        max_size=40,
    ),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.002]),
    st.booleans(),
    st.booleans(),
)
def test_no_item_is_lost_or_answered_twice(asked, size, window, bucketed, bisect):
    """Each item ends once: with its result, with its error, at its deadline, or cancelled."""
    logging.getLogger("headway.batching").setLevel(logging.ERROR)
    rows, seen = [], Counter()

    def function(items):
        seen.update(number for number, _ in items)
        if any(value < 0 for _, value in items):
            raise ValueError("negative")
        return [(number, 2 * value) for number, value in items]

    more = {"cost": lambda item: 1 + abs(item[1]), "buckets": (3, 6)} if bucketed else {}
    batcher = headway.Batcher(
        function,
        size=size,
        window=window,
        lanes={"bulk": None, "chat": 0.02},
        on_error="bisect" if bisect else "together",
        rows=lambda steps, items: rows.extend(items),
        **more,
    )
    futures = []
    for number, (value, lane, deadline, cancels) in enumerate(asked):
        futures.append(batcher.submit((number, value), lane=lane, deadline=deadline))
        if cancels:
            futures[-1].cancel()
    batcher.close()
    for number, ((value, _, deadline, _), future) in enumerate(zip(asked, futures, strict=True)):
        assert future.done()
        if future.cancelled():
            event("cancelled")
            continue
        error = future.exception()
        if error is None:
            assert future.result() == (number, 2 * value) and value >= 0
        elif isinstance(error, DeadlineError):
            event("deadline")
            assert deadline
        else:
            assert isinstance(error, ValueError if bisect else (ValueError, SharedError))
            event("error")
            assert value < 0 or not bisect
    assert len(rows) == len(asked) == len({row.id for row in rows})
    if not bisect:
        assert max(seen.values(), default=0) <= 1


@pytest.mark.parametrize(
    "lengths, buckets, share",
    [
        ((32, 64, 128, 256, 512), (512,), 61.25),
        ((32, 64, 128, 256, 512), (64, 128, 256, 512), 3.125),
        ((12, 33, 64, 100, 128, 512), (512,), 72.363),
        ((12, 33, 64, 100, 128, 512), (64, 128, 512), 11.5625),
        ((12, 33, 64, 100, 128, 512), (16, 48, 64, 112, 128, 512), 3.5227),
    ],
)
def test_rows_count_the_padding_among_the_computed_cells(lengths, buckets, share):
    """The cells are counted in the padded items that the function is called with."""
    calls, cells = [], []

    def padded(item, edge):
        return item + " " * (edge - len(item))

    def function(items):
        assert len({len(item) for item in items}) == 1
        cells.append(sum(map(len, items)))
        return items

    settings = {"cost": len, "buckets": buckets, "pad": padded}
    with headway.Batcher(
        function, rows=lambda steps, _: calls.extend(steps), **settings
    ) as batcher:
        items = ["x" * length for length in lengths]
        assert [each.strip() for each in batcher.map(items)] == items
    computed = sum(cells)
    assert 100 * (1 - sum(lengths) / computed) == pytest.approx(share, abs=0.001)
    assert sum(call.padding_tokens for call in calls) == computed - sum(lengths)
