"""Models with int8 weights: loading, byte counts, accuracy, and rows that ignore their batch."""

import json

import pytest
import torch

from headway import LLM, Options
from headway.core.sampling import Sampling
from headway.errors import SettingError
from headway.executor.precision import Precision
from headway.executor.torch.config.model_config import read_config
from headway.executor.torch.cpu.library import kernels
from headway.executor.torch.layers import quantized
from headway.executor.torch.layers.linear import Linear
from headway.executor.torch.layers.quantized import QuantizedLinear
from headway.executor.torch.load import load
from headway.executor.torch.loading.weight_bytes import second_head_bytes, weight_bytes
from headway.executor.torch.memory.memory_plan import Limits
from headway.models import EMBEDDED
from tests.executor.torch.test_runner import PROMPTS, Driver

PROMPT = "The json module"
TEXTS = [PROMPT, "A list is", "def read(path):", "Threads", "If the file"]


def loaded(folder, dtype="float32+int8"):
    return load(folder, Limits(block_size=4), dtype, "cpu")


@pytest.fixture(params=["kernels", "torch"])
def _by(request, monkeypatch):
    """Run the test by our kernels, and by torch's operators."""
    if request.param == "torch":
        monkeypatch.setattr(quantized, "kernels", lambda: None)
    elif kernels() is None:
        pytest.skip("there are no kernels here")


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("shape", ["llama-mha", "qwen2-bias-tied", "mixtral", "gemma2"])
def test_int8_logits_are_near_float32_and_a_row_answers_alike_alone_and_batched(goldens, shape):
    model, exact = loaded(goldens[shape].folder), loaded(goldens[shape].folder, "float32")
    said = {}
    for number, which in enumerate([*[(each,) for each in range(4)], range(4)]):
        one = Driver(model.executor)
        for each in which:
            one.add(10 * number + each, PROMPTS[each], Sampling())
        for _ in range(6):
            assert not one.run(*(10 * number + each for each in which), most=5).errors
        for each in which:
            said.setdefault(each, []).append(one.known[10 * number + each])
            one.end(10 * number + each)
        one.add(99 + number, (1,))  # tells the executor which sequences have ended
        one.run(99 + number)
        one.end(99 + number)
    assert all(alone == together for alone, together in said.values())
    x = torch.randn(5, model.config.hidden, generator=torch.Generator().manual_seed(0))
    found, want = (each.executor.model.logits(x) for each in (model, exact))
    assert (found - want).abs().max() < 0.03 * want.abs().max()


def test_matrices_are_quantised_and_routers_are_not(goldens):
    weights = loaded(goldens["mixtral"].folder).executor.model.weights
    layer = weights.layers[0]
    of_experts = [part for each in layer.mlp.experts for part in (each.gate_up, each.down)]
    for each in (layer.qkv, layer.out, weights.head, *of_experts):
        assert isinstance(each, QuantizedLinear)
    assert isinstance(layer.mlp.router, Linear)


def test_a_tied_embedding_shares_the_heads_matrix(goldens):
    tied = loaded(goldens["qwen2-bias-tied"].folder).executor.model.weights
    assert tied.embed.matrix is tied.head.matrix
    apart = loaded(goldens["llama-mha"].folder).executor.model.weights
    assert apart.embed.matrix is not apart.head.matrix


@pytest.mark.usefixtures("_by")
def test_a_row_with_non_finite_numbers_fails_alone(goldens):
    model = loaded(goldens["llama-mha"].folder)
    model.executor.model.weights.embed.matrix.scales[200] = float("nan")
    one = Driver(model.executor)
    one.add(0, PROMPTS[0])
    one.add(1, (3, 200, 5))
    output = one.run(0, 1)
    assert list(output.errors) == [1] and "not finite" in output.errors[1]
    assert len(output.tokens[0]) == 1


@pytest.mark.parametrize("shape", ["llama-mha", "qwen2-bias-tied", "mixtral"])
def test_predicted_weight_bytes_match_the_loaded_weights(goldens, shape):
    folder = goldens[shape].folder
    config = read_config(folder)
    for dtype in ("float32", "float32+int8"):
        precision = config.precision(dtype, "cpu")
        wanted = weight_bytes(config, precision) + second_head_bytes(config, precision, "cpu")
        found = loaded(folder, dtype).plan.weights
        # Stacked matrices have less padding than separate ones, and an embedding has none.
        assert found <= wanted if precision.quantize else found == wanted
    embedded = read_config(EMBEDDED)
    wanted = weight_bytes(embedded, Precision("bfloat16", "int8"))
    assert 0.99 * wanted < loaded(EMBEDDED, "bfloat16+int8").plan.weights <= wanted


def test_int8_is_refused_on_cuda():
    with pytest.raises(SettingError, match="quantize int8 is for a CPU, not for cuda"):
        read_config(EMBEDDED).precision("+int8", "cuda")


def test_an_int8_model_answers_alike_alone_and_batched(tmp_path):
    options = Options(max_tokens=16)
    with LLM(quantize="int8", journal=tmp_path / "journal.jsonl") as llm:
        together = llm.generate(TEXTS, options, progress=False)
        alone = [llm.generate([each], options, progress=False)[0] for each in TEXTS]
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    with LLM(dtype="float32") as llm:
        exact = llm.generate(TEXTS, Options(max_tokens=2), progress=False)
    alike = [a.tokens[:2] == b.tokens for a, b in zip(together, exact, strict=True)]
    assert sum(alike) >= 4, "near ties apart, it says what the exact weights say"
    first = json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[0])
    assert first["about"]["dtype"].endswith("+int8")


def test_int8_answers_are_the_same_without_our_kernels(monkeypatch):
    def answered():
        with LLM(quantize="int8", dtype="float32") as llm:
            return [
                each.tokens for each in llm.generate(TEXTS, Options(max_tokens=8), progress=False)
            ]

    ours = answered()
    monkeypatch.setattr(quantized, "kernels", lambda: None)
    assert answered() == ours


def test_an_unknown_quantisation_is_refused():
    with pytest.raises(SettingError, match="quantize must be int8, not int3"):
        LLM(quantize="int3")
    with pytest.raises(SettingError, match="needs the executor torch"):
        LLM(quantize="int8", executor="vllm")
