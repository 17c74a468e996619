"""One executor, driven by hand: padding, held slots, batches, errors and sequences' states."""

from dataclasses import replace

import pytest
import torch

from headway.core.batch import Batch, Begun, Row, Want
from headway.core.sampling import Sampling
from headway.executor.guarded import MOST_FAILURES, GuardedExecutor
from headway.executor.torch.load import load, load_random
from headway.executor.torch.memory.memory_plan import Limits
from headway.executor.torch.sampling.penalties import History

GREEDY = Sampling()
PROMPTS = ((5, 9, 100, 33, 7, 77, 3), (8,), (12, 150, 42), (60, 61, 62, 63, 64, 65))


class Driver:
    """A minimal scheduler: gives every sequence its blocks and feeds back its sampled tokens."""

    def __init__(self, executor):
        self.executor, self.step = executor, 0
        self.known, self.computed, self.blocks, self.asked = {}, {}, {}, {}
        self.free = list(range(executor.cache.num_blocks, 0, -1))
        self.begun, self.ended, self.output = [], [], None

    def add(self, sequence, prompt, sampling=GREEDY):
        self.known[sequence], self.computed[sequence] = list(prompt), 0
        self.blocks[sequence], self.asked[sequence] = [], (len(prompt), sampling)
        self.begun.append(Begun(sequence, len(prompt), sampling))

    def end(self, sequence):
        self.free += reversed(self.blocks.pop(sequence))
        self.ended.append(sequence)
        del self.known[sequence], self.computed[sequence]

    def row(self, sequence, most=10_000):
        start, known = self.computed[sequence], self.known[sequence]
        end = min(len(known), start + most)
        need = -(-end // self.executor.cache.block_size) - len(self.blocks[sequence])
        added = tuple(self.free.pop() for _ in range(need))
        self.blocks[sequence] += added
        want = Want.LAST if end == len(known) else Want.NOTHING
        return Row(sequence, start, tuple(known[start:end]), added, want)

    def run(self, *sequences, most=10_000, width=0, held=0, pad=0):
        """One step of these sequences. width: -1 for that of the longest row plus pad."""
        rows = tuple(self.row(each, most) for each in sequences)
        if width == -1:
            width = max(len(row.tokens) for row in rows) + pad
        self.step += 1
        batch = Batch(self.step, rows, tuple(self.begun), tuple(self.ended), held, width)
        self.begun, self.ended = [], []
        before = self.executor.computed
        output = self.executor.collect(self.executor.submit(batch))
        assert self.executor.computed - before == batch.tokens + batch.waste
        for i, (row, sampled) in enumerate(zip(rows, output.tokens, strict=True)):
            self.computed[row.sequence] += len(row.tokens)
            self.known[row.sequence] += sampled
            assert bool(sampled) == (row.want is Want.LAST and i not in output.errors)
        return output

    def said(self, sequence):
        return self.known[sequence][self.asked[sequence][0] :]


def driver(golden, **limits):
    return Driver(load(golden.folder, Limits(**{"block_size": 4} | limits)).executor)


def alone(golden, prompt, sampling, count):
    one = driver(golden)
    one.add(0, prompt, sampling)
    for _ in range(count):
        one.run(0)
    return one.said(0)


@pytest.fixture(scope="module")
def greedy(golden):
    return [golden.generate(prompt, 8) for prompt in PROMPTS]


@pytest.mark.parametrize("pad", [0, 5])
@pytest.mark.parametrize("most", [10_000, 3])
@pytest.mark.parametrize("held", [0, 2])
def test_padding_and_held_slots_are_computed_and_change_no_answer(golden, greedy, pad, most, held):
    group = driver(golden)
    for i, prompt in enumerate(PROMPTS):
        group.add(i, prompt)
    while min(len(group.said(i)) for i in range(4)) < 8:
        short = [i for i in range(4) if len(group.said(i)) < 8]
        group.run(*short, most=most, width=-1, held=held + 4 - len(short), pad=pad)
    assert [group.said(i)[:8] for i in range(4)] == greedy


def test_a_sequence_writes_only_to_its_own_blocks_and_scratch(golden):
    """Cells outside a sequence's own blocks and the scratch block do not change."""
    one = driver(golden)
    one.add(0, PROMPTS[0])
    one.run(0, width=9, held=1)
    cache = one.executor.cache
    mine = torch.zeros(cache.num_blocks + 1, dtype=torch.bool)
    mine[[0, *one.blocks[0]]] = True
    for keys in (*cache.keys, *cache.values):
        touched = keys.view(cache.num_blocks + 1, -1).any(dim=1)
        assert not touched[~mine].any() and touched[mine].all()


SAMPLED = Sampling(temperature=0.9, top_p=0.95, seed=123)
OTHERS = (
    Sampling(),
    Sampling(temperature=1.2, seed=5),
    Sampling(temperature=0.7, top_k=9, seed=123),
    Sampling(temperature=1.0, min_p=0.05, seed=6, logprobs=2),
)


@pytest.mark.parametrize("sampling", [SAMPLED, Sampling(temperature=1.0, seed=9)])
def test_a_seed_gives_the_same_text_alone_and_in_a_batch(golden, sampling):
    want = alone(golden, PROMPTS[0], sampling, 12)
    assert want == alone(golden, PROMPTS[0], sampling, 12)
    assert want != alone(golden, PROMPTS[0], replace(sampling, seed=1), 12)
    crowd = driver(golden)
    for i, other in enumerate(OTHERS):
        crowd.add(i, PROMPTS[i], other)
    crowd.run(0, 1)
    crowd.add(9, PROMPTS[0], sampling)  # joins late, in another slot
    crowd.run(2, 9, 3, most=4)
    crowd.end(0)
    while len(crowd.said(9)) < 12:
        crowd.run(1, 9, 2, 3)
    assert crowd.said(9) == want


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_a_preempted_sequence_continues_as_before(golden, sampling):
    want = alone(golden, PROMPTS[2], sampling, 10)
    one = driver(golden)
    one.add(4, PROMPTS[2], sampling)
    for _ in range(4):
        one.run(4)
    known = one.known[4]
    one.end(4)
    one.add(4, known, sampling)  # in the same batch, in the seam's order: ended, then begun
    one.begun[-1] = Begun(4, len(PROMPTS[2]), sampling)
    while len(one.known[4]) < len(PROMPTS[2]) + 10:
        one.run(4, most=2)
    assert one.known[4][len(PROMPTS[2]) :] == want


def test_no_stop_token_is_sampled_before_min_tokens(golden):
    greedy = alone(golden, PROMPTS[0], GREEDY, 8)
    stops = frozenset(greedy)
    one = driver(golden)
    one.add(0, PROMPTS[0], Sampling(stop_tokens=stops, min_tokens=5, logprobs=0))
    one.add(1, PROMPTS[0], Sampling(stop_tokens=stops))
    for step in range(8):
        output = one.run(0, 1)
        if not step:  # the ban does not change the logprobs of the raw distribution
            assert output.logprobs[0][0].sampled < 0
    assert one.said(1) == greedy
    assert not stops & set(one.said(0)[:5])
    one.add(2, one.known[0][: len(PROMPTS[0]) + 5], Sampling(stop_tokens=stops))
    one.run(2)
    assert one.said(2) == one.said(0)[5:6], "from then on it is greedy as before"


def test_logprobs_equal_those_of_the_reference(golden):
    one = driver(golden)
    one.add(0, PROMPTS[0], Sampling(logprobs=3))
    one.add(1, PROMPTS[3], GREEDY)
    one.add(2, PROMPTS[3], Sampling(temperature=1.0, seed=1, logprobs=0))
    output = one.run(1, 0, 2)
    assert sorted(output.logprobs) == [1, 2]
    want = golden.logits(list(PROMPTS[0]))[-1].log_softmax(dim=-1)
    (said,) = output.logprobs[1]
    assert said.sampled == pytest.approx(want.max().item(), abs=1e-4)
    assert [token for token, _ in said.top] == want.topk(3).indices.tolist()
    assert said.top[0] == (output.tokens[1][0], said.sampled)
    ((sampled, top),) = output.logprobs[2]
    logits = golden.logits(list(PROMPTS[3]))[-1].log_softmax(dim=-1)
    assert top == () and sampled == pytest.approx(logits[output.tokens[2][0]].item(), abs=1e-4)


@pytest.mark.parametrize("width", [0, -1])
def test_a_row_with_non_finite_numbers_fails_alone(goldens, width):
    golden = goldens["llama-mha"]
    greedy = golden.generate(PROMPTS[0], 8)
    one = driver(golden)
    one.executor.model.weights.embed.weight[200] = float("nan")
    one.add(0, PROMPTS[0])
    one.add(1, (200, 3, 4, 5, 6, 7))
    output = one.run(1, 0, most=4, width=width)  # sequence 1 samples nothing yet
    assert list(output.errors) == [0] and "not finite" in output.errors[0]
    one.end(1)
    one.add(2, (3, 4, 200, 5))
    output = one.run(0, 2, width=width)
    assert list(output.errors) == [1] and output.tokens[1] == ()
    one.end(2)  # its block goes to sequence 3, and its old keys are gathered behind 3's last token
    one.add(3, PROMPTS[1])
    while len(one.said(0)) < 8:
        assert not one.run(3, 0, width=width, held=1 if width else 0).errors
    assert one.said(0) == greedy


def test_non_finite_logits_fail_the_row(goldens):
    one = driver(goldens["llama-mha"])
    head = one.executor.model.weights.head
    one.executor.model.weights = replace(
        one.executor.model.weights, head=lambda x: head(x).index_fill(1, torch.tensor(3), torch.nan)
    )
    one.add(0, PROMPTS[0], Sampling(logprobs=1))
    output = one.run(0)
    assert output.tokens == ((),) and "logits" in output.errors[0] and not output.logprobs


@pytest.mark.parametrize("token", [-1, 211])
def test_a_token_outside_the_vocabulary_fails_alone(golden, greedy, token):
    one = driver(golden)
    one.add(0, PROMPTS[0])
    one.add(1, (1, token, 2))
    one.executor.model.weights.embed.weight[200] = float("nan")
    one.add(2, (1, 200, 2))
    output = one.run(0, 1, 2)
    assert output.errors[1] == f"token {token} is outside the vocabulary of 211"
    assert sorted(output.errors) == [1, 2] and output.tokens == ((greedy[0][0],), (), ())


def test_slots_grow_and_are_reused(golden, greedy):
    crowd = driver(golden, sequences=151, block_size=16)
    sampling = Sampling(
        temperature=1.1,
        top_k=30,
        top_p=0.95,
        min_p=0.01,
        seed=77,
        stop_tokens=frozenset({3}),
        min_tokens=2,
        logprobs=1,
    )
    crowd.add(900, PROMPTS[0], sampling)
    crowd.run(900)
    for i in range(150):
        crowd.add(i, PROMPTS[i % 4], Sampling(seed=i))
    assert list(crowd.run(*range(150), 900).logprobs) == [150], "its kept state stays"
    crowd.run(900)
    assert crowd.said(900) == alone(golden, PROMPTS[0], sampling, 3)
    crowd.end(900)
    for _ in range(2):
        crowd.run(*range(150))
    assert all(crowd.said(i) == greedy[i % 4][:3] for i in range(150))
    for i in range(0, 150, 2):
        crowd.end(i)
    crowd.run(1, 3)
    assert len(crowd.executor._slots.of) == 75
    crowd.add(500, PROMPTS[2])
    crowd.run(500, 5)
    assert crowd.said(500) == greedy[2][:1] and crowd.said(5) == greedy[1][:4]


def test_a_short_row_answers_the_same_beside_a_very_long_one(golden):
    """Almost all keys of the short row are padding there."""
    config = replace(load(golden.folder).config, context=2048)
    one = Driver(load_random(config, Limits(sequences=2), dtype="float32", device="cpu").executor)
    prompt = tuple(torch.randint(200, (1500,), generator=torch.Generator().manual_seed(1)).tolist())
    one.add(0, prompt)
    one.add(1, (7, 8))
    for _ in range(5):
        one.run(0, 1)
    two = Driver(load_random(config, Limits(sequences=2), dtype="float32", device="cpu").executor)
    two.add(1, (7, 8))
    for _ in range(5):
        two.run(1)
    assert one.said(1) == two.said(1)


@pytest.mark.parametrize("width", [0, -1])
def test_a_sequence_that_cannot_begin_fails_alone_whatever_the_reason(
    golden, greedy, monkeypatch, width
):
    """Others begin in the same step. The failed one leaves no state, and another takes its slot."""

    class Lacking(History):
        def __init__(self, begun, *rest):
            if begun.sampling.presence_penalty == 0.5:
                raise torch.OutOfMemoryError("no memory is left\nand a page of details")
            super().__init__(begun, *rest)

    monkeypatch.setattr("headway.executor.torch.slots.History", Lacking)
    one = driver(golden)
    for i, prompt in enumerate(PROMPTS):
        one.add(i, prompt)
    lacking = Sampling(presence_penalty=0.5, prompt_logprobs=0)
    for i in (10, 11):
        one.add(i, PROMPTS[0], lacking)
    one.add(12, PROMPTS[0], Sampling(top_k=2**63))  # as if admission had not checked
    output = one.run(10, 0, 1, 12, 2, 3, 11, width=width, held=1 if width else 0)
    why = "the request could not begin: no memory is left"
    assert {row: said for row, said in output.errors.items() if row != 3} == {0: why, 6: why}
    assert output.errors[3].startswith("the request could not begin: ")
    for i in (10, 11, 12):
        one.end(i)
    one.add(13, PROMPTS[0], Sampling(presence_penalty=0.25))
    while len(one.said(0)) < 8:
        assert not one.run(0, 1, 2, 3, 13).errors
    assert [one.said(i)[:8] for i in range(4)] == greedy
    slots = one.executor._slots
    assert sorted(slots.of.values()) == [1, 2, 3, 4, 5] and len(slots.histories) == 1
    assert not slots._refused


def test_after_three_faults_a_trial_step_works_and_leaves_no_state(golden, greedy, monkeypatch):
    one = driver(golden)
    executor, guarded = one.executor, GuardedExecutor(one.executor)
    forward = executor.model.forward

    def lacking(inputs, cache):
        if len(inputs.tokens) > 1:  # the trial step has one token
            raise torch.OutOfMemoryError("no memory is left")
        return forward(inputs, cache)

    monkeypatch.setattr(executor.model, "forward", lacking)
    begun = Begun(0, len(PROMPTS[0]), GREEDY)
    row = Row(0, 0, tuple(PROMPTS[0]), (1, 2, 3, 4), Want.LAST)
    for step in range(1, MOST_FAILURES + 1):
        batch = Batch(step, (row,), (begun,), (0,) if step > 1 else ())
        assert guarded.collect(guarded.submit(batch)).errors
    monkeypatch.undo()
    batch = Batch(MOST_FAILURES + 1, (row,), (begun,), (0,))
    assert guarded.collect(guarded.submit(batch)).tokens == ((greedy[0][0],),)
    assert list(executor._slots.of) == [0], "the trial's state is dropped"
