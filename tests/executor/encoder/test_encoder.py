"""Vectors of encoders equal transformers' own, one text at a time, whatever the batch."""

import json
import shutil

import numpy as np
import pytest
import torch
from tokenizers import normalizers, processors
from transformers import AutoTokenizer, XLMRobertaTokenizer

from headway import LLM
from headway.core.batch import Batch, Begun, Row, Want
from headway.core.policies.join import Continuous, Static
from headway.core.policies.policies import Policies, usual
from headway.core.sampling import Sampling
from headway.errors import (
    CheckpointError,
    MemoryPlanError,
    PromptError,
    RefusedError,
    SettingError,
    UnsupportedModelError,
)
from headway.executor.encoder.families import FAMILIES
from headway.executor.load import load
from headway.executor.torch.memory.memory_plan import Limits
from tests.tiny_encoders import CONTEXT, VOCAB, WORDS, make_encoder, reference, tokenizer

HEADS = [kind for kind, family in FAMILIES.items() if family.heads]
LENGTHS = (5, 17, 1, 17, 30, 8, 24)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A function (kind, labels) -> checkpoint folder. Each folder is made once."""
    made = {}

    def folder(kind, labels=0, **more):
        key = kind, labels, *sorted(more.items())
        if key not in made:
            made[key] = make_encoder(tmp_path_factory.mktemp(kind) / "model", kind, labels, **more)
        return made[key]

    return folder


def prompts():
    stream = torch.Generator().manual_seed(5)
    return [tuple(torch.randint(4, VOCAB, (n,), generator=stream).tolist()) for n in LENGTHS]


def compute(executor, asked, pooling):
    """The vectors of all these prompts, computed in one step."""
    rows = [Row(i, 0, prompt, (i + 1,), Want.VECTOR) for i, prompt in enumerate(asked)]
    begun = [Begun(i, len(p), Sampling(), pooling=pooling) for i, p in enumerate(asked)]
    batch = Batch(1, tuple(rows), tuple(begun))
    output = executor.collect(executor.submit(batch))
    assert not output.errors
    executor.submit(Batch(2, ended=tuple(range(len(asked)))))
    return np.stack([np.frombuffer(output.vectors[i], np.float32) for i in range(len(asked))])


@pytest.mark.parametrize("kind", FAMILIES)
def test_embeddings_equal_transformers(folders, kind):
    model, executor = reference(folders(kind)), load("torch", folders(kind), Limits()).executor
    with torch.inference_mode():
        hidden = [model(torch.tensor([each])).last_hidden_state[0] for each in prompts()]
    for pooling, pooled in (
        ("first", lambda states: states[0]),
        ("mean", lambda states: states.mean(dim=0)),
        ("last", lambda states: states[-1]),
    ):
        want = np.stack([pooled(each).numpy() for each in hidden])
        together = compute(executor, prompts(), pooling)
        np.testing.assert_allclose(together, want, atol=1e-4)
        alone = [compute(executor, [each], pooling)[0] for each in prompts()]
        np.testing.assert_allclose(together, np.stack(alone), atol=2e-5)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("more", [{}, {"classifier_pooling": "mean"}], ids=["cls", "mean"])
def test_classifier_head_scores_equal_transformers(folders, kind, more):
    if more and kind != "modernbert":
        pytest.skip("only ModernBERT's head may read the mean")
    folder = folders(kind, 3, **more)
    model = reference(folder, 3)
    with torch.inference_mode():
        want = np.stack([model(torch.tensor([each])).logits[0].numpy() for each in prompts()])
    found = compute(load("torch", folder, Limits()).executor, prompts(), "head")
    np.testing.assert_allclose(found, want, atol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind, family in FAMILIES.items() if family.typed])
def test_the_second_text_of_a_pair_has_its_own_token_type(tmp_path, kind):
    folder = make_encoder(tmp_path / "model", kind, 1)
    model, words = reference(folder, 1), tokenizer(typed=True)
    words.save_pretrained(folder)
    query, documents = "where is it", ["the cat sat on the mat", "it is in spain", "a dog"]
    with LLM(folder) as ours:
        found = ours.score(query, documents)
    for score, document in zip(found, documents, strict=True):
        pair = words(query, document, return_tensors="pt")
        with torch.inference_mode():
            typed = model(**pair).logits[0, 0]
            del pair["token_type_ids"]
            plain = model(**pair).logits[0, 0]
        assert abs(score - torch.sigmoid(typed).item()) < 1e-5
        assert abs(typed - plain) > 1e-3, "or the types would not matter here"


@pytest.mark.parametrize("by", ["names", "template", "class"])
def test_a_tokenizer_without_token_types_gives_a_pair_none(tmp_path, by):
    """transformers decides this by the tokenizer's input names, its pair template or its class."""
    folder = make_encoder(tmp_path / "model", "bert", 1)
    words = tokenizer(typed=by != "names")
    if by == "template":
        words.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] [SEP] $B [SEP]",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    words.save_pretrained(folder)
    if by == "class":
        (folder / "tokenizer.json").unlink()
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *(f"▁{word}" for word in WORDS), "<mask>"]
        XLMRobertaTokenizer(vocab=[(each, -1.0) for each in pieces]).save_pretrained(folder)
    pair = AutoTokenizer.from_pretrained(folder)("where is it", "a dog", return_tensors="pt")
    with torch.inference_mode():
        want = torch.sigmoid(reference(folder, 1)(**pair).logits[0, 0]).item()
    with LLM(folder) as ours:
        assert ours.score("where is it", ["a dog"]) == pytest.approx([want], abs=1e-5)


