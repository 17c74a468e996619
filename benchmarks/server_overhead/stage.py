"""What the server and `generate` are given: a model in a folder, prompts, and the same settings."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from headway.runs.corpus import read_corpus

TINY = Path(str(files("headway"))) / "models" / "headway-tiny"
SHAPE = "qwen2.5-0.5b"
WORDS = 24  # of a prompt
SPARE = 16  # ids that are left to transformers: it adds special tokens that it thinks missing


@dataclass(frozen=True, slots=True)
class Scale:
    """tokens: of each answer, exactly; they make a run last seconds rather than moments."""

    model: str
    tokens: int


SCALES = {
    "tiny": Scale("headway-tiny (embedded)", 256),
    "half-b": Scale("random weights in the shape of Qwen2.5-0.5B", 48),
}


def prompts(count: int, seed: int) -> Iterator[list[str]]:
    """Lists of `count` prompts without end, no two of which begin alike."""
    words, at = read_corpus().split(), 101 * seed
    while True:
        made = []
        for _ in range(count):
            made.append(" ".join(words[at : at + WORDS]))
            at = (at + WORDS) % (len(words) - WORDS)
        yield made


def config(folder: Path | None, clients: int, context: int, threads: int) -> dict[str, Any]:
    """The server's file. One lane without limits: nothing is dropped for being late."""
    engine = {"slots": clients, "context": context, "threads": threads}
    model = {"models": [{"path": str(folder)}]} if folder else {}
    return {**model, "engine": engine, "lanes": {"all": {}}}


def random_checkpoint(folder: Path) -> Path:
    """Random weights in SHAPE in the Hugging Face layout, with a tokenizer that spells every id.

    The tokenizer is the embedded model's, its vocabulary filled up with made words that no merge
    leads to: prompts are encoded as there, and any token that random weights pick has a text.
    """
    import torch
    from safetensors.torch import save_file

    from headway.costing.datasheet import SHAPES, read_shape
    from headway.executor.torch.loading.tensor_names import tensor_shapes
    from headway.executor.torch.threads import single_threaded
    from headway.yaml_values import read_yaml

    config, stream = read_shape(SHAPE), torch.Generator().manual_seed(0)
    tensors = {}
    with single_threaded():  # the engine that is measured here is not this thread
        for name, size in tensor_shapes(config).items():
            made = torch.randn(size, generator=stream) * (0.01 if "bias" in name else 0.02)
            if name.endswith("norm.weight"):
                made = torch.ones(size)
            tensors[name] = made.to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(
        json.dumps({**read_yaml(SHAPES)[SHAPE], "dtype": "bfloat16"})
    )
    words = json.loads((TINY / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    vocab.update({f"Ġw{id}": id for id in range(len(vocab), config.vocab - SPARE)})
    (folder / "tokenizer.json").write_text(json.dumps(words))
    shutil.copy(TINY / "tokenizer_config.json", folder)
    return folder
