"""Recorded steps: playback has the bits of computing, whatever changes between the steps."""

import subprocess
import sys
from copy import deepcopy

import pytest
import torch

from headway.executor.torch.attention import cpu_attention
from headway.executor.torch.cpu.library import kernels
from headway.executor.torch.cpu.recorded_steps import MOST, ROOM, Memory, RecordedSteps
from headway.executor.torch.cpu.tape import OPEN
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from tests.executor.torch.test_runner import Driver
from tests.executor.torch.tiny_checkpoints import make

PROMPTS = {1: (5, 9, 100), 2: (8,), 3: (12, 150, 42, 7, 7), 4: (60, 61)}
# The sequences of each step. Each number of tokens comes several times, with others between.
STEPS = [(1,), (1, 2), *[(1, 2)] * 3, (1, 2, 3), *[(2,), (1, 2, 3), (1, 3)] * 9, *[(3,)] * 4]

WATCHING = """
import sys, torch
from headway.executor.torch.cpu.recorded_steps import Memory, Watch
with Watch(Memory(), 2, 8) as watch:
    torch.empty(2, 3)[1:].view(-1)
print(watch.alone, "torch._dynamo" in sys.modules)
"""


@pytest.fixture(autouse=True)
def _kernels():
    if kernels() is None:
        pytest.skip("there are no kernels here")


@pytest.fixture(params=["float32", "float32+int8", "bfloat16+int8"])
def executor(request, halves, monkeypatch):
    """Rows are cut into spans of eight keys, so that the number of spans changes."""
    monkeypatch.setattr(cpu_attention, "SPAN", 8)
    return load(halves.folder, Limits(block_size=4), request.param, "cpu").executor


def watched(executor, monkeypatch):
    """The executor's hidden states, step by step, and the token counts of the steps whose layers
    ran in Python."""
    model, found, computed = executor.model, [], []
    forward, layers = model.forward, model._layers

    def seen(inputs, cache):
        x = forward(inputs, cache)
        found.append(x.clone())
        return x

    def went(x, *rest):
        computed.append(len(x))
        return layers(x, *rest)

    monkeypatch.setattr(model, "forward", seen)
    monkeypatch.setattr(model, "_layers", went)
    return found, computed


def run(executor, steps=STEPS):
    driver = Driver(executor)
    for number, which in enumerate(steps):
        for each in which:
            if each not in driver.known:
                driver.add(each, PROMPTS[each])
        assert not driver.run(*which).errors, number
    return driver


def test_played_steps_have_the_same_bits_as_computed_steps(executor, halves, monkeypatch):
    found, computed = watched(executor, monkeypatch)
    said = run(executor).known
    dtype = {"int8": str(executor.model.dtype).removeprefix("torch.") + "+int8"}
    quantised = type(executor.model.weights.head).__name__ == "QuantizedLinear"
    plain = load(
        halves.folder, Limits(block_size=4), dtype["int8"] if quantised else "float32", "cpu"
    ).executor
    plain.model.recorded = None
    expected, always = watched(plain, monkeypatch)
    assert said == run(plain).known
    assert len(found) == len(expected) == len(always) == len(STEPS)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert computed == [3, 2, 7], "the first one; two that are recorded, of different sizes"


# Head norms, windows, soft caps, norms after, scales, two rotary tables, layers without one.
FAMILIES = ["qwen3-window", "gemma2", "gemma3", "phi4-partial", "smollm3-window", "granite"]


