"""EncoderModel: runs texts without padding through transformers' own layers and heads."""

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import logging

from headway.core.request import Pooling
from headway.errors import CheckpointError, UnsupportedModelError, first_line
from headway.executor.encoder.families import EncoderFamily
from headway.executor.encoder.ragged import NAME, Texts

CPU = torch.device("cpu")
Shapes = Mapping[str, Sequence[int]]  # by tensor name
OPTIONAL = "pooler."  # weights that a checkpoint without a head may lack: they are not used

RELATIVE = "distance_embedding"  # weights of relative positions, which transformers 5 ignores


class EncoderModel:
    """A transformers model for inference, in one dtype on one device."""

    def __init__(self, model: Any, family: EncoderFamily) -> None:
        self._model, self._family, config = model, family, model.config
        self._handed = _Handed()
        prefix = model.base_model_prefix
        self.is_classifier = hasattr(model, prefix)
        base = getattr(model, prefix) if self.is_classifier else model
        self._pooler, self._base = getattr(base, "pooler", None), base
        if self._pooler is not None:
            base.pooler = None  # it would read only the first token of the first text
        if self.is_classifier:
            setattr(model, prefix, self._handed)
        types = getattr(config, "type_vocab_size", 0)
        self.is_typed = family.typed and types > 1
        self._takes_types = "token_type_ids" in inspect.signature(base.forward).parameters
        self.vocab: int = config.vocab_size
        self.hidden: int = config.hidden_size
        self._first = config.pad_token_id + 1 if family.after_padding else 0
        self.context: int = config.max_position_embeddings - self._first
        self.nbytes = sum(each.nbytes for each in {*base.parameters(), *model.parameters()})

    @property
    def device(self) -> torch.device:
        return self._base.device  # type: ignore[no-any-return]

    def hidden_states(self, ids: Tensor, types: Tensor, texts: Texts) -> Tensor:
        """The hidden states [N, hidden] of N tokens. types: [N], 1 for tokens of a second text."""
        ends = texts.starts.repeat_interleave(texts.lengths)
        positions = torch.arange(len(ids), device=ids.device) - ends + self._first
        typed = {"token_type_ids": types[None]} if self._takes_types else {}
        done = self._base(input_ids=ids[None], position_ids=positions[None], texts=texts, **typed)
        hidden: Tensor = done.last_hidden_state
        return hidden[0]

    def vector(self, hidden: Tensor, texts: Texts, pooling: str) -> Tensor:
        """Pool each text's hidden states, [N, hidden] in all: [R, width] float32."""
        if pooling == Pooling.HEAD:
            return self._scores(hidden, texts).float()
        return _pooled(hidden, texts, pooling).float()

    def _scores(self, hidden: Tensor, texts: Texts) -> Tensor:
        """The head's scores [R, labels] from each text's first token, or from its mean if the head
        reads that. To the head, each text is a single token."""
        config = self._model.config
        mean = getattr(config, "classifier_pooling", "cls") == "mean"
        states = _pooled(hidden, texts, Pooling.MEAN if mean else Pooling.FIRST)[:, None]
        pooled = None if self._pooler is None else self._pooler(states)
        self._handed.output = BaseModelOutputWithPooling(
            last_hidden_state=states, pooler_output=pooled
        )
        ids = torch.zeros(len(states), 1, dtype=torch.int64, device=hidden.device)
        logits: Tensor = self._model(input_ids=ids).logits
        return logits


class _Handed(nn.Module):
    """Replaces the encoder in front of a head, and returns states that are already computed."""

    output: Any = None

    def forward(self, *given: Any, **named: Any) -> Any:
        return self.output


def types_of(ids: Sequence[int], separator: int) -> list[int]:
    """The type of each token of a prompt: 0 up to the first separator, 1 after it. A single text
    that ends with the separator is all 0. separator: -1: there is none."""
    if separator not in ids:
        return [0] * len(ids)
    first = ids.index(separator) + 1
    return [0] * first + [1] * (len(ids) - first)


def _pooled(hidden: Tensor, texts: Texts, pooling: str) -> Tensor:
    """[N, hidden] -> [R, hidden]."""
    match pooling:
        case Pooling.FIRST:
            return hidden[texts.starts]
        case Pooling.LAST:
            return hidden[texts.starts + texts.lengths - 1]
        case _:
            # Summed in float32 text by text: a running sum over all texts would mix them.
            parts = torch.split(hidden.float(), texts.lengths.tolist())
            return torch.stack([_of_all(part, pooling) for part in parts]).to(hidden.dtype)


def _of_all(states: Tensor, pooling: str) -> Tensor:
    """Pool the states of one text: [n, hidden] float32 -> [hidden]."""
    match pooling:
        case Pooling.MAX:
            return states.amax(dim=0)
        case Pooling.ROOT:
            return states.sum(dim=0) / math.sqrt(len(states))
        case Pooling.WEIGHTED:
            weights = torch.arange(1, len(states) + 1, device=states.device)[:, None]
            return (states * weights).sum(dim=0) / weights.sum()
        case _:
            return states.mean(dim=0)


def load_model(
    folder: Path,
    family: EncoderFamily,
    *,
    classifier: bool,
    dtype: torch.dtype = torch.float32,
    device: torch.device = CPU,
    shapes: Shapes | None = None,
) -> EncoderModel:
    """Read a checkpoint's folder, only from safetensors and without running its code. Raises
    CheckpointError, also for missing tensors, which transformers would initialise at random, and
    UnsupportedModelError for relative positions, which transformers would ignore.

    shapes: of the tensors in the headers. If given, no weights are read: zeros, which take no
    memory, stand for them.
    """
    kind: Any = AutoModelForSequenceClassification if classifier else AutoModel
    named = {"dtype": dtype, "attn_implementation": NAME, "output_loading_info": True}
    try:
        with _quietly():
            if shapes is None:
                model, info = kind.from_pretrained(
                    folder,
                    local_files_only=True,
                    use_safetensors=True,
                    trust_remote_code=False,
                    **named,
                )
            else:
                model, info = _of_shapes(kind, folder, shapes, named)
    except Exception as error:  # transformers and safetensors raise many kinds
        raise CheckpointError(f"{folder} cannot be read: {first_line(error)}") from error
    missing = sorted(each for each in info["missing_keys"] if OPTIONAL not in each or classifier)
    if missing:
        raise CheckpointError(f"{folder} lacks the tensor {missing[0]}")
    if shapes is None:
        _check_finite(model, folder)
    if relative := sorted(each for each in info["unexpected_keys"] if RELATIVE in each):
        raise UnsupportedModelError(f"{folder}: the tensor {relative[0]} is not computed")
    return EncoderModel(model.eval().to(device), family)


def _check_finite(model: nn.Module, folder: Path) -> None:
    """Raise CheckpointError for a tensor with NaN or infinity: attention hides NaN in queries and
    keys. Embeddings are left out: only texts with such a token fail, which their vectors show."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            continue
        for own, tensor in module.named_parameters(name, recurse=False):
            if not all(each.isfinite() for each in tensor.aminmax()):
                raise CheckpointError(f"{folder}: {own} has numbers that are not finite")


def _of_shapes(kind: Any, folder: Path, shapes: Shapes, named: dict[str, Any]) -> Any:
    """What kind.from_pretrained returns for tensors of these shapes."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):
        made = kind.from_config(config)
    zero = torch.zeros((), dtype=named["dtype"])
    state = {name: zero.expand(tuple(shape)) for name, shape in shapes.items()}
    return type(made).from_pretrained(None, config=config, state_dict=state, **named)


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide transformers' progress bar inside the block."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
