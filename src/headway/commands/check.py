"""The command `headway check MODEL`: whether a model would run here, and how much fits.

It takes a second, because it reads only config.json and the weights' headers, with the loader's
own code. It imports torch only if a GPU driver is present, to query the GPU's memory.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

from rich.console import Console
from rich.table import Table

from headway.errors import MemoryPlanError, SettingError

try:
    from headway.executor.torch.loading.checkpoint import INDEX, SINGLE, Checkpoint, locate
except ModuleNotFoundError as missing:
    raise SettingError(
        f"looking into a checkpoint needs {missing.name}: pip install 'headway[torch]'"
    ) from missing
from headway.commands.check_encoder import run_encoder_check
from headway.executor.encoder.families import is_encoder
from headway.executor.precision import read_precision
from headway.executor.torch.config.config_reader import read_json
from headway.executor.torch.config.model_config import ModelConfig, examine_folder
from headway.executor.torch.loading.tensor_names import tensor_shapes
from headway.executor.torch.loading.weight_bytes import second_head_bytes, weight_bytes
from headway.executor.torch.memory.free_memory import free_on_default_device
from headway.executor.torch.memory.memory_plan import (
    Limits,
    gather_budget,
    human_bytes,
    plan_memory,
)
from headway.models import EMBEDDED
from headway.vectors.model_card import read_card

FETCHED = (
    "*.json",
    "*.jinja",
    "tokenizer.model",
)  # files that are fetched for a hub id: no weights
MOST = 1 << 20  # the largest batch tried, in requests
PROMPT, ANSWER = 512, 128  # tokens by default, unless the context is shorter


@dataclass(frozen=True, slots=True)
class Shape:
    """The facts about a checkpoint that hold on any machine; sizes in bytes."""

    architecture: str
    parameters: int
    active: int  # parameters that one token uses: fewer in a mixture of experts
    dtype: str  # of the computation; with +int8, matrices are in 8 bits
    weights: int
    kv_per_token: int
    kv_counted: str  # how kv_per_token is computed, in words
    attention: str  # MHA, GQA or MQA
    windowed_layers: int  # layers with a sliding window; they keep all of their KV
    context: int  # tokens
    headers: bool  # whether the weights are here, with their names and shapes checked
    tokenizer: bool
    chat_template: bool
    makes: str = "text and embeddings"


@dataclass(frozen=True, slots=True)
class Room:
    """What fits on this machine with the engine's default limits; sizes in bytes."""

    device: str
    free: int
    second_head: int  # the second copy of a tied head
    activations: int
    block_size: int  # tokens
    blocks: int
    fit: int  # blocks that fit into the memory
    usable: int  # blocks that the default limits can fill
    bound: str  # what bounds the blocks: `memory` or `limits`
    prompt_tokens: int
    answer_tokens: int
    batch: int  # requests of these lengths whose KV fits at once


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a model would run here: yes, if there are no reasons against it."""

    model: str
    reasons: tuple[str, ...]
    shape: Shape | None = None
    room: Room | None = None


def run_check(
    model: str | None,
    prompt_tokens: int | None,
    answer_tokens: int | None,
    dtype: str,
    as_json: bool,
    console: Console,
) -> int:
    """Print the verdict. Returns 0 if the model would run, else 1, with every reason printed.

    Raises CheckpointError for a broken checkpoint, SettingError for impossible settings.
    """
    folder = locate(model or EMBEDDED, FETCHED)
    if is_encoder(folder):
        return run_encoder_check(model or EMBEDDED.name, folder, as_json, console)
    verdict = check(model, prompt_tokens, answer_tokens, dtype)
    if as_json:
        report = {"supported": not verdict.reasons, **asdict(verdict)}
        console.file.write(json.dumps(report) + "\n")
        return 1 if verdict.reasons else 0
    if verdict.shape is not None:
        console.print(_table(verdict.model, verdict.shape, verdict.room))
    for reason in verdict.reasons:
        text = f"{verdict.model} would not run here: {reason}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 1 if verdict.reasons else 0


def check(model: str | None, prompt: int | None, answer: int | None, dtype: str = "") -> Verdict:
    """The verdict on a checkpoint; raises as run_check does.

    prompt, answer: tokens of a request, for the largest batch. dtype: empty for the stored one.
    """
    name = EMBEDDED.name if model is None else model
    source = model or EMBEDDED
    folder = locate(source, FETCHED)
    config, reasons = examine_folder(folder)
    if config is None or reasons:
        return Verdict(name, reasons)
    if not config.generates and answer is None:
        answer = 0
    read_card(folder)  # raises for a layer after the decoder that headway does not compute
    lengths = _lengths(config.context, prompt, answer)
    shape = _shape(config, dtype, folder, Path(source).expanduser().is_dir())
    room = _room(config, shape, *lengths)
    if isinstance(room, Room):
        return Verdict(name, (), shape, room)
    return Verdict(name, (room,), shape)


def _lengths(context: int, prompt: int | None, answer: int | None) -> tuple[int, int]:
    """Tokens of a prompt and its answer. SettingError if the context is too short for both."""
    if answer is None:
        answer = min(ANSWER, context // 2 if prompt is None else max(0, context - prompt))
    if prompt is None:
        prompt = min(PROMPT, max(0, context - answer))
    if min(prompt, answer) < 0 or not 1 <= prompt + answer <= context:
        raise SettingError(
            f"{prompt} prompt tokens and {answer} answer tokens must together be 1 to {context}, "
            "the model's context"
        )
    return prompt, answer


def _shape(config: ModelConfig, dtype: str, folder: Path, local: bool) -> Shape:
    precision = config.precision(dtype, free_on_default_device()[0])
    shapes, itemsize = tensor_shapes(config), precision.itemsize
    parameters = sum(map(prod, shapes.values()))
    headers = local or _complete(folder)
    if headers:
        Checkpoint(folder, shapes, framework="np").close()
    idle = 0  # parameters of the experts that a token does not use
    if (experts := config.experts) is not None:
        one = 3 * config.hidden * config.intermediate
        idle = config.layers * (experts.count - experts.chosen) * one
    heads, kv_heads = config.heads, config.kv_heads
    return Shape(
        architecture=config.architecture,
        parameters=parameters,
        active=parameters - idle,
        dtype=str(precision),
        weights=weight_bytes(config, precision),
        kv_per_token=config.kv_elements * itemsize,
        kv_counted=(
            f"2 x {config.layers} layers x {kv_heads} KV heads x {config.head_dim} "
            f"x {itemsize} bytes"
        ),
        attention="MHA" if heads == kv_heads else "MQA" if kv_heads == 1 else "GQA",
        windowed_layers=sum(layer.window > 0 for layer in config.layer_attention),
        context=config.context,
        headers=headers,
        tokenizer=any((folder / each).is_file() for each in ("tokenizer.json", "tokenizer.model")),
        chat_template=_has_chat_template(folder),
        makes=_makes(config),
    )


def _makes(config: ModelConfig) -> str:
    if config.labels:
        return "scores of pairs" if config.labels == 1 else f"{config.labels} labels"
    return "text and embeddings" if config.generates else "embeddings"


def _room(config: ModelConfig, shape: Shape, prompt: int, answer: int) -> Room | str:
    """What fits on this machine, or the reason why the model does not."""
    precision, (device, free) = read_precision(shape.dtype), free_on_default_device()
    itemsize, copied = precision.itemsize, second_head_bytes(config, precision, device)
    taken = shape.weights + copied
    rest = free - taken
    if rest <= 0:
        return f"the weights take {human_bytes(taken)}, and {human_bytes(free)} are free ({device})"

    def fit(sequences: int) -> int:
        """Blocks that fit beside the activations of a step with this many sequences."""
        limits = Limits(sequences)
        try:
            return plan_memory(config, limits, itemsize, taken, rest, gather_budget(device)).fit
        except MemoryPlanError:
            return 0

    try:
        plan = plan_memory(config, Limits(), itemsize, taken, rest, gather_budget(device))
    except MemoryPlanError as error:
        return str(error)
    each = -(-(prompt + answer) // plan.block_size)  # blocks of a request
    return Room(
        device=device,
        free=free,
        second_head=copied,
        activations=plan.activations,
        block_size=plan.block_size,
        blocks=plan.num_blocks,
        fit=plan.fit,
        usable=plan.usable,
        bound="limits" if plan.usable <= plan.fit else "memory",
        prompt_tokens=prompt,
        answer_tokens=answer,
        batch=_most(lambda count: count * each <= fit(count)),
    )


def _most(fits: Callable[[int], bool]) -> int:
    """The largest number up to MOST that fits, if all smaller ones do, by bisection."""
    low, high = 0, MOST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _complete(folder: Path) -> bool:
    """Whether the hub's local cache holds the weights."""
    names = {SINGLE}
    if (folder / INDEX).is_file():
        names = set(read_json(folder / INDEX).get("weight_map", {SINGLE: SINGLE}).values())
    return all((folder / name).is_file() for name in names)