def test_token_types_of_a_pair_that_no_separator_marks_are_refused(tmp_path):
    folder, words = make_encoder(tmp_path / "model", "bert", 1), tokenizer(typed=True)
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B:1", special_tokens=[("[CLS]", 2)]
    )
    words.save_pretrained(folder)
    with pytest.raises(UnsupportedModelError, match=r"types \[0, 0, 0, 1\] of the tokens"):
        LLM(folder)


def test_each_of_more_texts_than_slots_gets_its_own_vector(folders):
    texts = [" ".join(WORDS[i % 7 : i % 7 + 1 + i % 15]) for i in range(200)]
    with LLM(folders("bert"), slots=8) as ours:
        found = ours.embed(texts)
        alone = np.concatenate([ours.embed(each) for each in texts[:20]])
    np.testing.assert_allclose(found[:20], alone, atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_calls_that_an_encoder_cannot_serve_are_refused_with_the_reason(folders):
    with LLM(folders("bert")) as ours:
        with pytest.raises(SettingError, match="an encoder generates nothing"):
            ours.generate("the cat")[0]
        with pytest.raises(SettingError, match="not a classifier"):
            ours.classify("the cat")
        with pytest.raises(RefusedError, match=f"a request may hold {CONTEXT}"):
            ours.embed(["a", "the " * 60])
        with pytest.raises(RefusedError, match="the prompt is empty"):
            ours.embed([[]])
        with pytest.raises(PromptError, match="dimensions must be from 1 to 48, not 49"):
            ours.embed("a", dimensions=49)
        with pytest.raises(PromptError, match="the model has 0 to 63"):
            ours.embed([[5, 64]])
        with pytest.raises(PromptError, match="has no prompt 'query'; it has none"):
            ours.embed("a", prompt_name="query")
        assert ours.embed([]).shape == (0, 0)
        assert ours.embed("the cat").shape == (1, 48), "it still works"
    for policies, why in ((usual(4), "computes a prompt in one step"), (static(), "no padding")):
        with pytest.raises(SettingError, match=why):
            LLM(folders("bert"), policies=policies)
    with pytest.raises(SettingError, match="not quantized to int8"):
        LLM(folders("bert"), quantize="int8")
    with pytest.raises(SettingError, match="context 41 is longer than the 40"):
        LLM(folders("bert"), context=41)
    with pytest.raises(UnsupportedModelError, match="the head of eurobert"):
        LLM(folders("eurobert", 2))


def static():
    return Policies(Static(4))


def test_truncate_cuts_long_texts_to_the_context_as_transformers_does(folders):
    words = tokenizer()
    long = ["cat " * n for n in (37, 38, 39, 60)]
    with LLM(folders("bert")) as ours:
        cut = ours.embed(long, truncate=True)
        np.testing.assert_allclose(cut[2:], cut[[1, 1]], atol=2e-5)
        assert np.abs(cut[1] - cut[0]).max() > 1e-4
        ids = ours.tokenizer.encode(long[3], CONTEXT)
        assert ids == tuple(words(long[3], truncation=True, max_length=CONTEXT)["input_ids"])
        pair = ours.tokenizer.encode_pair("a dog", long[3], CONTEXT)
        cut = words("a dog", long[3], truncation="only_second", max_length=CONTEXT)
        assert pair == tuple(cut["input_ids"])
        with pytest.raises(PromptError, match="the first text has 37 tokens: a pair may have 40"):
            ours.tokenizer.encode_pair(long[0], "a", CONTEXT)


def test_an_encoder_accepts_policies_with_a_step_token_limit(folders):
    with LLM(folders("bert"), policies=Policies(Continuous(3), step_tokens=20)) as ours:
        assert ours.embed(["the cat sat on the mat"] * 9).shape == (9, 48)


def test_a_text_with_non_finite_numbers_fails_alone(folders, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = make_encoder(tmp_path / "model", "bert")
    weights = load_file(folder / "model.safetensors")
    (name,) = [each for each in weights if each.endswith("word_embeddings.weight")]
    weights[name][9] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    executor = load("torch", folder, Limits()).executor
    asked = [(2, 5, 3), (2, 9, 3), (2, 6, 3)]
    rows = tuple(Row(i, 0, p, (i + 1,), Want.VECTOR) for i, p in enumerate(asked))
    begun = tuple(Begun(i, 3, Sampling(), pooling="mean") for i in range(3))
    output = executor.collect(executor.submit(Batch(1, rows, begun)))
    assert output.errors == {1: "the model computed numbers that are not finite"}
    assert np.isfinite(np.frombuffer(output.vectors[0], np.float32)).all()


def test_weights_that_a_cleared_cache_lacks_are_a_checkpoint_error(tmp_path):
    folder = make_encoder(tmp_path / "model", "bert")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"no file named model\.safetensors"):
        LLM(folder)


def test_nan_that_attention_would_hide_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = make_encoder(tmp_path / "model", "bert")
    weights = load_file(folder / "model.safetensors")
    (name,) = [each for each in weights if each.endswith("0.attention.self.query.weight")]
    weights[name][0] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=f"{name} has numbers that are not finite"):
        LLM(folder)


