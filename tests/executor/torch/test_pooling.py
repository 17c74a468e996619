"""Prompt vectors equal transformers' pooled hidden states, whatever the batching. Scores of
classifiers equal transformers' own."""

import json
from functools import cache

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from headway.commands.check import check
from headway.core.batch import Batch, Begun, Row, Want
from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Static
from headway.core.policies.policies import Policies
from headway.core.request import Finish, Request
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import SettingError
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from headway.sim.simulate import simulate
from headway.vectors.model_card import read_card
from headway.vectors.vectors import without_padding
from tests.executor.torch.test_golden import prompts
from tests.executor.torch.tiny_checkpoints import BASE, CONTEXT, MORE, SHAPES

MS = 1_000_000
COST = StepCost.of(10 * MS, per_token=MS, per_pair=0)
JOINS = {
    "alone": Policies(Continuous(1), chunk=Whole()),
    "together": Policies(Continuous(8), chunk=Whole()),
    "in chunks": Policies(Continuous(5), chunk=Fixed(7), step_tokens=24),
    "in groups": Policies(Static(3)),
}
ASKED = [(prompt, pooling) for prompt in prompts() for pooling in ("last", "mean")]
POOLED = {
    "last": lambda states: states[-1],
    "mean": lambda states: states.mean(dim=0),
    "max": lambda states: states.max(dim=0).values,
    "mean_sqrt_len_tokens": lambda states: states.sum(dim=0) / len(states) ** 0.5,
    "weightedmean": lambda states: (
        sum((i + 1) * each for i, each in enumerate(states)) / sum(range(1, len(states) + 1))
    ),
}
# One shape of each family for which transformers has a classifier.
CLASSIFIERS = [
    "llama-mha",
    "mistral-window",
    "mixtral",
    "qwen2-bias-tied",
    "qwen3-norms",
    "qwen3-moe",
    "phi3",
    "gemma",
    "gemma2",
    "gemma3",
    "smollm3",
    "starcoder2",
]
FAMILIES = [*CLASSIFIERS, "olmo2", "olmo3", "granite"]


