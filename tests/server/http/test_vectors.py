"""Embeddings, rerank, score and classify over HTTP: through the openai package, and without it."""

import asyncio
import base64
import json
import re
from contextlib import contextmanager
from dataclasses import replace

import httpx2
import numpy as np
import openai
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from headway import LLM
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.executor.load import load
from headway.executor.torch.memory.memory_plan import Limits
from headway.server.answering import vector_call
from headway.server.config.config import ServerConfig
from headway.server.intake.tokenizing import AsyncTokenizer
from headway.text.tokenizer import Tokenizer
from headway.vectors.model_card import read_card
from tests.executor.torch.yes_no import TEMPLATE, make_reranker
from tests.server.asgi_client import Client, inside, until
from tests.server.running_server import Local, embedded, fake, serving
from tests.tiny_encoders import BASE, CONTEXT, make_encoder, tokenizer

MANY = "'input': 2049 texts, where 2048 are the most of one call"
PHI = {"num_key_value_heads": 2, "bos_token_id": None, "eos_token_id": None}
TEXTS = ["the cat sat on the mat", "a dog", "where is it", "the rain in spain"]


@contextmanager
def serving_encoder(folder, config=None):
    """A server with an encoder's checkpoint; gives its URL and the same model without a server."""
    loaded = load("torch", folder, Limits())
    traits = loaded.executor.traits

    def engine(config):
        plan = loaded.plan
        policies = replace(config.policies, chunk=whole.policies.chunk)
        memory = plan.num_blocks, plan.block_size
        settings = Settings(*memory, config.core_lanes, policies, plan.context)
        return Local(Scheduler(settings), loaded.executor)

    with LLM(folder) as whole, serving(config, engine) as (url, front):
        tokenizer = AsyncTokenizer(Tokenizer(folder, loaded.vocab), folder)
        front.model.ready(tokenizer, frozenset(), traits, read_card(folder))
        yield url, whole


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    folder = make_encoder(tmp_path_factory.mktemp("bert") / "model", "bert")
    prompts = {"prompts": {"query": "where is ", "document": ""}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with serving_encoder(folder) as served:
        yield served


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    folder = make_encoder(tmp_path_factory.mktemp("cross") / "model", "bert", 1)
    with serving_encoder(folder) as served:
        yield served


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    labels = {0: "bad", 1: "fine", 2: "good"}
    folder = make_encoder(tmp_path_factory.mktemp("three") / "model", "roberta", 3, id2label=labels)
    with serving_encoder(folder) as served:
        yield served


def post(url, path, status=200, **body):
    answer = httpx2.post(f"{url}/v1/{path}", json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()["error"] if status != 200 else answer.json()


def client_of(url, strict):
    return openai.OpenAI(
        base_url=f"{url}/v1", api_key="none", _strict_response_validation=strict, max_retries=0
    )


def test_embeddings_through_the_openai_package_equal_those_offline(embedder):
    url, offline = embedder
    want = offline.embed(TEXTS)
    ids = [list(offline.tokenizer.encode(text)) for text in TEXTS]
    # By default the package asks for base64, which it decodes only after its strict validation.
    for strict, form in ((False, {}), (True, {"encoding_format": "float"})):
        with client_of(url, strict) as client:
            for given in (TEXTS, ids):
                answer = client.embeddings.create(model="headway-tiny", input=given, **form)
                check(answer, want, ids)
            cut = client.embeddings.create(
                model="headway-tiny", input=TEXTS[0], dimensions=5, **form
            )
        alone = offline.embed(TEXTS[0], dimensions=5)[0]
        np.testing.assert_allclose(cut.data[0].embedding, alone, atol=1e-6)


def check(answer, want, ids):
    assert [each.index for each in answer.data] == list(range(len(TEXTS)))
    np.testing.assert_allclose([each.embedding for each in answer.data], want, atol=1e-6)
    assert answer.usage.prompt_tokens == sum(map(len, ids)) == answer.usage.total_tokens


def test_base64_embeddings_are_little_endian_float32(embedder):
    url, offline = embedder
    answer = post(url, "embeddings", input=TEXTS[1], encoding_format="base64")
    raw = base64.b64decode(answer["data"][0]["embedding"])
    np.testing.assert_array_equal(np.frombuffer(raw, "<f4"), offline.embed(TEXTS[1])[0])


def test_a_decoder_embeds_and_generates(embedder):
    with serving(ServerConfig(), embedded) as (url, _), LLM(dtype="float32") as offline:
        for pooling in ("last", "mean"):
            answer = post(url, "embeddings", input=["The json module", "class"], pooling=pooling)
            found = [each["embedding"] for each in answer["data"]]
            want = offline.embed(["The json module", "class"], pooling=pooling)
            np.testing.assert_allclose(found, want, atol=1e-5)
        said = post(url, "completions", prompt="The json", max_tokens=3, temperature=0)
        assert said["usage"]["completion_tokens"] == 3
        refused = post(url, "embeddings", 400, input="a", pooling="first")
        assert "has no pooling 'first': it has last, mean" in refused["message"]


def test_an_empty_text_is_named_and_a_query_does_not_count_as_an_input():
    with serving(ServerConfig(server={"limits": {"inputs": 3}}), embedded) as (url, _):
        for path, body, param in (
            ("rerank", {"query": "", "documents": ["a", "b"]}, "query"),
            ("rerank", {"query": "a", "documents": ["a", ""]}, "documents.1"),
            ("score", {"text_1": "", "text_2": ["a", "b"]}, "text_1"),
            ("score", {"text_1": "a", "text_2": ["a", ""]}, "text_2.1"),
            ("score", {"text_1": "a", "text_2": ""}, "text_2"),
            ("embeddings", {"input": ["a", "b", ""]}, "input.2"),
            ("completions", {"prompt": ["a", ""]}, "prompt.1"),
            ("embeddings", {"input": ""}, "input"),
        ):
            refused = post(url, path, 400, **body)
            assert (refused["message"], refused["param"]) == ("the prompt is empty", param)
        assert len(post(url, "rerank", query="a", documents=["a"] * 3)["results"]) == 3
        assert len(post(url, "score", text_1="a", text_2=["a"] * 3)["data"]) == 3
        refused = post(url, "rerank", 400, query="a", documents=["a"] * 4)
        assert refused["message"].startswith("'documents': 4 texts, where 3 are the most")


def test_embeddings_of_300_texts_in_one_call_equal_those_offline(embedder):
    url, offline = embedder
    texts = [TEXTS[i % 4] + " cat" * (i % 9) for i in range(300)]
    answer = post(url, "embeddings", input=texts)
    found = [each["embedding"] for each in answer["data"]]
    np.testing.assert_allclose(found, offline.embed(texts), atol=2e-5)


@pytest.mark.parametrize(
    "path, body",
    [
        ("embeddings", {"input": ["a"] * 40}),
        ("rerank", {"query": "a", "documents": ["b"] * 100, "top_n": 1}),
        ("score", {"text_1": ["a"] * 40, "text_2": ["b"] * 40}),
    ],
)
def test_other_tasks_get_a_turn_after_each_vector_that_is_written_or_compared(
    monkeypatch, path, body
):
    monkeypatch.setattr(vector_call, "LONG_BYTES", 40 * 8)  # the fake's vectors have two numbers
    turns = 0

    async def scene(app, service, rows):
        nonlocal turns
        client = Client(app, body, path=f"/v1/{path}")
        await until(lambda: client.said or client.task.done())
        while not client.task.done():
            turns += 1
            await asyncio.sleep(0)
        assert json.loads(client.said)

    inside(ServerConfig(), fake, scene)
    assert turns >= 40


def test_prompt_name_chooses_a_prompt_of_the_model_card(embedder):
    url, offline = embedder
    answer = post(url, "embeddings", input=TEXTS[1], prompt_name="query", normalize=False)
    want = offline.embed(TEXTS[1], prompt_name="query", normalize=False)[0]
    np.testing.assert_allclose(answer["data"][0]["embedding"], want, atol=1e-5)
    refused = post(url, "embeddings", 400, input="a", prompt_name="title")
    assert refused["param"] == "prompt_name"
    assert refused["message"] == "the model card has no prompt 'title'; it has query, document"


def test_long_texts_are_refused_unless_truncation_is_asked_for(embedder):
    url, offline = embedder
    long = "cat " * 60
    refused = post(url, "embeddings", 400, input=["a", long])
    assert (refused["param"], refused["code"]) == ("input.1", "context_length_exceeded")
    almost = "it is " * 30  # few enough characters, but too many tokens
    refused = post(url, "embeddings", 400, input=almost)
    assert "maximum context length is 40 tokens: the prompt has 62" in refused["message"]
    for short, tokens in (("the" + " " * 500 + "cat", 4), ("x" * 300, 3)):  # few tokens
        assert post(url, "embeddings", input=short)["usage"]["prompt_tokens"] == tokens
    for most, tokens in ((-1, CONTEXT), (9, 9), (1_000, CONTEXT)):
        answer = post(url, "embeddings", input=long, truncate_prompt_tokens=most)
        assert answer["usage"]["prompt_tokens"] == tokens
    none = post(url, "embeddings", 400, input=long, truncate_prompt_tokens=2)
    assert none["message"] == "2 tokens leave no room for a text beside 2 special ones"
    cut = post(url, "embeddings", input=long, truncate_prompt_tokens=-1)
    want = offline.embed(long, truncate=True)[0]
    np.testing.assert_allclose(cut["data"][0]["embedding"], want, atol=1e-5)


@pytest.mark.parametrize(
    "body, param, message",
    [
        ({"input": []}, "input", "'input' is an empty list"),
        ({"input": [[]]}, "input", "the prompt is empty"),
        ({"input": [[1, 64]]}, "input", "a prompt has the token 64; the model has 0 to 63"),
        ({"input": "a", "dimensions": 49}, "dimensions", "'dimensions': the model has 48, not 49"),
        ({"input": "a", "dimensions": 0}, "dimensions", None),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", None),
        ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens", None),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", None),
        ({"input": "a", "pooling": "most"}, "pooling", None),
        ({"input": "a", "temperature": 1}, "temperature", None),
        (
            {"input": ["a"] * 2_049},
            "input",
            MANY,
        ),
    ],
)
def test_an_invalid_embeddings_body_is_refused_and_its_field_named(embedder, body, param, message):
    refused = post(embedder[0], "embeddings", 400, **body)
    assert refused["param"] == param
    assert message is None or refused["message"] == message


def test_documents_are_ranked_by_a_cross_encoder(reranker):
    url, offline = reranker
    scores = offline.score("where is it", TEXTS)
    order = sorted(range(4), key=lambda i: -scores[i])
    documents = [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]]
    answer = post(url, "rerank", query="where is it", documents=documents, top_n=3)
    assert [each["index"] for each in answer["results"]] == order[:3]
    for each in answer["results"]:
        assert each["relevance_score"] == pytest.approx(scores[each["index"]], abs=1e-6)
        assert each["document"] == {"text": TEXTS[each["index"]]}
    for path in ("rerank", "v2/rerank"):  # the paths of vLLM's and of Cohere's newer clients
        other = httpx2.post(f"{url}/{path}", json={"query": "a", "documents": TEXTS}, timeout=60)
        assert len(other.json()["results"]) == 4
    few = post(url, "rerank", query="a", documents=["cat dog " * 60], max_tokens_per_doc=5)
    assert few["usage"]["prompt_tokens"] == 3 + 1 + 5
    bare = post(url, "rerank", query="a", documents=TEXTS, return_documents=False)
    assert [set(each) for each in bare["results"]] == [{"index", "relevance_score"}] * 4
    pairs = post(url, "score", text_1=TEXTS, text_2=TEXTS[::-1])
    one = post(url, "score", text_1="where is it", text_2=TEXTS)
    found = [each["score"] for each in one["data"]]
    assert found == pytest.approx(scores, abs=1e-6)
    want = [offline.score(*each)[0] for each in zip(TEXTS, [[t] for t in TEXTS[::-1]], strict=True)]
    assert [each["score"] for each in pairs["data"]] == pytest.approx(want, abs=1e-6)
    refused = post(url, "score", 400, text_1=TEXTS[:3], text_2=TEXTS)
    assert refused["param"] == "text_1" and "3 texts" in refused["message"]
    for body in ({"text_1": [], "text_2": "a"}, {"text_1": "a", "text_2": []}):
        assert "must have texts" in post(url, "score", 400, **body)["message"]
    refused = post(url, "embeddings", 400, input="a")
    assert "the model is a classifier" in refused["message"]
    cut = post(url, "rerank", query="a", documents=["cat " * 60], truncate_prompt_tokens=-1)
    assert cut["usage"]["prompt_tokens"] == CONTEXT
    refused = post(
        url, "rerank", 400, query="cat " * 60, documents=["a"], truncate_prompt_tokens=-1
    )
    assert "the first text has 60 tokens: a pair may have 40" in refused["message"]