def test_a_checkpoint_that_lacks_a_tensor_is_refused(folders, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = make_encoder(tmp_path / "model", "bert")
    weights = load_file(folder / "model.safetensors")
    lost = "encoder.layer.1.output.dense.weight"
    save_file(
        {name: each for name, each in weights.items() if name != lost},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(CheckpointError, match=f"lacks the tensor {lost}"):
        LLM(folder)


@pytest.mark.parametrize(
    "kind, more, why",
    [
        ("bert", {"is_decoder": True}, "is_decoder = True"),
        ("roberta", {"is_decoder": True}, "is_decoder = True"),
        ("electra", {"is_decoder": True}, "is_decoder = True"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type = relative"),
        ("xlm-roberta", {"position_embedding_type": "rope"}, "position_embedding_type = rope"),
    ],
)
def test_unsupported_attention_settings_are_refused_by_name(folders, kind, more, why):
    with pytest.raises(UnsupportedModelError, match=f"{why}.* is not supported"):
        LLM(folders(kind, **more))
    with LLM(folders("gte", position_embedding_type="rope")) as ours:
        assert ours.embed("a").shape == (1, 48)


def test_relative_position_weights_are_refused_by_name(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = make_encoder(tmp_path / "model", "bert")
    lost = "encoder.layer.0.attention.self.distance_embedding.weight"
    weights = load_file(folder / "model.safetensors") | {lost: torch.zeros(79, 8)}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UnsupportedModelError, match=f"the tensor {lost} is not computed"):
        LLM(folder)


def test_weights_larger_than_the_memory_are_refused_before_they_are_read(folders, monkeypatch):
    monkeypatch.setattr("headway.executor.encoder.load.free_memory", lambda device: 16 << 10)
    monkeypatch.delattr("headway.executor.encoder.load.read_parts")
    with pytest.raises(MemoryPlanError, match=r"the weights take .*, and 16\.0 KiB are free"):
        LLM(folders("bert"))


def sentence_transformers(folder, **files):
    """Write the files that sentence-transformers adds to a checkpoint."""
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".json").write_text(json.dumps(content))
    return folder


MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
DENSE = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
NORMALIZE = {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}


@pytest.mark.parametrize("mode", ["max", "weightedmean", "mean_sqrt_len_tokens"])
def test_pooling_and_dense_layers_follow_sentence_transformers(folders, tmp_path, mode):
    """Checked against the formulas. docs/models.md has a run against the package itself."""
    from safetensors.torch import save_file

    folder = tmp_path / "model"
    shutil.copytree(folders("bert"), folder)
    sentence_transformers(
        folder,
        modules=[*MODULES, DENSE, DENSE | {"path": "2_More"}, NORMALIZE],
        **{
            "1_Pooling__config": {"pooling_mode": mode},
            "2_Dense__config": {"in_features": 48, "out_features": 20, "bias": True},
            "2_More__config": {
                "in_features": 20,
                "out_features": 12,
                "bias": False,
                "activation_function": "torch.nn.modules.linear.Identity",
            },
        },
    )
    torch.manual_seed(1)
    weight, bias, more = torch.randn(20, 48), torch.randn(20), torch.randn(12, 20)
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense/model.safetensors")
    save_file({"linear.weight": more}, folder / "2_More/model.safetensors")
    model, words = reference(folder), tokenizer()
    texts = ["the cat sat on the mat", "a dog"]
    want = []
    for text in texts:
        with torch.inference_mode():
            states = model(**words(text, return_tensors="pt")).last_hidden_state[0]
        counts = torch.arange(1, len(states) + 1)[:, None]
        pooled = {
            "max": states.max(dim=0).values,
            "weightedmean": (states * counts).sum(dim=0) / counts.sum(),
            "mean_sqrt_len_tokens": states.sum(dim=0) / len(states) ** 0.5,
        }[mode]
        vector = more @ torch.tanh(weight @ pooled + bias)
        want.append((vector / vector.norm()).numpy())
    with LLM(folder) as ours:
        np.testing.assert_allclose(ours.embed(texts), np.stack(want), atol=1e-5)
        with pytest.raises(PromptError, match="dimensions must be from 1 to 12, not 13"):
            ours.embed("a", dimensions=13)
    save_file({"linear.weight": more[:, :9].contiguous()}, folder / "2_More/model.safetensors")
    with pytest.raises(CheckpointError, match=r"\[12, 9\]}, where .*\[12, 20\]} is wanted"):
        LLM(folder)


def test_pooling_prompts_and_length_of_the_model_card_are_obeyed(tmp_path):
    folder = sentence_transformers(
        make_encoder(tmp_path / "model", "bert"),
        modules=MODULES,
        sentence_bert_config={"max_seq_length": 20},
        config_sentence_transformers={
            "prompts": {"query": "where is ", "document": ""},
            "default_prompt_name": None,
        },
        **{
            "1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
        },
    )
    model, words = reference(folder), tokenizer()

    def first(text):
        with torch.inference_mode():
            return model(**words(text, return_tensors="pt")).last_hidden_state[0, 0].numpy()

    with LLM(folder) as ours:
        assert ours.memory.context == 20
        found = ours.embed(["the cat", "a dog"])  # not normalised: there is no such module
        np.testing.assert_allclose(found, [first("the cat"), first("a dog")], atol=1e-4)
        asked = ours.embed("the cat", prompt_name="query", normalize=True)[0]
        want = first("where is the cat")
        np.testing.assert_allclose(asked, want / np.linalg.norm(want), atol=1e-5)
        cut = ours.embed("the cat", dimensions=7, normalize=True)[0]
        part = first("the cat")[:7]
        np.testing.assert_allclose(cut, part / np.linalg.norm(part), atol=1e-5)
        (score,) = ours.score("the cat", ["the cat"])
        assert type(score) is float, "JSON has no numpy numbers"
        query, document = want, first("the cat")
        cosine = query @ document / np.linalg.norm(query) / np.linalg.norm(document)
        assert abs(score - cosine) < 1e-5
        with pytest.raises(PromptError, match="has no prompt 'q'; it has query, document"):
            ours.embed("the cat", prompt_name="q")


def test_do_lower_case_is_obeyed_where_the_tokenizer_keeps_capitals(tmp_path):
    folder, words = make_encoder(tmp_path / "model", "bert"), tokenizer()
    words.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    words.save_pretrained(folder)
    with LLM(folder) as ours:
        upper, lower = ours.embed(["The CAT", "the cat"])
        assert np.abs(upper - lower).max() > 0.01
    sentence_transformers(folder, sentence_bert_config={"do_lower_case": True})
    with LLM(folder) as ours:
        np.testing.assert_allclose(ours.embed("The CAT")[0], lower, atol=1e-6)


def test_settings_in_a_file_with_an_older_name_are_obeyed(tmp_path):
    """sentence-transformers tries seven file names and takes the first file with any settings."""
    folder = make_encoder(tmp_path / "model", "roberta")
    files = {"sentence_bert_config": {}, "sentence_xlm-roberta_config": {"max_seq_length": 20}}
    with LLM(sentence_transformers(folder, **files)) as ours:
        assert ours.memory.context == 20


@pytest.mark.parametrize(
    "files, why",
    [
        ({"modules": [*MODULES, {"type": "sentence_transformers.models.CLIP"}]}, "module 'CLIP'"),
        ({"modules": [*MODULES, NORMALIZE, DENSE]}, "module 'Dense' is not computed there"),
        ({"modules": [*MODULES, DENSE | {"path": "../other"}]}, "module 'Dense'"),
        ({"modules": [*MODULES, DENSE], "2_Dense__config": {"out_features": 4}}, "is missing"),
        (
            {"modules": [*MODULES, DENSE], "2_Dense__config": {"use_residual": True}},
            "a residual connection",
        ),
        (
            {"modules": [*MODULES, DENSE], "2_Dense__config": {"module_input_name": "tokens"}},
            "a dense layer of tokens",
        ),
        (
            {"modules": [*MODULES, DENSE], "2_Dense__config": {"activation_function": "x.Mish"}},
            "the activation x.Mish",
        ),
        ({"modules": {}}, "is not a list of modules"),
        ({"1_Pooling__config": {"pooling_mode": "most"}}, "pooling most"),
        ({"1_Pooling__config": {"pooling_mode": ["cls", "mean"]}}, "pooling cls, mean"),
        ({"1_Pooling__config": {"pooling_mode": "mean", "include_prompt": False}}, "without the"),
        ({"config_sentence_transformers": {"default_prompt_name": "q"}}, "there is no prompt 'q'"),
        (
            {"config_sentence_transformers": {"prompts": {"q": "[SEP] where is "}}},
            "the prompt 'q' has a special token, which would be read as plain text",
        ),
        ({"sentence_bert_config": {"max_seq_length": "many"}}, "max_seq_length is 'many'"),
        (
            {"config_sentence_transformers": {"prompts": {"q": ""}, "default_prompt_name": ["q"]}},
            r"default_prompt_name = \['q'\] must be a text",
        ),
        ({"1_Pooling__config": {"pooling_mode": 5}}, "pooling 5"),
    ],
)
def test_unsupported_model_card_settings_are_refused_by_name(folders, tmp_path, files, why):
    folder = tmp_path / "model"
    shutil.copytree(folders("bert"), folder)
    whole = {"modules": MODULES, "1_Pooling__config": {"pooling_mode": "mean"}} | files
    with pytest.raises(CheckpointError, match=why):
        LLM(sentence_transformers(folder, **whole))


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"pad_token_id": None}, "pad_token_id = None must be a positive integer or 0"),
        ({"max_position_embeddings": "x"}, "max_position_embeddings = 'x' must be a positive"),
        ({"max_position_embeddings": 1}, "max_position_embeddings = 1 leaves no position from 1 o"),
        ({"num_labels": "x"}, "num_labels = 'x' must be a positive integer"),
        ({"model_type": ["roberta"]}, r"model_type = \['roberta'\] must be a text"),
        ({"architectures": 5}, "architectures = 5 must be a list"),
        ({"sentence_transformers": "x"}, "sentence_transformers is not a JSON object"),
    ],
)
def test_invalid_values_of_config_json_are_refused_by_name(folders, tmp_path, own, why):
    folder = shutil.copytree(folders("roberta"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | own))
    with pytest.raises(CheckpointError, match=why):
        LLM(folder)


