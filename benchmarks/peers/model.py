"""The random model that all engines run: one checkpoint, and what is made of it for each of them.

Shape of Qwen2.5-0.5B, weights from a normal distribution, bfloat16. Nothing here needs a peer's
package: their files are written by the exporters, in the peers' own environments.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.vllm.served import HALF_B, write_checkpoint

SEED, SPREAD = 0, 0.02
Shape = tuple[int, ...]


def tensor_shapes() -> Iterator[tuple[str, Shape]]:
    """Names and shapes of all weights, in the checkpoint's order."""
    shape: dict[str, Any] = HALF_B
    hidden, wide = shape["hidden_size"], shape["intermediate_size"]
    kv = shape["num_key_value_heads"] * (hidden // shape["num_attention_heads"])
    yield "model.embed_tokens.weight", (shape["vocab_size"], hidden)
    for layer in range(shape["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for name, outputs in (("q", hidden), ("k", kv), ("v", kv)):
            yield f"{at}.self_attn.{name}_proj.weight", (outputs, hidden)
            yield f"{at}.self_attn.{name}_proj.bias", (outputs,)
        yield f"{at}.self_attn.o_proj.weight", (hidden, hidden)
        yield f"{at}.mlp.gate_proj.weight", (wide, hidden)
        yield f"{at}.mlp.up_proj.weight", (wide, hidden)
        yield f"{at}.mlp.down_proj.weight", (hidden, wide)
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)


def weight_bytes(precision: str) -> int:
    """Bytes that a step reads of its matrices; the head is the embedding. precision: "int8", with
    a scale in float32 for each output, else 16 bits."""
    matrices = [shape for _, shape in tensor_shapes() if len(shape) == 2]
    if precision == "int8":
        return sum(outputs * (inputs + 4) for outputs, inputs in matrices)
    return sum(2 * outputs * inputs for outputs, inputs in matrices)


def write_model(folder: Path) -> Path:
    """The checkpoint with weights; written once."""
    file = folder / "model.safetensors"
    if file.is_file():
        return folder
    import torch
    from safetensors.torch import save_file

    write_checkpoint(folder, HALF_B)
    generator = torch.Generator().manual_seed(SEED)
    weights = {}
    for name, shape in tensor_shapes():
        if name.endswith("norm.weight"):
            weights[name] = torch.ones(shape, dtype=torch.bfloat16)
        else:
            drawn = torch.empty(shape).normal_(0, SPREAD, generator=generator)
            weights[name] = drawn.to(torch.bfloat16)
    parts = file.with_suffix(".part")
    save_file(weights, parts, metadata={"format": "pt"})
    parts.replace(file)
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False}))
    return folder


def warm(path: Path) -> None:
    """Read all files below once, so that an engine that starts finds them in the file cache."""
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        with file.open("rb") as opened:
            while opened.read(1 << 24):
                pass
