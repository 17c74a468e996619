"""Weights move into huge pages and keep their addresses and values."""

import itertools
import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from headway.executor.torch.cpu import huge_pages
from headway.executor.torch.cpu.huge_pages import LEAST, SIZE, blocks_of, collapse, collapse_later
from headway.executor.torch.load import load
from headway.executor.torch.loading import weights as module
from headway.executor.torch.memory.memory_plan import Limits


def test_blocks_that_parts_fill_at_least_half_are_selected():
    half = SIZE // 2
    assert blocks_of([]) == []
    assert blocks_of([(0, SIZE)]) == [0]
    assert blocks_of([(3 * SIZE + 64, half)]) == [3 * SIZE]
    assert blocks_of([(3 * SIZE + 64, half - 1)]) == []
    assert blocks_of([(half + 1, 2 * SIZE)]) == [SIZE, 2 * SIZE], "not quite, all of it, and just"
    assert blocks_of([(0, half // 2), (half, half)]) == [0], "several parts together"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has them")
def test_moved_memory_keeps_its_address_and_values(monkeypatch):
    monkeypatch.setattr(huge_pages, "DELAY", 0.0)
    monkeypatch.setattr(huge_pages, "_allowed", lambda: True)
    numbers = torch.arange(2 * LEAST // 8)
    address, kept = numbers.data_ptr(), numbers.clone()
    timer = collapse_later([(address, numbers.nbytes)])
    assert timer is not None and timer.daemon
    timer.join()
    assert numbers.data_ptr() == address and numbers.equal(kept)
    moved = collapse(blocks_of([(address, numbers.nbytes)]))
    if not moved:
        pytest.skip("this kernel moves no memory that is in use")
    found = re.findall(r"AnonHugePages: +(\d+) kB", Path("/proc/self/smaps").read_text())
    assert sum(map(int, found)) * 1024 >= moved * SIZE


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has them")
def test_an_unmapped_block_is_not_moved():
    assert collapse([1 << 46]) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has them")
def test_moving_rests_after_each_block_and_longer_while_the_process_is_busy(monkeypatch):
    clock, rests, used = itertools.count(0, 3), [], iter([0, 5, 10, 10.1, 20, 20.1, 30, 33])
    watch = SimpleNamespace(
        monotonic=lambda: next(clock), sleep=rests.append, process_time=lambda: next(used)
    )
    monkeypatch.setattr(huge_pages, "time", watch)
    collapse([at << 46 for at in (1, 2, 3, 4)], busy=0.25, idle=0.5)
    assert rests == [9, 9, 3, 3], "a block took three seconds; beside the first something computed"


def test_a_small_model_stays_in_small_pages(monkeypatch):
    monkeypatch.setattr(huge_pages, "_allowed", lambda: True)
    before = threading.active_count()
    assert collapse_later([(0, LEAST // 2)]) is None
    assert threading.active_count() == before


@pytest.mark.parametrize("text", ["always madvise [never]\n", None])
def test_nothing_is_moved_where_huge_pages_are_off_or_missing(monkeypatch, tmp_path, text):
    switch = tmp_path / "enabled"
    if text:
        switch.write_text(text)
    monkeypatch.setattr(huge_pages, "SWITCH", switch)
    assert collapse_later([(0, 2 * LEAST)]) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float32+int8"])
def test_the_parts_of_a_model_are_its_weight_matrices(halves, dtype):
    weights = load(halves.folder, Limits(), dtype, "cpu").executor.model.weights
    parts = weights.parts()
    assert len(parts) == 1 + 4 * len(weights.layers)
    assert all(address for address, _ in parts)
    sizes = sum(size for _, size in parts)
    assert 0.5 * weights.nbytes < sizes <= weights.nbytes


def test_the_parts_of_a_mixture_leave_out_its_experts(goldens):
    weights = load(goldens["mixtral"].folder, Limits(), "float32", "cpu").executor.model.weights
    assert all(isinstance(layer.mlp, module.Mixture) for layer in weights.layers)
    assert len(weights.parts()) == 1 + 2 * len(weights.layers)
