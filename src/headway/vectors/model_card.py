"""What a checkpoint says about its vectors (ModelCard), read from the files of
sentence-transformers and from config.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.core.request import Pooling
from headway.errors import CheckpointError, UnsupportedModelError
from headway.executor.encoder.families import FAMILIES as ENCODERS
from headway.executor.torch.config.config_reader import ConfigReader, Raw, read_json
from headway.executor.torch.config.labels import read_labels
from headway.executor.torch.config.modules import (
    MODULES,
    longest_text,
    read_answer_tokens,
    read_modules,
)
from headway.text.pair_template import read_pair_template
from headway.text.special_tokens import SpecialTokens

OF_MODULES = "config_sentence_transformers.json"
SEVERAL, REGRESSION = "multi_label_classification", "regression"  # values of problem_type
SIGMOID, IDENTITY = "Sigmoid", "Identity"
# Pooling by sentence-transformers' names; below, the keys that its older versions wrote.
MODES = {
    "cls": Pooling.FIRST,
    "mean": Pooling.MEAN,
    "lasttoken": Pooling.LAST,
    "max": Pooling.MAX,
    "weightedmean": Pooling.WEIGHTED,
    "mean_sqrt_len_tokens": Pooling.ROOT,
}
OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


# The label of a reranker that answers yes or no: transformers' name where there is only one.
ANSWERS = ("LABEL_0",)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """How to compute and to interpret a checkpoint's vectors."""

    pooling: str = ""  # one of Pooling's; empty: not stated
    normalized: bool = True  # embeddings have length 1
    prompts: Mapping[str, str] = field(default_factory=dict)  # text to put before an input, by name
    default_prompt: str = ""  # the name of the prompt to use if none is named; empty: none
    pair_prompt: str = ""  # the text to put before the first text of a pair
    max_tokens: int = 0  # of a text; 0: limited only by the model's positions
    labels: tuple[str, ...] = ()  # of a classifier, in the order of its scores
    several: bool = False  # each label is true or false independently; else exactly one is true
    sigmoid: bool = True  # for a classifier with one label: a sigmoid maps the score to 0..1
    dense: tuple[str, ...] = ()  # folders of the dense layers after pooling, in order
    regression: bool = False  # a classifier's outputs are values, not logits of labels
    padding: int = -1  # the token to drop from a prompt's end for a decoder's classifier; -1: none


def read_card(folder: Path) -> ModelCard:
    """Read the card of a checkpoint's folder. What the folder does not state has its default.

    Raises CheckpointError for invalid files, UnsupportedModelError for unsupported features.
    """
    raw = read_json(folder / "config.json")
    labels, sigmoid = _classes(folder, raw)
    kind, padding = raw.get("problem_type"), _padding(raw)
    if read_answer_tokens(folder):
        labels, kind, padding = ANSWERS, "", -1
    pooling, normalized, dense = _modules(folder)
    prompts, default = _prompts(folder)
    return ModelCard(
        pooling,
        normalized,
        prompts,
        default,
        pair_prompt="" if read_pair_template(folder) else prompts.get(default, ""),
        max_tokens=longest_text(folder),
        labels=labels,
        several=kind == SEVERAL,
        sigmoid=sigmoid,
        dense=dense,
        regression=kind == REGRESSION,
        padding=padding,
    )


def _padding(raw: Raw) -> int:
    """The padding token of a decoder, or -1. transformers' decoder classifiers read the last token
    that is not padding."""
    found = raw.get("pad_token_id")
    return found if isinstance(found, int) and raw.get("model_type") not in ENCODERS else -1


def _modules(folder: Path) -> tuple[str, bool, tuple[str, ...]]:
    """The pooling, whether vectors are normalised, and the folders of dense layers, from
    modules.json."""
    path, modules = folder / MODULES, read_modules(folder)
    if not modules:
        return "", True, ()
    pooling, normalized, dense = "", False, list[str]()
    for kind, at in modules:
        match kind:
            case "Transformer" | "LogitScore":
                pass
            case "Pooling":
                pooling = _pooling(folder / at / "config.json")
            case "Dense" if not normalized and Path(at).name == at:
                dense.append(at)
            case "Normalize":
                normalized = True
            case _:
                raise UnsupportedModelError(f"{path}: the module {kind!r} is not computed there")
    return pooling, normalized, tuple(dense)


def _pooling(path: Path) -> str:
    raw = read_json(path)
    given: Any = raw.get("pooling_mode") or [
        name for key, name in OLD_MODES.items() if raw.get(key)
    ]
    modes = [str(each) for each in (given if isinstance(given, list) else [given])]
    if len(modes) != 1 or modes[0] not in MODES:
        raise UnsupportedModelError(f"{path}: pooling {', '.join(modes) or 'of no kind'}")
    if raw.get("include_prompt") is False:
        raise UnsupportedModelError(f"{path}: pooling without the prompt's tokens")
    return MODES[modes[0]]


def _prompts(folder: Path) -> tuple[dict[str, str], str]:
    path = folder / OF_MODULES
    if not path.is_file():
        return {}, ""
    reader = ConfigReader(read_json(path), str(path))
    prompts, default = reader.section("prompts").raw, reader.text("default_prompt_name")
    if default and default not in prompts:
        raise CheckpointError(f"{path}: there is no prompt {default!r}, the default one")
    return {str(name): str(text or "") for name, text in prompts.items()}, default


def check_prompts(folder: Path, special: SpecialTokens) -> None:
    """Raise UnsupportedModelError if a prompt contains a special token: prompts are tokenized as
    plain text, like a user's. Raises CheckpointError as read_card does."""
    for name, text in _prompts(folder)[0].items():
        if special.is_in(text):
            why = f"the prompt {name!r} has a special token, which would be read as plain text"
            raise UnsupportedModelError(f"{folder / OF_MODULES}: {why}")


def _classes(folder: Path, raw: Raw) -> tuple[tuple[str, ...], bool]:
    """A classifier's labels, and whether a sigmoid maps a single score to 0..1."""
    where = f"{folder}/config.json"
    labels = read_labels(raw, where)
    path = folder / OF_MODULES
    latest = read_json(path).get("activation_fn") if path.is_file() else ""
    later = ConfigReader(raw, where).section("sentence_transformers")
    before = later.get("activation_fn") or raw.get("sbert_ce_default_activation_function")
    named = latest or before or ""
    kind = str(named).rpartition(".")[2]
    if kind not in ("", SIGMOID, IDENTITY):
        raise UnsupportedModelError(f"{folder}: the activation {named} of scores")
    return labels, kind != IDENTITY
