"""The modules of a sentence-transformers checkpoint (read_modules), the settings of its Transformer
(read_transformer, longest_text), and the tokens whose logits give a reranker's score
(read_answer_tokens)."""

import json
from pathlib import Path
from typing import NamedTuple

from headway.errors import CheckpointError
from headway.executor.torch.config.config_reader import ConfigReader, Raw, read_json

MODULES = "modules.json"
LOGIT_SCORE = "LogitScore"
# Older versions name the settings file after the model's class. Tried in this order.
WRITERS = "bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"


class Module(NamedTuple):
    """One module of the chain."""

    kind: str  # its class, without the package
    path: str  # its folder inside the checkpoint's; empty: the checkpoint's own folder


def read_modules(folder: Path) -> tuple[Module, ...]:
    """The chain in modules.json; empty if there is no such file. Raises CheckpointError."""
    path = folder / MODULES
    if not path.is_file():
        return ()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise CheckpointError(f"{path} is not a list of modules")
    return tuple(
        [
            Module(str(each.get("type", "")).rpartition(".")[2], str(each.get("path", "")))
            for each in found
        ]
    )


def read_transformer(folder: Path) -> Raw:
    """The settings of the Transformer module, from the first file that has any; empty if there is
    none. Raises CheckpointError."""
    for name in WRITERS:
        path = folder / f"sentence_{name}_config.json"
        if path.is_file() and (found := read_json(path)):
            return found
    return {}


def longest_text(folder: Path) -> int:
    """The most tokens of a text in these settings; 0: not set. Raises CheckpointError."""
    most = read_transformer(folder).get("max_seq_length") or 0
    if type(most) is not int or most < 0:
        raise CheckpointError(f"{folder}: max_seq_length is {most!r}")
    return most


def read_answer_tokens(folder: Path) -> tuple[int, ...]:
    """The tokens for yes and no from the LogitScore module, or only the one for yes.

    Such a reranker is a language model. A document's score is the logit of yes at the end of the
    prompt, minus the logit of no. Empty: this is no such reranker. Raises CheckpointError.
    """
    for kind, at in read_modules(folder):
        if kind != LOGIT_SCORE:
            continue
        if Path(at).name != at:
            raise CheckpointError(f"{folder / MODULES}: {at!r} is no folder of the checkpoint")
        path = folder / at / "config.json"
        reader = ConfigReader(read_json(path), str(path))
        tokens = [reader.get("true_token_id")]
        if reader.get("false_token_id") is not None:
            tokens.append(reader.get("false_token_id"))
        if not all(type(token) is int and token >= 0 for token in tokens):
            raise CheckpointError(f"{path}: {tokens} are no token ids")
        return tuple(tokens)
    return ()
