"""Rerankers that answer yes or no: pairs pass through the checkpoint's chat template, and scores
equal transformers' logits."""

import json
import math

import numpy as np
import pytest

from headway import LLM
from headway.commands.check import check
from headway.errors import CheckpointError, PromptError, RefusedError, SettingError, TokenizerError
from headway.executor.torch.load import load
from headway.executor.torch.loading.weight_bytes import weight_bytes
from headway.executor.torch.memory.memory_plan import Limits
from headway.llm.vector_calls import Classification
from headway.text.tokenizer import Tokenizer
from headway.vectors.model_card import read_card
from headway.vectors.vectors import score
from tests.executor.torch.test_golden import prompts
from tests.executor.torch.test_pooling import JOINS, pooled
from tests.executor.torch.tiny_checkpoints import BASE
from tests.executor.torch.yes_no import (
    LOGITS,
    NO,
    TEMPLATE,
    YES,
    make_reranker,
    score_by_transformers,
)
from tests.tiny_encoders import tokenizer

DOCUMENTS = ["the cat sat on the mat", "a dog", "[SEP] the rain in spain"]
SHAPES = [
    ("qwen3", {"tie_word_embeddings": True}),
    ("qwen3", {"tie_word_embeddings": False}),
    ("granite", {"logits_scaling": 4.0}),
    ("gemma2", {"head_dim": 8, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 8}),
]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize("no", [NO, None])
@pytest.mark.parametrize("family, own", SHAPES)
def test_scores_equal_transformers(tmp_path, family, own, no):
    model = make_reranker(tmp_path, family, no=no, **own)
    asked = [(prompt, "head") for prompt in prompts()]
    want = [score_by_transformers(model, prompt, no) for prompt, _ in asked]
    card = read_card(tmp_path)
    for policies in (JOINS["alone"], JOINS["in chunks"]):
        found = [score(each.tobytes(), card) for each in pooled(tmp_path, policies, asked)]
        np.testing.assert_allclose(found, [sigmoid(each) for each in want], atol=1e-4)


def test_a_reranker_keeps_only_its_answer_tokens_rows_of_the_head(tmp_path):
    make_reranker(tmp_path, tie_word_embeddings=False)
    loaded = load(tmp_path, Limits(sequences=2, block_size=4, num_blocks=30))
    weights = loaded.executor.model.weights
    assert weights.score is not None and weights.score.nbytes == 2 * 48 * 4
    predicted = weight_bytes(loaded.config, loaded.config.precision("float32", "cpu"))
    assert weights.nbytes == predicted + weights.score.nbytes


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reranker")
    model = make_reranker(folder)
    words = tokenizer()
    words.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    with LLM(folder) as llm:
        yield folder, model, words, llm


def test_a_pair_is_rendered_by_the_chat_template(reranker):
    """The default prompt appears once, as the template's instruction, and not before the query."""
    _, model, words, llm = reranker
    texts = [f"where is it the cat on {document} is it" for document in DOCUMENTS[:2]]
    ids = [words(text, add_special_tokens=False)["input_ids"] for text in texts]
    want = [sigmoid(score_by_transformers(model, each)) for each in ids]
    assert llm.score("cat", DOCUMENTS[:2]) == pytest.approx(want, abs=1e-4)
    alone = [llm.score("cat", [each])[0] for each in DOCUMENTS[:2]]
    assert alone == pytest.approx(want, abs=1e-4)


def test_a_document_cannot_spell_a_special_token(reranker):
    *_, llm = reranker
    ids = llm.tokenizer.encode_pair("cat", DOCUMENTS[2])
    special = llm.tokenizer.encode("")[-1]  # [SEP]
    assert special not in ids


def test_a_long_document_is_truncated_and_the_templates_end_kept(reranker):
    *_, llm = reranker
    whole = llm.tokenizer.encode_pair("cat", "dog " * 30)
    short = llm.tokenizer.encode_pair("cat", "dog " * 3)
    assert llm.tokenizer.encode_pair("cat", "dog " * 30, most=len(short)) == short
    assert llm.tokenizer.encode_pair("cat", "dog " * 30, most_second=3) == short
    assert len(whole) == len(short) + 27
    with pytest.raises(PromptError, match="leaves no room for a document: a pair may have 5"):
        llm.tokenizer.encode_pair("cat", "dog " * 30, most=5)
    with pytest.raises(RefusedError):
        llm.score("cat", ["dog " * 200])
    assert len(llm.score("cat", ["dog " * 200], truncate=True)) == 1


def test_a_reranker_classifies_with_one_label_and_makes_no_embeddings(reranker):
    folder, model, words, llm = reranker
    ids = words("the cat", add_special_tokens=False)["input_ids"]
    (found,) = llm.classify([ids])
    want = sigmoid(score_by_transformers(model, ids))
    assert found == Classification("LABEL_0", {"LABEL_0": pytest.approx(want, abs=1e-4)})
    with pytest.raises(SettingError, match="no embeddings"):
        llm.embed("the cat")
    assert check(str(folder), None, None).shape.makes == "scores of pairs"


def test_a_rerankers_activation_function_is_obeyed(tmp_path):
    model = make_reranker(tmp_path)
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"activation_fn": "torch.nn.modules.linear.Identity"}))
    (raw,) = pooled(tmp_path, JOINS["alone"], [((5, 6, 7), "head")])
    want = score_by_transformers(model, (5, 6, 7))
    assert score(raw.tobytes(), read_card(tmp_path)) == pytest.approx(want, abs=1e-4)


def test_a_reranker_without_a_message_format_encodes_pairs_without_a_template(tmp_path):
    make_reranker(tmp_path)
    words = tokenizer()
    words.save_pretrained(tmp_path)
    path = tmp_path / "sentence_bert_config.json"
    path.write_text(json.dumps({"modality_config": {"text": LOGITS}}))
    found = Tokenizer(tmp_path, BASE["vocab_size"]).encode_pair("the cat", "a dog")
    assert list(found) == words("the cat", "a dog")["input_ids"]


@pytest.mark.parametrize(
    "tokens, why",
    [
        ({"true_token_id": None}, "are no token ids"),
        ({"true_token_id": "yes"}, "are no token ids"),
        ({"true_token_id": YES, "false_token_id": 999}, "has no logits of the tokens"),
    ],
)
def test_answer_tokens_that_the_model_does_not_have_are_refused(tmp_path, tokens, why):
    make_reranker(tmp_path)
    (tmp_path / "1_LogitScore" / "config.json").write_text(json.dumps(tokens))
    with pytest.raises(CheckpointError, match=why):
        load(tmp_path, Limits(sequences=2))


@pytest.mark.parametrize(
    "template, why",
    [
        ("", "and there is none"),
        ("{{ messages[0].content }}", "that writes the messages of a query and a document"),
        ("{{ raise_exception('only users') }}", "only users"),
    ],
)
def test_a_template_that_cannot_render_a_pair_is_refused(tmp_path, template, why):
    make_reranker(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    if template:
        (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(TokenizerError, match=why):
        Tokenizer(tmp_path, BASE["vocab_size"])