@pytest.mark.parametrize("shape", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32+int8", "bfloat16+int8"])
def test_played_steps_equal_computed_steps_in_each_family(tmp_path, monkeypatch, shape, dtype):
    monkeypatch.setattr(cpu_attention, "SPAN", 8)
    make(tmp_path, shape, head_dim=16)
    seen = []
    for recorded in (True, False):
        executor = load(tmp_path, Limits(block_size=4), dtype, "cpu").executor
        if not recorded:
            executor.model.recorded = None
        with monkeypatch.context() as patch:
            found, computed = watched(executor, patch)
            run(executor)
        seen.append(found)
        assert (computed == [3, 2, 7]) is recorded
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_steps_are_recorded_anew_for_another_thread_count_or_kv_cache(executor, monkeypatch):
    found, computed = watched(executor, monkeypatch)
    threads = torch.get_num_threads()
    run(executor, [(1,)] * 5)
    assert computed == [3, 1]
    torch.set_num_threads(threads + 1)
    try:
        driver = run(executor, [(2,)] * 3)
    finally:
        torch.set_num_threads(threads)
    assert computed == [3, 1, 1, 1]
    driver.run(2)
    assert computed == [3, 1, 1, 1], "those of before are still there"
    executor.cache = deepcopy(executor.cache)
    executor.attention.cache = executor.cache
    driver.run(2)
    assert computed == [3, 1, 1, 1, 1]
    assert all(x.isfinite().all() for x in found)


def test_no_step_is_recorded_if_torch_computes_a_part_of_it(goldens, monkeypatch):
    """torch computes LayerNorm. For a mixture of experts, recording is not tried at all."""
    executor = load(goldens["starcoder2"].folder, Limits(block_size=4)).executor
    _, computed = watched(executor, monkeypatch)
    run(executor, [(1,)] * 6)
    assert computed == [3, 1, 1, 1, 1, 1]
    recorded = executor.model.recorded
    assert not recorded._recordings and not recorded._memory._parts, "nothing is kept for it"
    mixture = load(goldens["mixtral"].folder, Limits(block_size=4)).executor.model
    assert mixture.recorded is None


def test_results_of_recorded_steps_take_little_memory(halves):
    """The layers use the same memory one after the other."""
    executor = load(halves.folder, Limits(block_size=4), "bfloat16+int8", "cpu").executor
    run(executor)
    recorded = executor.model.recorded
    kept = sum(part.nbytes for part in recorded._memory._parts)
    token = 2 * (2 * 128 + 128) + 8 * 64  # the estimate: gate and up, q, k and v, residual
    assert recorded.possible and 0 < kept < 2 * 4 * token * recorded.most


def steps_of(class_of=lambda tokens: None, token=1):
    return RecordedSteps(kernels(), class_of, token)


def test_steps_with_too_many_tokens_are_not_recorded():
    wide = steps_of(token=ROOM // 8)
    assert wide.most == 8 and steps_of(token=2 * ROOM).most == 1
    for steps, tokens in ((steps_of(), MOST + 1), (wide, 9)):
        calls = []
        for _ in range(3):
            x = torch.zeros(tokens, 4)
            assert steps.run(x, None, lambda x, calls=calls: calls.append(len(x)) or x) is x
        assert calls == [tokens] * 3 and steps.possible


def doubled(x, rows):
    """x + x by our kernel, with the numbers of x divided into this many rows."""
    total, size = torch.empty_like(x), x.numel() // rows
    kernels().add_norm(
        *(0, 0, x.data_ptr(), size, x.data_ptr(), total.data_ptr(), total.data_ptr(), size),
        *(rows, size, None, None, 0.0, 1.0, 1),
    )
    return total


def test_recording_is_given_up_if_steps_differ_in_more_than_the_token_count():
    steps, calls = steps_of(), []

    def compute(x):
        calls.append(len(x))
        return doubled(x, rows=1)

    for tokens in range(1, 40):
        x = torch.randn(tokens, 16)
        assert steps.run(x, None, compute).equal(2 * x)
    assert calls == list(range(1, 40)) and not steps.possible


def test_each_class_of_steps_is_recorded_separately():
    """A step of up to 4 tokens makes one kernel call, a larger one two."""
    steps, calls = steps_of(lambda tokens: tokens > 4), []

    def compute(x):
        calls.append(len(x))
        return doubled(x, len(x)) if len(x) <= 4 else doubled(doubled(x, len(x)), len(x))

    for tokens in (2, 3, 6, 4, 7, 1, 8, 2, 5, 9):
        x = torch.randn(tokens, 16)
        assert steps.run(x, None, compute).equal(x * (2 if tokens <= 4 else 4))
    assert calls == [2, 3, 6, 4, 7, 8] and steps.possible


def test_a_step_that_fails_while_it_is_recorded_leaves_no_recorder_open():
    steps, x = steps_of(), torch.zeros(2, 4)

    def broken(x):
        raise ValueError("no")

    steps.run(x, None, lambda x: x)
    with pytest.raises(ValueError, match="no"):
        steps.run(x, None, broken)
    assert OPEN.recorder is None and steps.possible
    assert steps.run(x, None, lambda x: x).equal(x)


def test_memory_is_reused_only_if_no_tensor_refers_to_it():
    memory = Memory()
    first = memory.empty((3, 50), torch.bfloat16, 3, 12)
    address, part = first.data_ptr(), first[1:2, 4:]
    assert first.shape == (3, 50) and first.is_contiguous() and address % 64 == 0
    assert memory.at(address, (12, 50), torch.bfloat16).shape == (12, 50)
    assert memory.at(part.data_ptr(), (1,), torch.uint8) is None
    assert memory.empty((3, 50), torch.bfloat16, 3, 12).data_ptr() != address
    del first
    assert memory.empty((6, 50), torch.bfloat16, 6, 12).data_ptr() != address, "a view is left"
    del part
    assert memory.empty((6, 50), torch.bfloat16, 6, 12).data_ptr() == address
    assert memory.empty((8,), torch.float32, 8, 8).data_ptr() != address, "it is far too large"


def test_recording_does_not_import_torchs_compiler():
    """The import takes longer than many steps."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHING], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_integer_arguments_are_recorded_as_the_floats_that_the_kernel_takes(monkeypatch):
    """A configuration may say 1 where it means 1.0."""
    kept = []

    class Kept:
        def add(self, kernel, words):
            kept.append(words)

    monkeypatch.setattr(OPEN, "recorder", Kept())
    x = torch.ones(1, 64)
    for eps, scale in ((0.0, 1.0), (0, 1)):
        kernels().add_norm(
            *(0, 0, x.data_ptr(), 64, None, x.data_ptr(), x.data_ptr(), 64, 1, 64),
            *(None, None, eps, scale, 1),
        )
    assert kept[0] == kept[1] and len(kept[0]) == 15


def test_a_class_that_torch_computes_leaves_the_other_classes_recorded():
    """As where oneDNN multiplies many rows, and our kernels few."""
    steps, calls = steps_of(lambda tokens: tokens > 4), []

    def compute(x):
        calls.append(len(x))
        return doubled(x, len(x)) if len(x) <= 4 else x + x

    for tokens in (2, 3, 6, 7, 4, 6, 1, 8, 2):
        x = torch.randn(tokens, 16)
        assert steps.run(x, None, compute).equal(2 * x)
        if tokens == 3:
            parts = len(steps._memory._parts)
    assert calls == [2, 3, 6, 7, 4, 6, 8], "those of up to 4 tokens are played from then on"
    assert len(steps._memory._parts) == parts, "nothing is kept for the others"
