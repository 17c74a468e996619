"""Token ids <-> text: encoding, chat templates, incremental detokenizing, stop strings.

The tokenizer and its chat template are transformers'; what a stream of answers needs is here.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, TypedDict

from headway.errors import PromptError, TokenizerError
from headway.special_tokens import SpecialTokens, without_special_tokens

if TYPE_CHECKING:
    import tokenizers

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork

PRIVATE = [chr(code) for code in range(0xE000, 0xF900)]  # no template trims them or has their like
MARK = 12  # of them: 150 bits


class Message(TypedDict):
    """One turn of a chat."""

    role: str
    content: str


class Tokenizer:
    """A checkpoint's own. Special-token strings inside a user's text are encoded as plain text.

    transformers loads it, by rules of its own for many a family; what it has made of the files is
    kept and runs on the tokenizers library alone. So it pickles, and who is sent one, as a server's
    front is by its engine, imports no torch. Any number of threads may use one at once: nothing is
    set once it is made.
    """

    def __init__(self, folder: Path, vocab: int) -> None:
        """Load it; TokenizerError if there is none, or if it has ids that the model has not.

        vocab: rows of the model's embedding.
        """
        loaded = _load(folder)
        self._fast: tokenizers.Tokenizer = loaded.backend_tokenizer  # a special token is one
        self._fast.no_truncation()
        self._fast.no_padding()
        self._plain = without_special_tokens(self._fast)  # and here it is text like any other
        largest = max(self._fast.get_vocab().values())
        if largest >= vocab:
            raise TokenizerError(
                f"{folder}: the tokenizer does not match the model: "
                f"it has an id {largest}, the embedding {vocab} rows"
            )
        self.vocab = vocab
        # Characters that one token may stand for.
        self.longest = max(map(len, self._fast.get_vocab()))
        self._special = SpecialTokens(self._fast)
        template: str | dict[str, str] = loaded.chat_template or ""  # one, or several by name
        self._template = template if isinstance(template, str) else template.get("default", "")
        self._named: dict[str, str] = loaded.special_tokens_map  # as templates call them

    def encode(self, text: str) -> tuple[int, ...]:
        """With the special tokens that the tokenizer itself adds, such as a BOS."""
        return tuple(self._ids(text, adds=True))

    def __getstate__(self) -> dict[str, object]:
        return {name: kept for name, kept in self.__dict__.items() if name != "_plain"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._plain = without_special_tokens(self._fast)

    def _ids(self, text: str, adds: bool = False, special: bool = False) -> list[int]:
        """adds: its own special tokens. special: those that the text spells are special too."""
        by = self._fast if special else self._plain
        (found,) = by.encode_batch_fast([text], add_special_tokens=adds)
        ids: list[int] = found.ids
        return ids

    def chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Through the chat template, up to where the assistant's answer begins.

        The template brings its own special tokens, so the tokenizer adds none: no double BOS.
        """
        if not self._template:
            raise PromptError("the model has no chat template: use generate() with a plain prompt")
        contents = _contents(messages)
        if not self._special.is_in("".join(contents)):
            return tuple(self._ids(self._rendered(list(messages)), special=True))
        # All contents are put aside, and marks rendered in their place. So nothing that a content
        # says can be taken for a mark; and no template and no role says one that was drawn now.
        mark = "".join(SystemRandom().choices(PRIVATE, k=MARK))
        marked: list[Message] = [
            {**each, "content": f"{mark}{i}{mark}"} for i, each in enumerate(messages)
        ]
        ids: list[int] = []
        for i, piece in enumerate(re.split(f"{mark}([0-9]+){mark}", self._rendered(marked))):
            if i % 2:
                ids += self._ids(contents[int(piece)])
            elif set(piece).isdisjoint(mark):
                ids += self._ids(piece, special=True)
            else:
                raise PromptError(
                    "the chat template takes contents apart, and one spells a special token"
                )
        return tuple(ids)

    def _rendered(self, messages: list[Message]) -> str:
        from jinja2 import TemplateError
        from transformers.utils.chat_template_utils import render_jinja_template

        if not messages:
            raise PromptError("a chat has at least one message")
        try:
            (text,), _ = render_jinja_template(
                [messages], chat_template=self._template, add_generation_prompt=True, **self._named
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise PromptError(f"the chat template refuses these messages: {error}") from error
        said: str = text
        return said

    def spellings(self, words: Iterable[str]) -> tuple[tuple[int, ...], ...]:
        """Ids of each word, as it is spelled after a space and at the beginning of a text."""
        texts = [text for word in words for text in (word, f" {word.lstrip()}")]
        return tuple(dict.fromkeys([tuple(self._ids(text)) for text in texts]))

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        text: str = self._fast.decode(ids, skip_special_tokens=skip_special)
        return text


def _contents(messages: Sequence[Message]) -> list[str]:
    """PromptError where one is no text, as that of an assistant's turn of tool calls."""
    contents: list[str] = []
    for i, each in enumerate(messages):
        content = each.get("content")
        if not isinstance(content, str):
            raise PromptError(
                f"the content of message {i} is no text, but {type(content).__name__}"
            )
        contents.append(content)
    return contents


def _load(folder: Path) -> Any:
    """A transformers TokenizersBackend. Raises TokenizerError."""
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        raise TokenizerError(f"{folder} has no tokenizer.json")
    try:
        loaded: Any = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # any of transformers' and tokenizers' own; nobody waits here
        first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise TokenizerError(f"{folder}: the tokenizer cannot be read: {first}") from error
    if not hasattr(loaded, "backend_tokenizer"):
        raise TokenizerError(f"{folder}: a {type(loaded).__name__} is not run by tokenizers")
    return loaded