def test_the_default_prompt_of_a_cross_encoder_comes_before_the_query(tmp_path, reranker):
    """As in sentence-transformers 6.2, only the first text of a pair gets the prompt."""
    folder = make_encoder(tmp_path / "model", "bert", 1)
    card = {"prompts": {"ask": "what of ", "other": "a "}, "default_prompt_name": "ask"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(card))
    want = reranker[1].score("what of the rain", TEXTS)
    with serving_encoder(folder) as (url, offline):
        assert offline.score("the rain", TEXTS) == pytest.approx(want, abs=1e-6)
        ranked = post(url, "rerank", query="the rain", documents=TEXTS)["results"]
        found = {each["index"]: each["relevance_score"] for each in ranked}
        assert [found[i] for i in range(4)] == pytest.approx(want, abs=1e-6)
        scores = post(url, "score", text_1=["the rain"] * 4, text_2=TEXTS)["data"]
        assert [each["score"] for each in scores] == pytest.approx(want, abs=1e-6)


def test_documents_are_ranked_by_their_embeddings(embedder):
    url, offline = embedder
    scores = offline.score("the cat", TEXTS)
    answer = post(url, "rerank", query="the cat", documents=TEXTS)
    assert [each["index"] for each in answer["results"]] == sorted(
        range(4), key=lambda i: -scores[i]
    )
    found = {each["index"]: each["relevance_score"] for each in answer["results"]}
    assert [found[i] for i in range(4)] == pytest.approx(scores, abs=1e-5)
    few = post(url, "rerank", query="a", documents=["cat dog " * 60], max_tokens_per_doc=5)
    assert few["usage"]["prompt_tokens"] == 5 + 5  # "where is a", by the card's prompt
    # max_tokens_per_doc leaves the query whole. A document is cut to the lesser of both bounds.
    long = "who sat on the mat"  # 9 tokens behind the card's prompt
    for bounds, query, document in (
        ({"max_tokens_per_doc": 5}, 9, 5),
        ({"max_tokens_per_doc": 5, "truncate_prompt_tokens": -1}, 9, 5),
        ({"max_tokens_per_doc": 8, "truncate_prompt_tokens": 6}, 6, 6),
        ({"max_tokens_per_doc": 1_000}, 9, CONTEXT),
    ):
        answer = post(url, "rerank", query=long, documents=["cat dog " * 60], **bounds)
        assert answer["usage"]["prompt_tokens"] == query + document
    body = {"query": "cat " * 60, "documents": ["a"], "max_tokens_per_doc": 5}
    refused = post(url, "rerank", 400, **body)
    assert (refused["param"], refused["code"]) == ("query", "context_length_exceeded")
    answer = post(url, "rerank", query=long, documents=TEXTS, max_tokens_per_doc=4)
    ids = [offline.tokenizer.encode(text, 4) for text in TEXTS]
    vectors = offline.embed([offline.tokenizer.encode(f"where is {long}"), *ids])
    found = {each["index"]: each["relevance_score"] for each in answer["results"]}
    assert [found[i] for i in range(4)] == pytest.approx(vectors[1:] @ vectors[0], abs=1e-5)
    pairs = post(url, "score", text_1=TEXTS, text_2=TEXTS)["data"]
    assert len(pairs) == 4 and max(each["score"] for each in pairs) <= 1.0001


