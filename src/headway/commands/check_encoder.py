"""`headway check` for an encoder: what it computes, its size, and whether it would run."""

import json
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError, safe_open

from headway.errors import CheckpointError, first_line
from headway.executor.encoder.families import FAMILIES, is_classifier, refusals
from headway.executor.torch.config.config_reader import read_json
from headway.executor.torch.memory.free_memory import free_on_default_device
from headway.executor.torch.memory.memory_plan import human_bytes
from headway.vectors.model_card import ModelCard, read_card

BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """The facts about an encoder checkpoint, and this machine's memory."""

    architecture: str
    makes: str  # embeddings, scores of pairs, or labels
    parameters: int | None  # None: the weights are not here
    weights: int  # bytes, as they are stored
    context: int  # tokens of a text
    card: ModelCard
    device: str
    free: int  # bytes of memory


def run_encoder_check(name: str, folder: Path, as_json: bool, console: Console) -> int:
    """Print the verdict. Returns 0 if the model would run, else 1. Raises CheckpointError."""
    shape, reasons = check_encoder(folder)
    if as_json:
        report = {"supported": not reasons, "model": name, "reasons": reasons}
        console.file.write(json.dumps(report | {"encoder": asdict(shape)}) + "\n")
        return int(bool(reasons))
    table = Table(title=name, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for title, text in _rows(shape).items():
        table.add_row(title, text)
    console.print(table)
    for reason in reasons:
        text = f"{name} would not run here: {reason}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return int(bool(reasons))


def check_encoder(folder: Path) -> tuple[EncoderShape, tuple[str, ...]]:
    """The shape, and the reasons why it would not run. Raises CheckpointError."""
    raw, card = read_json(folder / "config.json"), read_card(folder)
    family, classifier = FAMILIES[raw["model_type"]], is_classifier(raw)
    parameters, weights = _sizes(folder)
    device, free = free_on_default_device()
    first = raw.get("pad_token_id", 1) + 1 if family.after_padding else 0
    positions = int(raw.get("max_position_embeddings", 512)) - first
    makes = "embeddings"
    if classifier:
        makes = "scores of pairs" if len(card.labels) == 1 else f"{len(card.labels)} labels"
    shape = EncoderShape(
        str((raw.get("architectures") or [raw["model_type"]])[0]),
        makes,
        parameters,
        weights,
        min(positions, card.max_tokens or positions),
        card,
        device,
        free,
    )
    reasons = refusals(raw)
    if weights > free:
        reasons.append(f"the weights take {human_bytes(weights)}, and {human_bytes(free)} are free")
    if not (folder / "tokenizer.json").is_file():
        reasons.append("it has no tokenizer.json")
    return shape, tuple(reasons)


def _sizes(folder: Path) -> tuple[int | None, int]:
    """Parameters and bytes of the weights, from their headers; None and 0 if they are not here."""
    parameters = weights = 0
    files = sorted(folder.glob("model*.safetensors"))  # one, or several parts
    for path in files:
        try:
            with safe_open(path, framework="np") as file:
                for name in file.keys():  # noqa: SIM118  (not a dict: it cannot be iterated)
                    piece = file.get_slice(name)
                    count = prod(piece.get_shape())
                    parameters += count
                    weights += count * BYTES.get(piece.get_dtype(), 8)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged or cut short: {first_line(error)}") from None
    return (parameters if files else None), weights


def _rows(shape: EncoderShape) -> dict[str, str]:
    card, known = shape.card, shape.parameters is not None
    rows = {
        "architecture": f"{shape.architecture}, an encoder: it makes {shape.makes}",
        "parameters": f"{shape.parameters:,}" if known else "unknown: the weights are not here",
        "weights": human_bytes(shape.weights) if known else "not here",
        "context": f"{shape.context:,} tokens",
    }
    if shape.makes == "embeddings":
        length = "of length 1" if card.normalized else "not normalised"
        rows["embeddings"] = f"{card.pooling or 'mean (the card does not say)'}, {length}"
        rows["prompts"] = ", ".join(card.prompts) or "none"
    elif shape.makes != "scores of pairs":
        rows["labels"] = ", ".join(card.labels)
    return rows | {"memory": f"{human_bytes(shape.free)} free ({shape.device}); it keeps no KV"}
