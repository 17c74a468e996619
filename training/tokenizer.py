"""Trains the byte-level BPE tokenizer and defines the chat template.

Every byte has a token, so any text can be encoded and no token is ever unknown. The tokenizer
itself adds no special tokens. Only the chat template writes ``<|bos|>``, so no prompt can get two.

    <|bos|> [<|system|> text <|end|>] <|user|> text <|end|> <|assistant|> text <|end|> ...

    python training/tokenizer.py --out src/headway/models/headway-tiny
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 4096
# In the order of their ids, from 0.
SPECIAL = ("<|pad|>", "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
PAD, BOS, END = 0, 1, 2

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('roles are system, user and assistant, not ' + message['role']) }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def read_corpus(build: Path) -> Iterator[dict[str, object]]:
    """The documents of ``corpus.jsonl``, one by one."""
    with (build / "corpus.jsonl").open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def training_text(build: Path) -> Iterator[str]:
    """The text to learn the merges from: all training prose, and half of the code and chats."""
    for i, document in enumerate(read_corpus(build)):
        if document["held_out"]:
            continue
        if document["kind"] in {"prose", "docstr"}:
            yield str(document["text"])
        elif i % 2 == 0:
            turns = document["turns"]
            assert isinstance(turns, list)
            yield str(document["text"]) + "\n".join(text for _, text in turns)


def train(build: Path) -> PreTrainedTokenizerFast:
    """Learns the merges. The result depends on the corpus alone."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(build), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|bos|>",
        eos_token="<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>"],
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def save(tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json.

    The second is written by hand, so that older versions of transformers can read it too.
    """
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.backend_tokenizer.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[PAD],
        "additional_special_tokens": list(SPECIAL[3:]),
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "chat_template": CHAT_TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def document_ids(tokenizer: PreTrainedTokenizerFast, document: dict[str, object]) -> list[int]:
    """The token ids of a document as training sees it, from ``<|bos|>`` to ``<|end|>``."""
    if document["kind"] == "chat":
        turns = document["turns"]
        assert isinstance(turns, list)
        messages = [{"role": role, "content": text} for role, text in turns]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    else:
        text = f"<|bos|>{document['text']}<|end|>"
    return list(tokenizer.encode(text, add_special_tokens=False))


def encode_corpus(build: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Writes one stream of ids per kind and split: ``prose.train.npy`` and so on."""
    streams: dict[str, list[int]] = {}
    for document in read_corpus(build):
        name = f"{document['kind']}.{'held' if document['held_out'] else 'train'}"
        streams.setdefault(name, []).extend(document_ids(tokenizer, document))
    for name, ids in streams.items():
        np.save(build / f"{name}.npy", np.array(ids, dtype=np.uint16))
        print(f"{name:14}{len(ids):12,} tokens")


def main() -> None:
    """Train, save, and encode the corpus."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=Path("training/.build"))
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    args = parser.parse_args()
    tokenizer = train(args.build)
    save(tokenizer, args.out)
    encode_corpus(args.build, tokenizer)


if __name__ == "__main__":
    main()