def test_a_decoder_with_a_classifier_scores_pairs_and_generates_nothing(tmp_path):
    config = AutoConfig.for_model("phi3", **BASE, **PHI, num_labels=1)
    torch.manual_seed(3)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(tmp_path)
    words = tokenizer()
    words.save_pretrained(tmp_path)
    with torch.inference_mode():
        pairs = [words("where is it", each, return_tensors="pt")["input_ids"] for each in TEXTS]
        want = [torch.sigmoid(model(each).logits[0, 0]).item() for each in pairs]
    with serving_encoder(tmp_path) as (url, offline):
        found = post(url, "score", text_1="where is it", text_2=TEXTS)["data"]
        assert [each["score"] for each in found] == pytest.approx(want, abs=1e-5)
        assert offline.score("where is it", TEXTS) == pytest.approx(want, abs=1e-5)
        # [PAD] is token 0, which this classifier skips at the end of a prompt.
        padded = post(url, "classify", input=[[5, 6, 0, 0], [5, 6]])["data"]
        assert padded[0]["probs"] == padded[1]["probs"]
        refused = post(url, "completions", 400, prompt="the cat")
        assert "a model without a language head generates nothing" in refused["message"]


def test_a_reranker_that_answers_yes_or_no_ranks_documents(tmp_path):
    make_reranker(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    with serving_encoder(tmp_path) as (url, offline):
        scores = offline.score("cat", TEXTS)
        answer = post(url, "rerank", query="cat", documents=TEXTS)
        found = {each["index"]: each["relevance_score"] for each in answer["results"]}
        assert [found[i] for i in range(4)] == pytest.approx(scores, abs=1e-4)
        assert [*found] == sorted(found, key=lambda i: -scores[i])
        few = post(url, "rerank", query="cat", documents=["dog " * 30], max_tokens_per_doc=2)
        short = offline.tokenizer.encode_pair("cat", "dog dog")
        assert few["usage"]["prompt_tokens"] == len(short)
        refused = post(url, "completions", 400, prompt="the cat")
        assert "generates nothing" in refused["message"]


def test_classify_gives_each_text_a_label_and_all_probabilities(classifier):
    url, offline = classifier
    answer = post(url, "classify", input=TEXTS)
    for each, want in zip(answer["data"], offline.classify(TEXTS), strict=True):
        assert (each["label"], each["num_classes"]) == (want.label, 3)
        assert each["probs"] == pytest.approx(list(want.probabilities.values()), abs=1e-6)
    refused = post(url, "score", 400, text_1="a", text_2="b")
    assert refused["message"] == "the model gives 3 labels, not one score: use classify"


def test_an_encoder_generates_nothing(embedder, classifier):
    refused = post(embedder[0], "completions", 400, prompt="the cat")
    assert (refused["code"], refused["message"][:28]) == (
        "not_supported",
        "an encoder generates nothing",
    )
    refused = post(embedder[0], "classify", 400, input="the cat")
    assert (refused["code"], refused["param"]) == ("not_supported", "model")
    assert refused["message"] == "the model is not a classifier: it gives no labels"


def test_each_text_is_a_request_of_its_lane_and_is_counted():
    with serving(ServerConfig(), fake) as (url, front):
        answer = httpx2.post(
            f"{url}/v1/embeddings",
            json={"input": ["a b c", "d"], "model": "headway-tiny@offline"},
            timeout=60,
        )
        assert answer.headers["x-headway-lane"] == "offline"
        assert answer.json()["id"].startswith("embeddings-")
        assert "queue_time_ms" in answer.json()["metrics"]
        text = httpx2.get(f"{url}/metrics", timeout=60).text
    (line,) = re.findall('vllm:request_success_total{.*"length".*', text)
    assert line.endswith(" 2.0")
    assert front.model.admission.open == 0


def test_more_texts_than_a_lane_holds_are_refused_at_once(embedder):
    url, _ = embedder
    body = {"input": ["a"] * 65, "model": "headway-tiny@interactive"}
    answer = httpx2.post(f"{url}/v1/embeddings", json=body, timeout=60)
    assert answer.status_code == 400
    assert "65 requests come together, and no more than 64" in answer.json()["error"]["message"]
