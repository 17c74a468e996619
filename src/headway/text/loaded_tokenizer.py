"""What a model's folder says about its tokenizer, as transformers reads it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from headway.errors import TokenizerError, first_line
from headway.executor.torch.config.config_reader import shortened
from headway.executor.torch.config.modules import read_transformer
from headway.text.normalizers import longest_token, lowercase

if TYPE_CHECKING:
    import tokenizers

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork

PLAIN = "PreTrainedTokenizerFast", "TokenizersBackend"  # classes without rules for a family
ONE_AT_A_TIME = Lock()  # threads that import transformers at once find it half imported


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer of the tokenizers library, and what else its folder says about texts."""

    fast: "tokenizers.Tokenizer"  # without truncation and padding
    template: str  # of a chat, in Jinja; empty: the model has none
    named: dict[str, Any]  # special tokens as templates call them, such as bos_token
    largest: int  # the largest id
    longest: int  # characters that a token stands for; 0: any number


def load_tokenizer(folder: Path) -> LoadedTokenizer:
    """Read a folder's tokenizer with transformers. Raises TokenizerError."""
    loaded = from_transformers(folder)
    fast = loaded.backend_tokenizer
    fast.no_truncation()
    fast.no_padding()
    if read_transformer(folder).get("do_lower_case"):
        lowercase(fast)
    template: Any = loaded.chat_template or ""  # one, or several by name
    template = template.get("default", "") if isinstance(template, dict) else template
    if not isinstance(template, str):
        raise TokenizerError(f"{folder}: chat_template = {shortened(template)} is not a text")
    known = fast.get_vocab()
    named = dict(loaded.special_tokens_map)
    return LoadedTokenizer(fast, template, named, max(known.values()), longest_token(fast, known))


def from_transformers(folder: Path) -> Any:
    """A transformers tokenizer that runs on the tokenizers library. Raises TokenizerError."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        raise TokenizerError(f"{folder} has no tokenizer.json")
    try:
        with ONE_AT_A_TIME:
            loaded: Any = _loader(folder).from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # transformers and tokenizers raise many kinds
        raise TokenizerError(
            f"{folder}: the tokenizer cannot be read: {first_line(error)}"
        ) from error
    if not hasattr(loaded, "backend_tokenizer"):
        raise TokenizerError(f"{folder}: a {type(loaded).__name__} is not run by tokenizers")
    return loaded


def import_templates() -> None:
    """Import now what would make the first chat of a process wait for half a second."""
    with ONE_AT_A_TIME:
        from transformers.utils import chat_template_utils

        assert chat_template_utils.render_jinja_template


def _loader(folder: Path) -> Any:
    """The transformers class that loads the tokenizer. AutoTokenizer works for every family, but
    first imports the model's own code, and torch with it, which takes two seconds. A Llama whose
    tokenizer has no rules for the family does not need that."""
    model, tokenizer = (
        json.loads(path.read_bytes()) if (path := folder / name).is_file() else {}
        for name in ("config.json", "tokenizer_config.json")
    )
    plain = tokenizer.get("tokenizer_class") in PLAIN and "auto_map" not in tokenizer
    if plain and model.get("model_type") == "llama" and (folder / "tokenizer.json").is_file():
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast
    from transformers import AutoTokenizer

    return AutoTokenizer
