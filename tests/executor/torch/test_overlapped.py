"""An executor that never waits in submit: two steps in flight give the tokens of one."""

from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headway.core.batch import UNKNOWN, Batch, Begun, Row, Want
from headway.core.policies.policies import Policies
from headway.core.sampling import Sampling
from headway.executor.torch.layers.mlp import Mixture
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from headway.executor.torch.runner import TorchExecutor
from tests.executor.torch.test_golden import ASKED, CHUNKS, JOINS, answer, crowded

PROMPTS = ((5, 9, 100, 33, 7, 77, 3), (8,), (12, 150, 42), (60, 61, 62, 63, 64, 65))
ANSWER = 8
SAMPLINGS = {
    "greedy": Sampling(),
    "unfiltered": Sampling(temperature=0.9, seed=3),
    "top_k": Sampling(temperature=0.8, top_k=7, seed=4),
    "top_p": Sampling(temperature=1.1, top_p=0.8, seed=5),
    "min_p": Sampling(temperature=1.1, min_p=0.1, seed=6),
}
WAITING_CALLS = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__")
WAITING_OPERATORS = ("_local_scalar_dense", "nonzero", "_unique", "masked_select", "is_nonzero")


def loaded(golden, overlapped):
    """A CPU executor of this checkpoint's weights, overlapped or not."""
    made = load(golden.folder, Limits(block_size=4)).executor
    for layer in made.model.weights.layers if overlapped else ():
        if isinstance(layer.mlp, Mixture):
            layer.mlp.waits = False
    length = made.model.config.context
    return TorchExecutor(made.model, made.cache, length, golden.folder, overlapped=overlapped)


