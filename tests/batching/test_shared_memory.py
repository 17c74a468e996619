"""Large items go to processes and back through shared memory, and none of it stays allocated."""

import os
import pickle
import resource
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

import headway
from headway.batching import shared_memory
from headway.batching.executor import SharedError
from headway.batching.shared_memory import LEAST, Room, pack, unpack
from tests.batching.in_processes import doubled, mapped

LARGE = LEAST // 8


@pytest.fixture(autouse=True)
def rooms(monkeypatch):
    """The names of all rooms that the test makes. After the test none of them exists."""
    made = []

    def recorded(*args, **kwargs):
        memory = SharedMemory(*args, **kwargs)
        made.append(memory.name)
        return memory

    monkeypatch.setattr(shared_memory, "SharedMemory", recorded)
    yield made
    for name in made:
        with pytest.raises(FileNotFoundError):
            SharedMemory(name)


@pytest.fixture
def room():
    room = Room()
    yield room
    room.close()


def test_values_are_unpacked_as_they_were_packed(room):
    large = np.arange(3 * LARGE, dtype=np.float64).reshape(3, LARGE)
    frozen = np.ones(LARGE)
    frozen.flags.writeable = False
    value = [large, large.T, large[:, ::2], frozen, "a word", {"small": np.arange(3)}]
    packed = room.pack(value)
    assert len(packed.pickled) < large[:, ::2].nbytes + 2_000, (
        "a slice that is not whole is pickled"
    )
    found = unpack(packed, room.name)
    for before, after in zip(value[:4], found[:4], strict=True):
        assert np.array_equal(before, after)
        assert before.flags.writeable == after.flags.writeable
    found[0][0] = 1  # the unpacked arrays are copies
    assert room.unpack(pack(value, room.name))[0][0][1] == 1
    assert found[4] == "a word" and found[5]["small"].tolist() == [0, 1, 2]


def test_a_small_value_uses_no_shared_memory(room, rooms):
    assert unpack(room.pack([np.arange(4), 1]), room.name)[0].tolist() == [0, 1, 2, 3]
    assert not room.name and not rooms


def test_a_room_is_reused_and_replaced_by_a_larger_one_for_a_larger_value(room, rooms):
    small, large = np.zeros(LARGE), np.ones(8 * LARGE)
    assert unpack(room.pack(small), room.name).shape == (LARGE,)
    first = room.name
    answer = pack(large, first)
    assert answer.buffers, "it has no room for this"
    assert room.unpack(answer).shape == (8 * LARGE,)
    assert room.name != first
    assert not pack(large, room.name).buffers
    room.pack(small)
    room.pack(large)
    assert len(set(rooms)) == 2


def test_a_value_that_cannot_be_pickled_leaves_no_shared_memory(room):
    with pytest.raises((pickle.PicklingError, AttributeError)):
        room.pack([np.zeros(LARGE), lambda: 1])


def test_processes_return_the_results_and_errors_of_large_items(rooms):
    with headway.Batcher(doubled, processes=2, size=2, window=1.0) as batcher:
        arrays = [np.full(LARGE, float(i)) for i in range(4)]
        for i, found in enumerate(batcher.map(arrays)):
            assert found[0] == 2 * i and found.shape == (LARGE,)
        futures = [batcher.submit(each) for each in (arrays[0], np.full(LARGE, np.nan))]
        assert futures[0].result()[0] == 0, "the one beside it is not to blame"
        with pytest.raises(ValueError, match="not a number"):
            futures[1].result()
        futures = [batcher.submit(each) for each in (np.zeros(1), arrays[1])]
        for future in futures:
            with pytest.raises(SharedError, match="a process of the function has died"):
                future.result()
        assert batcher.call(arrays[3])[0] == 6
    assert rooms


def test_a_process_lets_go_of_rooms_that_were_replaced_by_larger_ones(rooms):
    with headway.Batcher(mapped, processes=1) as batcher:
        assert [batcher.call(np.zeros(size * LARGE)) for size in (1, 2, 3, 4)] == [1] * 4
    assert len(set(rooms)) == 4


def test_a_room_has_all_of_its_pages_before_anything_is_written(room):
    room.grow(100 * LEAST)
    assert os.stat(f"/dev/shm/{room.name}").st_blocks * 512 >= 100 * LEAST


def test_values_are_pickled_where_the_system_has_no_room(room):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * LEAST, limits[1]))
    try:
        packed = room.pack([np.ones(LARGE), np.ones(3 * LARGE)])
        assert not (room.name or packed.sizes) and room.unpack(packed)[1].sum() == 3 * LARGE
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert room.pack([np.ones(3 * LARGE)]).sizes == (3 * LEAST,), "a later value finds room"