def _has_chat_template(folder: Path) -> bool:
    if any((folder / each).is_file() for each in ("chat_template.jinja", "chat_template.json")):
        return True
    path = folder / "tokenizer_config.json"
    return path.is_file() and bool(read_json(path).get("chat_template"))


def _table(model: str, shape: Shape, room: Room | None) -> Table:
    """The verdict as a table, with rounded sizes."""
    table = Table(title=model, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in {**_shape_rows(shape), **(_room_rows(room) if room else {})}.items():
        table.add_row(name, text)
    return table


def _shape_rows(shape: Shape) -> dict[str, str]:
    active = "" if shape.active == shape.parameters else f", {shape.active:,} for one token"
    kept = f" ({shape.windowed_layers} layers have a sliding window: it saves no memory here)"
    return {
        "architecture": f"{shape.architecture}: it makes {shape.makes}",
        "parameters": f"{shape.parameters:,}{active}",
        "weights": f"{human_bytes(shape.weights)} in {shape.dtype}"
        + ("" if shape.headers else " (not here: their headers were not read)"),
        "KV per token": f"{human_bytes(shape.kv_per_token)} = {shape.kv_counted} "
        + f"({shape.attention})"
        + (kept if shape.windowed_layers else ""),
        "context": f"{shape.context:,} tokens",
        "tokenizer": "yes" if shape.tokenizer else "none: prompts must be token ids",
        "chat template": "yes" if shape.chat_template else "none",
    }


def _room_rows(room: Room) -> dict[str, str]:
    head = f", less {human_bytes(room.second_head)} for the tied head's second copy"
    return {
        "memory": f"{human_bytes(room.free)} free ({room.device})"
        + (head if room.second_head else ""),
        "activations": human_bytes(room.activations),
        "blocks": f"{room.blocks:,} of {room.block_size} tokens (bound by {room.bound}: "
        f"{room.fit:,} fit, {room.usable:,} usable by default)",
        "largest batch": f"{room.batch:,} requests of {room.prompt_tokens:,} + "
        f"{room.answer_tokens:,} tokens, if all blocks that fit are used",
    }
