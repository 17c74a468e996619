"""Block tables on the device equal those of the host, and only changed entries are sent."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.executor.torch.memory import block_tables
from headway.executor.torch.memory.block_tables import BlockTables

CPU = torch.device("cpu")
SLOTS, WIDTH = 4, 6
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("clear"), st.integers(1, SLOTS - 1)),
        st.tuples(st.just("extend"), st.integers(1, SLOTS - 1), st.integers(1, 3)),
        st.just(("read",)),
        st.just(("grow",)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_the_devices_tables_equal_the_hosts_up_to_each_sequences_last_block(steps):
    tables, held, number = BlockTables(SLOTS, WIDTH, CPU), [0] * SLOTS, 1
    tables.on_device()
    for step in [*steps, ("read",)]:
        match step:
            case ("clear", slot):
                tables.clear(slot)
                held[slot] = 0
            case ("extend", slot, count) if held[slot] + count <= WIDTH:
                tables.extend(slot, tuple(range(number, number + count)))
                held[slot], number = held[slot] + count, number + count
            case ("grow",) if len(tables.host) < 16:
                tables.grow()
                held += [0] * len(held)
            case ("read",):
                there = tables.on_device()
                assert there.shape == tables.host.shape and there.dtype is torch.int32
                for slot, count in enumerate(held):
                    assert there[slot, :count].tolist() == tables.host[slot, :count].tolist()


def test_only_changed_table_entries_are_sent(monkeypatch):
    tables, sent = BlockTables(SLOTS, WIDTH, CPU), []
    tables.on_device()

    def noting(device, *arrays):
        sent.append([each.tolist() for each in arrays])
        return [torch.from_numpy(each.copy()) for each in arrays]

    monkeypatch.setattr(block_tables, "send", noting)
    tables.on_device()
    tables.extend(2, (7, 8))
    tables.extend(1, (9,))
    tables.on_device()
    tables.on_device()
    assert sent == [[[WIDTH, 2 * WIDTH, 2 * WIDTH + 1], [9, 7, 8]]]
