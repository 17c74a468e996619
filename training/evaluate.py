"""Loads the exported checkpoint with transformers, checks it, and measures it.

It checks that the logits are those of ``model.py`` with the same weights, that the chat template
writes one ``<|bos|>`` and the tokenizer none, and that text survives encoding and decoding. It
measures the loss over all held-out documents, each from its own ``<|bos|>``, in windows that do not
overlap. Bits per byte count the documents' text without special tokens, so that they can be
compared between tokenizers. Last, it prints samples, unedited.

    python training/evaluate.py --model src/headway/models/headway-tiny
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from model import SHAPES, Decoder, export_state
from tokenizer import BOS, END, document_ids, read_corpus
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 20
PROMPTS = (
    "The json module",
    "# Threads and processes\n\nA thread is",
    "def read_lines(path):\n",
)
QUESTIONS = (
    "Hello!",
    "What does json.dumps do?",
    "What is a generator?",
    "How do I use os.path.join?",
)


def check_weights(model: LlamaForCausalLM, build: Path, shape: str) -> float:
    """The largest difference in logits, in float32, between the training checkpoint and its export.

    The training weights are rounded to bfloat16 first, because the export rounds them too. That is
    its only change. AssertionError if the difference is 1e-3 or more.
    """
    mine = Decoder(SHAPES[shape])
    mine.load_state_dict(torch.load(build / f"{shape}.pt")["model"])
    exported, theirs = export_state(mine), model.state_dict()
    assert all(torch.equal(w.float(), theirs[name].float()) for name, w in exported.items())
    with torch.no_grad():
        for weight in mine.parameters():
            weight.copy_(weight.bfloat16().float())
        ids = torch.randint(6, 4096, (2, 2048), generator=torch.Generator().manual_seed(SEED))
        difference = (mine(ids) - model(ids).logits).abs().max().item()
    assert difference < 1e-3, difference
    return difference


def check_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    """Assert one ``<|bos|>`` in a chat, none in plain text, and that decoding restores the text."""
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    for ids in (expected, tokenizer.encode(text), tokenizer.encode(text, add_special_tokens=False)):
        assert ids == expected and ids.count(BOS) == 1 and ids[0] == BOS
    for plain in ("Hello", " two  spaces\n\tand a tab", "naïve 日本語 \N{ROCKET}", "\x00\x7f"):
        ids = tokenizer.encode(plain)
        assert BOS not in ids and END not in ids and tokenizer.decode(ids) == plain


def held_out(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, build: Path, window: int
) -> dict[str, dict[str, float]]:
    """Loss per token in nats, perplexity, and bits per byte, for each kind of held-out text."""
    nats: dict[str, float] = {}
    tokens: dict[str, int] = {}
    size: dict[str, int] = {}
    for document in read_corpus(build):
        if not document["held_out"]:
            continue
        kind = str(document["kind"])
        ids = torch.tensor(document_ids(tokenizer, document))
        for at in range(0, len(ids) - 1, window):
            part = ids[at : at + window + 1]  # the first token is input only
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                logits = model(part[None, :-1]).logits[0].float()
            losses = F.cross_entropy(logits, part[1:], reduction="none")
            text = part[1:] > 5  # not a special token
            nats[kind] = nats.get(kind, 0.0) + losses[text].sum().item()
            tokens[kind] = tokens.get(kind, 0) + int(text.sum())
        turns = document["turns"]
        assert isinstance(turns, list)
        written = str(document["text"]) + "".join(content for _, content in turns)
        size[kind] = size.get(kind, 0) + len(written.encode())
    return {
        kind: {
            "tokens": tokens[kind],
            "bytes": size[kind],
            "loss": round(nats[kind] / tokens[kind], 4),
            "perplexity": round(math.exp(nats[kind] / tokens[kind]), 2),
            "bits_per_byte": round(nats[kind] / math.log(2) / size[kind], 4),
        }
        for kind in nats
    }


def agreement(
    model: LlamaForCausalLM,
    other: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    build: Path,
    window: int,
) -> dict[str, float]:
    """The share of held-out positions, by kind, at which both models rank the same token first.

    On such text it is the share of first draft tokens that greedy speculation would accept.
    """
    same: dict[str, int] = {}
    seen: dict[str, int] = {}
    for document in read_corpus(build):
        if not document["held_out"]:
            continue
        kind = str(document["kind"])
        ids = torch.tensor(document_ids(tokenizer, document))
        for at in range(0, len(ids) - 1, window):
            part = ids[None, at : at + window]
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                mine, theirs = (each(part).logits[0].argmax(-1) for each in (model, other))
            same[kind] = same.get(kind, 0) + int((mine == theirs).sum())
            seen[kind] = seen.get(kind, 0) + len(mine)
    return {kind: round(same[kind] / seen[kind], 4) for kind in same}


def show_samples(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Print continuations and answers: greedy, and at temperature 0.7 with a fixed seed."""
    prompts = [(p, tokenizer(p, return_tensors="pt")) for p in PROMPTS]
    for question in QUESTIONS:
        chat = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")
        prompts.append((f"chat: {question}", ids))
    for name, inputs in prompts:
        for settings in ({"do_sample": False}, {"do_sample": True, "temperature": 0.7}):
            torch.manual_seed(SEED)
            out = model.generate(**inputs, max_new_tokens=160, **settings)[0].tolist()
            new = out[inputs["input_ids"].shape[1] :]
            ended = "ended by itself" if new[-1] == END else "cut at 160 tokens"
            print(f"--- {name!r} {settings} {ended}")
            print(tokenizer.decode(new, skip_special_tokens=True))


def main() -> None:
    """Check and measure the checkpoint, and write the figures into the build folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument(
        "--against", type=Path, help="another model with the same tokenizer, to compare with"
    )
    parser.add_argument("--build", type=Path, default=Path("training/.build"))
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = LlamaForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    check_tokenizer(tokenizer)
    print("largest difference in logits", check_weights(model, args.build, args.shape))
    show_samples(model, tokenizer)
    figures = held_out(model, tokenizer, args.build, args.window)
    if args.against:
        other = LlamaForCausalLM.from_pretrained(args.against, dtype=torch.float32).eval()
        for kind, share in agreement(model, other, tokenizer, args.build, args.window).items():
            figures[kind]["top1_agreement"] = share
    (args.build / f"evaluation-{args.shape}.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
