"""Penalties, bias and bad words equal transformers' processors under any batching."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from headway.core.batch import Begun
from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Finish, Request
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from headway.executor.torch.sampling.penalties import History, penalized
from headway.sim.simulate import simulate

VOCAB = 40
COST = StepCost.of(7_000_000, per_token=35_000, per_pair=47)
MS = 1_000_000
CPU = torch.device("cpu")
tokens = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12)


def history(sampling, prompt, answer):
    begun = Begun(0, len(prompt), sampling, tuple(prompt))
    made = History(begun, VOCAB, CPU)
    made.extend(0, prompt)  # the prompt's own row adds no token
    for i, token in enumerate(answer):
        made.extend(len(prompt) + i, (token,))
    return made


def logits_of(rows):
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(0)) * 3


@settings(deadline=None)
@given(tokens, tokens, st.sampled_from([0.5, 1.3, 2.0]))
def test_the_repetition_penalty_equals_transformers(prompt, answer, penalty):
    logits = logits_of(3)
    made = history(Sampling(repetition_penalty=penalty), prompt, answer)
    found = penalized(logits, {1: made})
    ids = torch.tensor([prompt + answer])
    want = RepetitionPenaltyLogitsProcessor(penalty)(ids, logits[1:2].clone())
    assert torch.equal(found[1], want[0])
    assert torch.equal(found[[0, 2]], logits[[0, 2]]), "the others keep their own"


@settings(deadline=None)
@given(tokens, tokens)
def test_presence_and_frequency_penalties_count_only_the_answer(prompt, answer):
    logits = logits_of(1)
    made = history(Sampling(presence_penalty=0.7, frequency_penalty=0.25), prompt, answer)
    want = logits[0].clone()
    for token in range(VOCAB):
        if count := answer.count(token):
            want[token] -= 0.7 + 0.25 * count
    assert torch.allclose(penalized(logits, {0: made})[0], want, atol=1e-6)


def test_logit_bias_equals_transformers():
    logits = logits_of(1)
    pairs = ((3, -2.5), (7, 1.25), (9, -100.0))
    made = history(Sampling(logit_bias=pairs), [1], [])
    want = SequenceBiasLogitsProcessor([[[token], bias] for token, bias in pairs])(
        torch.tensor([[1]]), logits.clone()
    )
    assert torch.equal(penalized(logits, {0: made}), want)


@settings(deadline=None)
@given(tokens, st.lists(st.integers(0, 3), max_size=6))
def test_bad_words_equal_transformers(prompt, answer):
    words = ((3,), (1, 2), (0, 0, 1), (2, 5))
    logits = logits_of(1)
    made = history(Sampling(bad_words=words), prompt, answer)
    processor = NoBadWordsLogitsProcessor([list(word) for word in words], eos_token_id=None)
    want = processor(torch.tensor([prompt + answer]), logits.clone())
    assert torch.equal(penalized(logits, {0: made}), want)


class Counted(list):
    """A list that counts its slices."""

    slices = 0

    def __getitem__(self, at):
        self.slices += isinstance(at, slice)
        return super().__getitem__(at)


def test_bad_words_are_compared_only_where_they_may_end():
    words = tuple([(1,) * length + (9,) for length in range(1, 30)])
    made = history(Sampling(bad_words=words), [1] * 10, [2])
    made.known = Counted(made.known)
    assert made._banned() == [] and made.known.slices == 0
    made.extend(11, (1, 1))
    made.known.slices = 0
    assert made._banned() == [9, 9] and made.known.slices == len(words)


def test_a_preempted_sequence_has_the_same_penalties():
    asked = Sampling(repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.5)
    first = history(asked, [1, 2, 3], [5, 5, 6])
    again = History(Begun(0, 3, asked, (1, 2, 3, 5, 5, 6)), VOCAB, CPU)
    again.extend(0, (1, 2, 3, 5))  # rows from the end of the cached prefix on
    again.extend(4, (5, 6))
    logits = logits_of(1)
    assert torch.equal(penalized(logits, {0: first}), penalized(logits, {0: again}))


ASKED = {
    "plain": Sampling(),
    "penalties": Sampling(repetition_penalty=1.4, presence_penalty=0.6, frequency_penalty=0.3),
    "drawn": Sampling(0.9, seed=5, frequency_penalty=1.0, logit_bias=((3, 2.0),)),
    "bad": Sampling(bad_words=((12,), (143, 98))),
    "choice": Sampling(0.9, seed=5, choice=1),
    "scored": Sampling(prompt_logprobs=3),
}


def serve(folder, names, blocks, chunk):
    """The answers and the prompts' log-probabilities of these requests, submitted together."""
    loaded = load(folder, Limits(sequences=6, block_size=4, num_blocks=blocks))
    policies = Policies(Continuous(6), chunk=Fixed(chunk), step_tokens=32)
    scheduler = Scheduler(Settings(blocks, 4, policies=policies))
    prompt = tuple((i * 37 + 11) % 200 for i in range(14))
    timed = [
        (i * MS, Add(Request(name, prompt, 16, i * MS, sampling=ASKED[name])))
        for i, name in enumerate(names)
    ]
    said, scores = {name: [] for name in names}, {name: [] for name in names}
    for event in simulate(scheduler, timed, COST, loaded.executor):
        said[event.id] += event.tokens
        scores[event.id] += event.prompt_logprobs
        assert event.finish in (Finish.NOT_YET, Finish.LENGTH), event.error
    return said, scores, prompt, scheduler


def test_answers_are_the_same_alone_batched_and_preempted(golden):
    alone = {name: serve(golden.folder, [name], 64, 32)[0][name] for name in ASKED}
    assert len({tuple(answer) for answer in alone.values()}) == len(ASKED) - 1
    assert alone["plain"] == alone["scored"], "scoring changes no answer"
    for blocks, chunk in ((64, 32), (20, 5)):
        said, _, _, scheduler = serve(golden.folder, list(ASKED), blocks, chunk)
        assert said == alone
    assert sum(row.preemptions for row in scheduler.ledger.requests), (
        "the last run is short of memory"
    )


@pytest.mark.parametrize(("blocks", "chunk"), [(64, 32), (64, 5), (20, 5)])
def test_prompt_logprobs_equal_transformers(golden, blocks, chunk):
    names = ["plain", "scored", "penalties", "drawn"]
    _, scores, prompt, _ = serve(golden.folder, names, blocks, chunk)
    want = golden.logits(list(prompt)).log_softmax(dim=-1)
    assert not scores["plain"] and len(scores["scored"]) == len(prompt) - 1
    for i, said in enumerate(scores["scored"]):
        assert said.sampled == pytest.approx(want[i, prompt[i + 1]].item(), abs=1e-4)
        top = want[i].topk(3)
        assert [token for token, _ in said.top] == top.indices.tolist()
        assert [value for _, value in said.top] == pytest.approx(top.values.tolist(), abs=1e-4)
