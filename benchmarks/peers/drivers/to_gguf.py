"""python -m benchmarks.peers.drivers.to_gguf CHECKPOINT OUT TYPE: a GGUF file for llama.cpp.

TYPE: bf16, f16 or q8_0. Of the checkpoint's format only what this model needs is read, so neither
torch nor safetensors is needed. The file has no vocabulary: token ids go in and out.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

KINDS = {
    "bf16": (Kind.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "f16": (Kind.F16, gguf.LlamaFileType.MOSTLY_F16),
    "q8_0": (Kind.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
Array = np.ndarray[Any, np.dtype[Any]]


def tensors(file: Path) -> Iterator[tuple[str, Array]]:
    """Names and numbers in float32 of a safetensors file that is in bfloat16."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(size))
    raw = np.memmap(file, np.uint8, "r", offset=8 + size)
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            upper = raw[begin:end].view(np.uint16).astype(np.uint32)
            yield name, (upper << 16).view(np.float32).reshape(about["shape"])


def renamed(name: str) -> str:
    """As llama.cpp calls it."""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, *parts = name.split(".")
    return f"blk.{layer}.{NAMES['.'.join(parts[:-1])]}.{parts[-1]}"


def main() -> None:
    folder, out, word = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    kind, file_type = KINDS[word]
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(out.with_suffix(".part"), "qwen2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_file_type(file_type)
    for name, numbers in tensors(folder / "model.safetensors"):
        kept = kind if numbers.ndim == 2 else Kind.F32
        writer.add_tensor(renamed(name), gguf.quantize(numbers, kept), raw_dtype=kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    out.with_suffix(".part").replace(out)


if __name__ == "__main__":
    main()
