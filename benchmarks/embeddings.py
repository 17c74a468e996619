"""How much faster are texts without padding than batches that are sorted by length and padded?

An encoder with random weights, in the shape of MiniLM-L6 or of BERT-base, embeds texts of 4 to 500
tokens (log-normal, median 40). Ours: LLM.embed, texts end to end, whole lists at once. The baseline
is what sentence-transformers does, by transformers alone: texts sorted by length, 32 in a batch,
padded to its longest, the mean of the tokens that are no padding. Both in float32, in turn, after
one batch each that is not timed.

The aim is 1.2 times the baseline's texts per second, for both shapes.

    python -m benchmarks.embeddings [--texts 400] [--rounds 3]      four minutes on two cores
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast
from transformers.utils import logging

from benchmarks.report import Figure, finish
from headway import LLM

SEED, BATCH, VOCAB, AIM = 0, 32, 30_522, 1.2
SHAPES = {
    "minilm": {"hidden_size": 384, "intermediate_size": 1_536, "num_hidden_layers": 6},
    "bert_base": {"hidden_size": 768, "intermediate_size": 3_072, "num_hidden_layers": 12},
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    logging.disable_progress_bar()
    draw = random.Random(SEED)
    lengths = [min(500, max(4, int(draw.lognormvariate(3.7, 0.8)))) for _ in range(asked.texts)]
    texts = [[draw.randrange(5, VOCAB) for _ in range(length)] for length in lengths]
    print(f"{asked.texts} texts, {sum(lengths):,} tokens, the longest of {max(lengths)}")
    figures = []
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), shape)
            figures += compare(name, Path(folder), texts, asked.rounds)
    return finish("embeddings", __doc__ or "", SEED, figures)


def make(folder: Path, shape: dict[str, int]) -> None:
    """A checkpoint with random weights, and a tokenizer, which is not used."""
    torch.manual_seed(SEED)
    AutoModel.from_config(
        AutoConfig.for_model("bert", vocab_size=VOCAB, num_attention_heads=12, **shape)
    ).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(folder)


def compare(name: str, folder: Path, texts: Sequence[list[int]], rounds: int) -> list[Figure]:
    padded = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    ratios, rates = list[float](), list[float]()
    with LLM(folder, dtype="float32") as ours:
        by_padding(padded, texts[:BATCH])
        ours.embed(texts[:BATCH], normalize=False, progress=False)
        for number in range(rounds):
            theirs, want = timed(lambda: by_padding(padded, texts))
            mine, found = timed(lambda: ours.embed(texts, normalize=False, progress=False))
            off = float(np.abs(want - found).max())
            ratios.append(theirs / mine)
            rates.append(sum(map(len, texts)) / mine)
            print(f"{name} {number}: padded {theirs:.2f} s, ours {mine:.2f} s, off by {off:.1e}")
            assert off < 1e-4
    return [
        Figure(f"{name}_over_padded", ratios, least=AIM),
        Figure(f"{name}_tokens_per_second", rates),
    ]


def timed(work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    began = perf_counter()
    found = work()
    return perf_counter() - began, found


@torch.inference_mode()
def by_padding(model: Any, texts: Sequence[list[int]]) -> np.ndarray:
    """[texts, hidden] the means, computed in padded batches, the longest texts first."""
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    found = np.empty((len(texts), model.config.hidden_size), np.float32)
    for at in range(0, len(order), BATCH):
        chosen = order[at : at + BATCH]
        ids = torch.zeros(len(chosen), len(texts[chosen[0]]), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, i in enumerate(chosen):
            ids[row, : len(texts[i])] = torch.tensor(texts[i])
            mask[row, : len(texts[i])] = 1
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        means = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        found[chosen] = means.numpy()
    return found


if __name__ == "__main__":
    sys.exit(main())