def test_classify_returns_softmax_or_sigmoid_probabilities_by_label(tmp_path):
    labels = {0: "bad", 1: "fine", 2: "good"}
    one = make_encoder(tmp_path / "one", "roberta", 3, id2label=labels)
    several = make_encoder(
        tmp_path / "several", "roberta", 3, problem_type="multi_label_classification"
    )
    model, words = reference(one, 3), tokenizer()
    with torch.inference_mode():
        logits = model(**words("the cat", return_tensors="pt")).logits[0]
    with LLM(one) as ours:
        (found,) = ours.classify("the cat")
        assert found.label == labels[int(logits.argmax())]
        want = dict(zip(labels.values(), logits.softmax(-1).tolist(), strict=True))
        assert found.probabilities == pytest.approx(want, abs=1e-5)
        with pytest.raises(SettingError, match="3 labels, not one score: use classify"):
            ours.score("a", ["b"])
        with pytest.raises(SettingError, match="the model is a classifier"):
            ours.embed("a", pooling="mean")
    with LLM(several) as ours:
        (found,) = ours.classify("the cat")
        want = dict(zip(found.probabilities, logits.sigmoid().tolist(), strict=True))
        assert found.probabilities == pytest.approx(want, abs=1e-5)
        assert list(want) == ["LABEL_0", "LABEL_1", "LABEL_2"]


