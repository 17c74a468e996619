"""The command `headway check MODEL`: whether a model would run here, and how much fits.

It takes seconds, because it reads the weights' headers and not the weights, with the loader's own
code. For a decoder it imports torch only if a GPU driver is present, to query the GPU's memory, or
if the tokenizer or a dense layer needs it.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

from rich.console import Console

from headway.errors import MemoryPlanError, SettingError

try:
    from headway.executor.torch.loading.checkpoint import INDEX, SINGLE, Checkpoint, locate
except ModuleNotFoundError as missing:
    raise SettingError(
        f"looking into a checkpoint needs {missing.name}: pip install 'headway[torch]'"
    ) from missing
from headway.commands.check_encoder import find_encoder, tell_of_encoder
from headway.commands.check_table import Room, Shape, table_of
from headway.commands.check_texts import lengths_of, tokenizer_problem
from headway.executor.encoder.families import is_encoder
from headway.executor.precision import read_precision
from headway.executor.torch.config.config_reader import read_json
from headway.executor.torch.config.model_config import ModelConfig, examine_folder
from headway.executor.torch.loading.tensor_names import tensor_shapes
from headway.executor.torch.loading.weight_bytes import second_head_bytes, weight_bytes
from headway.executor.torch.memory.free_memory import free_on_default_device
from headway.executor.torch.memory.memory_plan import (
    Limits,
    check_weights,
    gather_budget,
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
USUAL = Limits(32)  # the sequences of an LLM or a server that is given no slots


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
        name = str(model or EMBEDDED.name)
        wanted = find_encoder(folder, _is_local(name), prompt_tokens, answer_tokens, dtype)
        return tell_of_encoder(name, *wanted, as_json, console)
    verdict = check(model, prompt_tokens, answer_tokens, dtype)
    if as_json:
        report = {"supported": not verdict.reasons, **asdict(verdict)}
        console.file.write(json.dumps(report) + "\n")
        return 1 if verdict.reasons else 0
    if verdict.shape is not None:
        console.print(table_of(verdict.model, verdict.shape, verdict.room))
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
    card = read_card(folder)  # raises for a layer after the decoder that is not computed
    lengths = lengths_of(config.context, prompt, answer)
    shape = _shape(config, dtype, folder, _is_local(source))
    if card.dense and shape.headers:
        from headway.executor.torch.loading.dense import load_dense
        from headway.executor.torch.loading.devices import device_of

        load_dense(folder, card.dense, config.hidden, device_of("cpu"))
    problem, room = tokenizer_problem(folder, config.vocab), _room(config, shape, *lengths)
    if isinstance(room, str):
        return Verdict(name, (*filter(None, [problem]), room), shape)
    return Verdict(name, tuple(filter(None, [problem])), shape, room)


def _is_local(source: str | Path) -> bool:
    return Path(source).expanduser().is_dir()


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

    def fit(sequences: int) -> int:
        """Blocks that fit beside the activations of a step with this many sequences."""
        limits = Limits(sequences)
        try:
            return plan_memory(config, limits, itemsize, taken, rest, gather_budget(device)).fit
        except MemoryPlanError:
            return 0

    try:
        check_weights(taken, free, device)
        plan = plan_memory(config, USUAL, itemsize, taken, rest, gather_budget(device))
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
