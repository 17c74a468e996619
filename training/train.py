"""Trains headway-tiny and exports it as a checkpoint that transformers loads.

A run has one or more parts. In each part the learning rate warms up, stays constant, and falls to
zero over the part's last share. If time is left after a run, another part continues it: the rate
rises again, and the loss ends lower. Until the rate of the last part begins to fall, the length of
the run can be changed by writing a number of steps into the file ``steps`` in the build folder. So
a run can be fitted to the time there is. The lengths that were used are written into the build
folder, under the shape's name. The same ``--parts`` repeat the run.

Every batch depends on (seed, step) alone, so a resumed run gets the batches that it would have had.
The context grows towards the end of a part:

    a part   0 %                                       80 %         93 %     100 %
    context  | 512 ................................... | 1024 ...... | 2048 .. |
    rate     |/-------------------------------\\__________________________ 0

    python training/train.py --parts 1330:0.35:1.0 --out src/headway/models/headway-tiny
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from model import SHAPES, Decoder, Shape, export_state
from safetensors.torch import save_file
from tokenizer import BOS, END, PAD
from torch import Tensor

# Share of the sequences, by kind of text. Prose is a third of the text but over half of the
# sequences, because the model should sound like documentation.
SHARES = {"prose": 0.55, "code": 0.24, "chat": 0.11, "docstr": 0.10}
# Share of the windows that begin at the start of a document, by kind of text.
ALIGNED = {"prose": 0.1, "code": 0.1, "chat": 0.7, "docstr": 0.1}


@dataclass(frozen=True)
class Part:
    """One rise and fall of the learning rate, written ``steps:decay:peak`` on the command line."""

    steps: int
    decay: float  # share of the steps, the last ones, in which the rate falls to zero
    peak: float  # as a share of the recipe's rates

    @staticmethod
    def parse(text: str) -> Part:
        """The part that ``text``, such as ``1330:0.35:1.0``, describes."""
        steps, decay, peak = text.split(":")
        return Part(int(steps), float(decay), float(peak))


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the result, except the corpus and the libraries' versions."""

    parts: tuple[Part, ...]
    seed: int = 20
    tokens_per_step: int = 8192
    tokens_per_pass: int = 4096  # a step's gradient is the mean over its passes
    warmup: int = 60  # steps, at the start of each part
    rate_matrix: float = 6e-3  # Muon, for the matrices inside the layers
    rate_other: float = 6e-3  # AdamW, for the embedding and the norms
    weight_decay: float = 0.1
    clip: float = 1.0

    @property
    def steps(self) -> int:
        """The number of steps of the whole run."""
        return sum(part.steps for part in self.parts)

    def place(self, step: int) -> tuple[Part, int]:
        """The part that ``step`` falls into, and its number within that part."""
        for part in self.parts[:-1]:
            if step < part.steps:
                return part, step
            step -= part.steps
        return self.parts[-1], step

    def scale(self, step: int) -> float:
        """The learning rate at ``step`` as a share of the recipe's."""
        part, at = self.place(step)
        falling = (part.steps - at) / max(1.0, part.decay * part.steps)
        return part.peak * min(1.0, (at + 1) / self.warmup, falling)

    def context(self, step: int) -> int:
        """Tokens per sequence at ``step``."""
        part, at = self.place(step)
        done = at / part.steps
        return 512 if done < 0.80 else 1024 if done < 0.93 else 2048


class Sampler:
    """Draws windows from the streams of ids. The same (seed, step, pass) draws the same windows."""

    def __init__(self, build: Path, split: str) -> None:
        self.streams = {k: np.load(build / f"{k}.{split}.npy") for k in SHARES}
        self.starts = {k: np.flatnonzero(ids == BOS) for k, ids in self.streams.items()}

    def draw(self, rows: int, length: int, seed: tuple[int, ...]) -> Tensor:
        """Token ids [rows, length + 1]: all but the last are inputs, all but the first targets."""
        rng = np.random.default_rng(seed)
        kinds = rng.choice(list(SHARES), size=rows, p=list(SHARES.values()))
        windows = []
        for kind in kinds:
            ids = self.streams[kind]
            starts = self.starts[kind]
            at = int(rng.integers(len(ids) - length))
            if rng.random() < ALIGNED[kind]:
                at = min(int(starts[rng.integers(len(starts))]), len(ids) - length - 1)
            windows.append(ids[at : at + length + 1].astype(np.int64))
        return torch.from_numpy(np.stack(windows))


def held_out_loss(model: Decoder, build: Path, windows: int) -> dict[str, float]:
    """Loss in nats per token, by kind, on evenly spaced windows of 512 held-out tokens."""
    losses = {}
    for kind in SHARES:
        ids = np.load(build / f"{kind}.held.npy")
        starts = np.linspace(0, len(ids) - 514, windows).astype(int)
        batch = torch.from_numpy(np.stack([ids[s : s + 513].astype(np.int64) for s in starts]))
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            parts = [model.loss(part).item() for part in batch.split(8)]
        losses[kind] = sum(parts) / len(parts)
    return losses