class Sequences:
    """Prompts in chunks of three, then token by token. Each step's batch is known beforehand."""

    def __init__(self, executor, sampling, unknown):
        self.executor, self.sampling, self.unknown = executor, sampling, unknown
        self.said = {i: [] for i in range(len(PROMPTS))}

    def batch(self, step):
        """The batch of a step; None once all answers are complete. Sequence i joins in step i."""
        size, rows, begun = self.executor.cache.block_size, [], []
        for i, prompt in enumerate(PROMPTS):
            turn = step - i
            if turn == 0:
                begun.append(Begun(i, len(prompt), self.sampling))
            chunks = -(-len(prompt) // 3)
            if not 0 <= turn < chunks + ANSWER - 1:
                continue
            start = min(3 * turn, len(prompt)) if turn < chunks else len(prompt) + turn - chunks
            known = prompt[start : start + 3]
            if turn >= chunks:
                known = (UNKNOWN,) if self.unknown else (self.said[i][-1],)
            first = -(-start // size)
            need = range(first, -(-(start + len(known)) // size))
            blocks = tuple(1 + 16 * i + number for number in need)
            want = Want.LAST if start + len(known) >= len(prompt) else Want.NOTHING
            rows.append(Row(i, start, known, blocks, want))
        return Batch(step + 1, tuple(rows), tuple(begun)) if rows else None

    def take(self, batch, ticket):
        output = self.executor.collect(ticket)
        assert not output.errors
        for row, tokens in zip(batch.rows, output.tokens, strict=True):
            self.said[row.sequence] += tokens

    def one_deep(self):
        step = 0
        while batch := self.batch(step):
            self.take(batch, self.executor.submit(batch))
            step += 1
        return self.said

    def two_deep(self, submit):
        before, step = (), 0
        while batch := self.batch(step):
            ticket = submit(batch)
            if before:
                self.take(*before)
            before, step = (batch, ticket), step + 1
        self.take(*before)
        return self.said


@contextmanager
def no_waiting():
    """Raise at every call that would make the host wait for a device."""

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            name = func.__name__
            assert not name.startswith(WAITING_OPERATORS), f"{name} waits for the device"
            if name.startswith(("index.", "index_put")):
                assert all(at is None or at.dtype is not torch.bool for at in args[1]), name
            return func(*args, **(kwargs or {}))

    def waiting(name):
        def refused(*args, **kwargs):
            raise AssertionError(f"Tensor.{name} waits for the device")

        return refused

    with pytest.MonkeyPatch.context() as patch, Watching():
        for name in WAITING_CALLS:
            patch.setattr(torch.Tensor, name, waiting(name))
        yield


@pytest.mark.parametrize("shape", ["qwen2-bias-tied", "mixtral", "gemma2"])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_two_steps_in_flight_give_the_tokens_of_one_and_submit_never_waits(
    goldens, shape, sampling
):
    want = Sequences(loaded(goldens[shape], False), sampling, unknown=False).one_deep()
    executor = loaded(goldens[shape], True)

    def submit(batch):
        with no_waiting():
            return executor.submit(batch)

    assert executor.traits.steps_in_flight == 2
    assert Sequences(executor, sampling, unknown=True).two_deep(submit) == want
    assert all(len(said) == ANSWER for said in want.values())


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(logprobs=3, stop_tokens=frozenset({7, 9}), min_tokens=5),
        Sampling(repetition_penalty=1.3, logit_bias=((5, 2.0),), bad_words=((8,), (8, 9))),
    ],
    ids=["logprobs-min-tokens", "penalties"],
)
def test_submit_does_not_wait_for_sampling_that_reads_known_tokens(golden, sampling):
    """The tokens of these rows must be known, so one step runs at a time."""
    want = Sequences(loaded(golden, False), sampling, unknown=False).one_deep()
    sequences, step = Sequences(loaded(golden, True), sampling, unknown=False), 0
    while batch := sequences.batch(step):
        with no_waiting():
            ticket = sequences.executor.submit(batch)
        sequences.take(batch, ticket)
        step += 1
    assert sequences.said == want


def test_no_waiting_raises_at_each_kind_of_wait():
    x = torch.arange(4)
    for wait in (x.sum().item, x.nonzero, x.unique, lambda: x[x > 1], lambda: bool(x[0])):
        with no_waiting(), pytest.raises(AssertionError, match=r"wait|index"):
            wait()


def test_on_a_cpu_one_step_is_in_flight_and_an_unknown_token_is_an_error(golden):
    executor = loaded(golden, None)
    assert executor.traits.steps_in_flight == 1
    row = Row(0, 0, (UNKNOWN,), (1,), Want.LAST)
    output = executor.collect(executor.submit(Batch(1, (row,), (Begun(0, 1, Sampling()),))))
    assert "outside the vocabulary" in output.errors[0]


def test_the_warm_up_leaves_no_state_behind(golden):
    """On a GPU, the warm-up compiles the kernels."""
    executor = loaded(golden, True)
    executor._run_once()
    assert not executor._slots.of and not executor._flights
    want = Sequences(loaded(golden, False), SAMPLINGS["greedy"], unknown=False).one_deep()
    sequences = Sequences(executor, SAMPLINGS["greedy"], unknown=True)
    assert sequences.two_deep(executor.submit) == want


@pytest.fixture(scope="module")
def answers(goldens):
    """Transformers' greedy answers to ASKED, by shape."""
    return cache(lambda shape: [goldens[shape].generate(*asked) for asked in ASKED])


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("shape", ["qwen2-bias-tied", "mixtral"])
def test_an_engine_of_depth_two_gives_transformers_answers(goldens, answers, shape, join):
    """With preemption, prefix hits, padding and held slots, depending on the policy."""
    want = answers(shape)
    mine = crowded(goldens[shape], 4)
    made = loaded(goldens[shape], True)
    executor = TorchExecutor(made.model, mine.executor.cache, overlapped=True)
    for chunk in CHUNKS.values():
        policies = Policies(JOINS[join], chunk=chunk, step_tokens=48)
        answer(SimpleNamespace(plan=mine.plan, executor=executor), policies, want)