@pytest.mark.parametrize("labels", [0, 1])
def test_a_string_counts_as_one_document_and_is_refused_as_a_pair(folders, labels):
    with LLM(folders("bert", labels)) as ours:
        assert ours.score("the cat", "a dog") == ours.score("the cat", ["a dog"])
        assert len(ours.score_pairs(("the cat", each) for each in ("a dog", "a mat"))) == 2
        for odd in ("ab", ["the cat"], ("the cat", None)):
            with pytest.raises(PromptError, match="pair 1 must be two texts, a query and a docu"):
                ours.score_pairs([("the cat", "a dog"), odd])


@pytest.mark.parametrize("labels", [1, 3])
def test_regression_outputs_are_returned_without_an_activation(tmp_path, labels):
    folder = make_encoder(tmp_path / "model", "bert", labels, problem_type="regression")
    with torch.inference_mode():
        logits = reference(folder, labels)(**tokenizer()("a dog", return_tensors="pt")).logits[0]
    with LLM(folder) as ours:
        (found,) = ours.classify("a dog")
    assert list(found.probabilities.values()) == pytest.approx(logits.tolist(), abs=1e-5)
    assert found.label == f"LABEL_{int(logits.argmax())}"


def test_duplicate_label_names_are_refused(tmp_path):
    folder = make_encoder(tmp_path / "model", "bert", 3, id2label={0: "bad", 1: "good", 2: "bad"})
    with pytest.raises(CheckpointError, match="id2label has 'bad' more than once"):
        LLM(folder)