def export(model: Decoder, out: Path) -> None:
    """Writes the weights and the two configurations. The weights appear whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    s = asdict(model.shape)
    theta = s.pop("rope_theta")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **s,
        "rope_theta": theta,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
    }
    generation = {"bos_token_id": BOS, "eos_token_id": [END], "pad_token_id": PAD}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    save_file(export_state(model), out / "model.safetensors.part", metadata={"format": "pt"})
    (out / "model.safetensors.part").chmod(0o644)
    os.replace(out / "model.safetensors.part", out / "model.safetensors")


class Trainer:
    """The model, its two optimizers, and the number of steps done."""

    def __init__(self, recipe: Recipe, build: Path, shape: Shape, name: str) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.build, self.name = recipe, build, name
        self.model = Decoder(shape)
        self.fast_loss = torch.compile(self.model.loss, dynamic=False)
        named = list(self.model.layers.named_parameters())
        matrices = [w for _, w in named if w.dim() == 2]
        others = [self.model.embed.weight, self.model.norm.weight]
        others += [w for _, w in named if w.dim() == 1]
        r = recipe
        self.optimizers = [
            torch.optim.Muon(
                matrices, lr=r.rate_matrix, weight_decay=r.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            ),
            torch.optim.AdamW(
                others, lr=r.rate_other, betas=(0.9, 0.95), weight_decay=0.0, fused=True
            ),
        ]  # fmt: skip
        self.peaks = [r.rate_matrix, r.rate_other]
        self.sampler = Sampler(build, "train")
        self.step = 0

    def train_step(self) -> float:
        """Makes one update. Returns the training loss in nats per token."""
        r, context = self.recipe, self.recipe.context(self.step)
        passes = r.tokens_per_step // r.tokens_per_pass
        total = 0.0
        for i in range(passes):
            ids = self.sampler.draw(r.tokens_per_pass // context, context, (r.seed, self.step, i))
            with torch.autocast("cpu", torch.bfloat16):
                loss = self.fast_loss(ids)
            (loss / passes).backward()
            total += loss.item() / passes
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), r.clip)
        for optimizer, peak in zip(self.optimizers, self.peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * r.scale(self.step)
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return total

    def save(self) -> None:
        """Writes the checkpoint, whole or not at all."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step,
        }
        torch.save(state, self.build / f"{self.name}.part")
        os.replace(self.build / f"{self.name}.part", self.build / f"{self.name}.pt")

    def resume(self) -> None:
        """Continues from the checkpoint."""
        state = torch.load(self.build / f"{self.name}.pt")
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]

    def change_length(self) -> None:
        """Takes the run's new length from ``steps``.

        It is ignored unless the rate is at the last part's peak, with the old and the new length.
        """
        file = self.build / "steps"
        if not file.exists():
            return
        *before, last = self.recipe.parts
        resized = replace(last, steps=int(file.read_text()) - sum(p.steps for p in before))
        changed = replace(self.recipe, parts=(*before, resized))
        if self.recipe.scale(self.step) == changed.scale(self.step) == last.peak:
            self.recipe = changed


def main() -> None:
    """Train, with a checkpoint and an export every few minutes, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--parts", nargs="+", type=Part.parse, required=True, help="steps:decay:peak"
    )
    parser.add_argument("--build", type=Path, default=Path("training/.build"))
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--save-minutes", type=float, default=4.0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    trainer = Trainer(Recipe(tuple(args.parts)), args.build, SHAPES[args.shape], args.shape)
    if args.resume:
        trainer.resume()
    begun = saved = mark = time.monotonic()
    first, smooth = trainer.step, math.nan
    while trainer.step < trainer.recipe.steps:
        loss = trainer.train_step()
        smooth = loss if math.isnan(smooth) else 0.95 * smooth + 0.05 * loss
        if trainer.step % 20 == 0:
            now = time.monotonic()
            speed, mark = 20 * trainer.recipe.tokens_per_step / (now - mark), now
            print(
                f"{time.strftime('%H:%M:%S')} step {trainer.step}/{trainer.recipe.steps} "
                f"loss {smooth:.3f} rate {trainer.recipe.scale(trainer.step):.2f} "
                f"{speed:.0f} tokens/s",
                flush=True,
            )
            trainer.change_length()
        if time.monotonic() - saved > 60 * args.save_minutes:
            trainer.save()
            export(trainer.model, args.out)
            print("held-out", held_out_loss(trainer.model, args.build, 16), flush=True)
            saved = mark = time.monotonic()
    trainer.save()
    export(trainer.model, args.out)
    result = {
        "recipe": asdict(trainer.recipe),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "tokens": trainer.step * trainer.recipe.tokens_per_step,
        "seconds": round(time.monotonic() - begun),
        "steps_timed": trainer.step - first,
        "training_loss": smooth,
        "held_out": held_out_loss(trainer.model, args.build, 64),
    }
    (args.build / f"{args.shape}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
