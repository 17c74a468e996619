"""`headway check` for an encoder: what it computes, its size, and whether it would run."""

import json
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError

from headway.commands.check_texts import tokenizer_problem
from headway.core.request import NEVER
from headway.errors import CheckpointError, SettingError, first_line
from headway.executor.encoder.families import FAMILIES, check_positions, is_classifier, refusals
from headway.executor.torch.config.config_reader import ConfigReader, read_json
from headway.executor.torch.config.stored_tensors import stored_tensors
from headway.executor.torch.memory.free_memory import free_on_default_device
from headway.executor.torch.memory.memory_plan import human_bytes
from headway.vectors.model_card import ModelCard, read_card


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """The facts about an encoder checkpoint, and this machine's memory."""

    architecture: str
    makes: str  # embeddings, scores of pairs, or labels
    parameters: int | None  # None: the weights are not here
    weights: int  # bytes in the dtype; 0: unknown
    dtype: str  # of the computation
    context: int  # tokens of a text
    card: ModelCard
    device: str
    free: int  # bytes of memory


def tell_of_encoder(
    name: str,
    shape: EncoderShape,
    reasons: tuple[str, ...],
    as_json: bool,
    console: Console,
) -> int:
    """Print the verdict. Returns 0 if the model would run, else 1."""
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


def find_encoder(
    folder: Path, local: bool, prompt: int | None, answer: int | None, dtype: str
) -> tuple[EncoderShape, tuple[str, ...]]:
    """The shape, and the reasons why it would not run. local: the weights must be here. prompt,
    answer, dtype: as asked for. Raises CheckpointError and SettingError as loading does."""
    from headway.executor.encoder.load import dtype_of, read_parts  # these import torch
    from headway.executor.encoder.model import CPU

    path = folder / "config.json"
    raw, card = read_json(path), read_card(folder)
    reasons, shapes = refusals(raw), _shapes(folder)
    check_positions(raw, str(path))
    if not shapes and local:
        raise CheckpointError(f"{folder} has no model.safetensors")
    device, free = free_on_default_device()
    name, context = dtype_of(raw, dtype, device), _context(ConfigReader(raw, str(path)), card)
    vocab, weights = NEVER, 0  # unknown
    if shapes and not reasons:
        parts = read_parts(folder, name, CPU, shapes)
        context, vocab, weights = parts.context, parts.model.vocab, parts.nbytes
    _check_lengths(prompt, answer, context)
    makes = "embeddings"
    if is_classifier(raw):
        makes = "scores of pairs" if len(card.labels) == 1 else f"{len(card.labels)} labels"
    shape = EncoderShape(
        architecture=str((raw.get("architectures") or [raw["model_type"]])[0]),
        makes=makes,
        parameters=sum(map(prod, shapes.values())) if shapes else None,
        weights=weights,
        dtype=name,
        context=context,
        card=card,
        device=device,
        free=free,
    )
    if weights > free:
        reasons.append(f"the weights take {human_bytes(weights)}, and {human_bytes(free)} are free")
    if problem := tokenizer_problem(folder, vocab):
        reasons.append(problem)
    return shape, tuple(reasons)


def _context(reader: ConfigReader, card: ModelCard) -> int:
    """The most tokens of a text, as far as config.json alone says it."""
    after = FAMILIES[reader.text("model_type")].after_padding
    first = reader.count("pad_token_id", 1, least=0) + 1 if after else 0
    positions = reader.count("max_position_embeddings", 512) - first
    return min(positions, card.max_tokens or positions)


def _check_lengths(prompt: int | None, answer: int | None, context: int) -> None:
    if answer:
        raise SettingError("an encoder generates nothing: leave out --answer-tokens")
    if prompt is not None and not 1 <= prompt <= context:
        raise SettingError(f"{prompt} prompt tokens must be 1 to {context}, the model's context")


def _shapes(folder: Path) -> dict[str, list[int]]:
    """The shapes of the tensors by name, from the headers; empty if the weights are not here."""
    shapes = dict[str, list[int]]()
    for path in sorted(folder.glob("model*.safetensors")):  # one, or several parts
        try:
            shapes |= {name: list(each.shape) for name, each in stored_tensors(path).items()}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged or cut short: {first_line(error)}") from None
    return shapes


def _rows(shape: EncoderShape) -> dict[str, str]:
    card, known = shape.card, shape.parameters is not None
    rows = {
        "architecture": f"{shape.architecture}, an encoder: it makes {shape.makes}",
        "parameters": f"{shape.parameters:,}" if known else "unknown: the weights are not here",
        "weights": f"{human_bytes(shape.weights)} in {shape.dtype}" if shape.weights else "unknown",
        "context": f"{shape.context:,} tokens",
    }
    if shape.makes == "embeddings":
        length = "of length 1" if card.normalized else "not normalised"
        rows["embeddings"] = f"{card.pooling or 'mean (the card does not say)'}, {length}"
        rows["prompts"] = ", ".join(card.prompts) or "none"
    elif shape.makes != "scores of pairs":
        rows["labels"] = ", ".join(card.labels)
    return rows | {"memory": f"{human_bytes(shape.free)} free ({shape.device}); it keeps no KV"}