def expected(folder, asked=ASKED):
    """[asked, hidden] by transformers, one prompt at a time."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()

    @cache
    def hidden(prompt):
        with torch.inference_mode():
            return model(torch.tensor([prompt])).last_hidden_state[0]

    return np.stack([POOLED[pooling](hidden(prompt)).numpy() for prompt, pooling in asked])


def pooled(folder, policies, asked=ASKED, generated=0):
    """[asked, hidden] by our executor, beside this many requests that generate."""
    loaded = load(folder, Limits(sequences=8, block_size=4, num_blocks=30))
    settings = Settings(30, 4, policies=policies, context=CONTEXT)
    others = [Request(f"g{i}", (5, 6, 7), 6, i * 7 * MS) for i in range(generated)]
    requests = [
        Request(f"{i}", prompt, 0, i * MS, pooling=pooling)
        for i, (prompt, pooling) in enumerate(asked)
    ]
    timed = sorted([(each.arrived, Add(each)) for each in others + requests], key=lambda t: t[0])
    events = simulate(Scheduler(settings), timed, COST, loaded.executor)
    ended = {event.id: event for event in events if event.finish}
    assert {ended[each.id].finish for each in requests} == {Finish.COMPUTED}
    return np.stack([np.frombuffer(ended[each.id].vector, np.float32) for each in requests])


@pytest.mark.parametrize("shape", [*SHAPES, *MORE])
def test_vectors_equal_transformers(goldens, shape):
    """Those of MORE, whose choices batching does not affect, run under two policies."""
    folder = goldens[shape].folder
    want = expected(folder)
    for name in JOINS if shape in SHAPES else ("in chunks", "in groups"):
        found = pooled(folder, JOINS[name], generated=2)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("policies", JOINS.values(), ids=JOINS)
def test_each_pooling_is_as_sentence_transformers_defines_it(golden, policies):
    asked = [(prompt, pooling) for prompt in prompts()[:4] for pooling in POOLED]
    found = pooled(golden.folder, policies, asked, generated=2)
    np.testing.assert_allclose(found, expected(golden.folder, asked), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", FAMILIES)
def test_a_model_without_a_head_gives_the_vectors_of_the_model_with_it(goldens, tmp_path, shape):
    folder = goldens[shape].folder
    AutoModel.from_pretrained(folder).save_pretrained(tmp_path)
    architecture = json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    assert architecture.endswith("Model"), "or transformers names it otherwise"
    loaded = load(tmp_path, Limits(sequences=8, block_size=4, num_blocks=30))
    assert not loaded.executor.traits.generates
    found = pooled(tmp_path, JOINS["in chunks"], ASKED[:6])
    np.testing.assert_allclose(found, expected(folder, ASKED[:6]), rtol=1e-4, atol=1e-4)


def test_max_seq_length_of_sentence_transformers_is_the_context(golden, tmp_path):
    AutoModel.from_pretrained(golden.folder).save_pretrained(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 10}')
    assert load(tmp_path, Limits(sequences=8, block_size=4)).plan.context == 10
    assert check(str(tmp_path), None, None).shape.context == 10
    with pytest.raises(SettingError, match="context 11 is longer than the 10"):
        load(tmp_path, Limits(sequences=8, block_size=4, context=11))


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("shape", CLASSIFIERS)
def test_scores_of_classifiers_equal_transformers(tmp_path, shape, labels):
    family, own = (SHAPES | MORE)[shape]
    config = AutoConfig.for_model(family, **(BASE | own), num_labels=labels)
    torch.manual_seed(3)
    model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32).eval()
    model.save_pretrained(tmp_path)
    asked = [(prompt, "head") for prompt in prompts()]
    with torch.inference_mode():
        want = np.stack([model(torch.tensor([prompt])).logits[0] for prompt, _ in asked])
    for policies in (JOINS["alone"], JOINS["in chunks"]):
        found = pooled(tmp_path, policies, asked)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_padding_at_a_prompts_end_is_skipped_as_by_transformers(tmp_path):
    config = AutoConfig.for_model("qwen2", **BASE, num_labels=2)
    torch.manual_seed(3)
    model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32).eval()
    model.save_pretrained(tmp_path)
    padding = read_card(tmp_path).padding
    assert padding == BASE["pad_token_id"]
    for prompt in ((5, 6, 7, padding, padding), (5, padding, 7), (padding, padding)):
        with torch.inference_mode():
            want = model(torch.tensor([prompt])).logits[0].numpy()
        asked = [(without_padding(prompt, padding), "head")]
        found = pooled(tmp_path, JOINS["alone"], asked)[0]
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_a_classifier_offers_no_embeddings_and_a_cached_prefix_changes_no_score(tmp_path):
    config = AutoConfig.for_model("qwen2", **BASE, num_labels=1)
    torch.manual_seed(3)
    AutoModelForSequenceClassification.from_config(config).eval().save_pretrained(tmp_path)
    loaded = load(tmp_path, Limits(sequences=8, block_size=4, num_blocks=30))
    assert loaded.executor.traits.poolings == ("head",)
    asked = [((*range(5, 25), end), "head") for end in (30, 31, 32)]
    settings = Settings(30, 4, policies=JOINS["alone"], context=CONTEXT)
    scheduler = Scheduler(settings)
    requests = [
        Request(f"{i}", prompt, 0, i, pooling=kind) for i, (prompt, kind) in enumerate(asked)
    ]
    events = simulate(
        scheduler, [(each.arrived, Add(each)) for each in requests], COST, loaded.executor
    )
    rows = {row.id: row for row in scheduler.ledger.requests}
    assert [rows[each.id].cached for each in requests] == [0, 20, 20]
    found = [np.frombuffer(event.vector, np.float32) for event in events if event.finish]
    for (prompt, kind), score in zip(asked, found, strict=True):
        alone = pooled(tmp_path, JOINS["alone"], [(prompt, kind)])[0]
        np.testing.assert_allclose(score, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_vector_that_is_not_finite_is_an_error(golden, pooling):
    """The hidden states are finite, and the last norm is not."""
    executor = load(golden.folder, Limits(sequences=2, block_size=4)).executor
    executor.model.weights.norm.weight[3] = float("nan")
    row, begun = Row(1, 0, (5, 6, 7), (1,), Want.VECTOR), Begun(1, 3, Sampling(), pooling=pooling)
    output = executor.collect(executor.submit(Batch(1, (row,), (begun,))))
    assert "not finite" in output.errors[0]
