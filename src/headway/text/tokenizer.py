"""Tokenizer: turn text and chats into token ids, and token ids back into text.

transformers loads the tokenizer and renders its chat template.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from random import SystemRandom
from typing import Any, TypedDict

from headway.errors import PromptError, TokenizerError, first_line
from headway.text.encodable import check_encodable, contents_of
from headway.text.loaded_tokenizer import LoadedTokenizer
from headway.text.pair_template import PairTemplate, read_pair_template
from headway.text.special_tokens import SpecialTokens, without_special_tokens
from headway.text.tokenizer_cache import read_tokenizer
from headway.vectors.model_card import check_prompts

PRIVATE = [
    chr(code) for code in range(0xE000, 0xF900)
]  # private-use characters: no template contains or trims them
ANCHOR = "\n"  # a character that few tokens join with what follows
MARK_LENGTH = 12  # characters of a mark: 150 bits
TO_ANSWER = {"add_generation_prompt": True}


class Message(TypedDict):
    """One message of a chat."""

    role: str
    content: str


class Tokenizer:
    """A checkpoint's tokenizer. Special tokens that a user's text spells are encoded as plain text.

    transformers loads it, with special rules for many families. The result runs on the tokenizers
    library alone. So it pickles, and a process that receives it, such as the server's front, need
    not import torch. Any number of threads may use it: nothing changes after __init__.
    """

    def __init__(self, folder: Path, vocab: int, read: LoadedTokenizer | None = None) -> None:
        """Load it from a checkpoint's folder. vocab: rows of the model's embedding. read: what
        read_tokenizer returned for this folder; None: it is read now.

        Raises TokenizerError if there is none or if it has ids that the model does not have, and
        what check_prompts raises.
        """
        loaded = read_tokenizer(folder) if read is None else read
        self._fast = loaded.fast  # encodes special tokens as such
        self._plain = without_special_tokens(self._fast)  # encodes special tokens as plain text
        if loaded.largest >= vocab:
            raise TokenizerError(
                f"{folder}: the tokenizer does not match the model: "
                f"it has an id {loaded.largest}, the embedding {vocab} rows"
            )
        self.vocab = vocab
        self.longest = loaded.longest  # characters that a token stands for; 0: any number
        self._special = SpecialTokens(self._fast)
        check_prompts(folder, self._special)
        self._template = loaded.template
        self._named = loaded.named  # special tokens as templates call them
        self._pairs = read_pair_template(folder)
        if self._pairs:
            self._check_pairs(self._pairs, folder)

    @property
    def special(self) -> frozenset[int]:
        """The ids of the special tokens, which `decode` leaves out by default."""
        return self._special.ids

    def encode(self, text: str, most: int = 0) -> tuple[int, ...]:
        """Token ids of a text, with the special tokens that the tokenizer adds, such as a BOS.

        most: the text is cut at its end to at most this many ids in all; 0: it is not cut.
        Raises PromptError if the special tokens alone are that many, or for a lone surrogate.
        """
        ids = tuple(self._ids(text, adds=True))
        if not most or len(ids) <= most:
            return ids
        own = self._plain.num_special_tokens_to_add(is_pair=False)
        if most <= own:
            raise PromptError(f"{most} tokens leave no room for a text beside {own} special ones")
        (cut,) = self._plain.encode_batch_fast([text], add_special_tokens=False)
        cut.truncate(most - own)
        return tuple(self._plain.post_process(cut).ids)

    def encode_pair(
        self, first: str, second: str, most: int = 0, most_second: int = 0
    ) -> tuple[int, ...]:
        """Token ids of two texts as one prompt, with what the tokenizer puts between them.

        most: as in encode, but only the second text is cut. most_second: the second text's own
        limit; 0: none. A yes-or-no reranker's pair goes through the chat template. Raises
        PromptError if the first text alone is too long.
        """
        if self._pairs:
            return self._templated(self._pairs, first, second, most, most_second)
        check_encodable(first, second)
        one, other = self._plain.encode_batch_fast([first, second], add_special_tokens=False)
        own = self._plain.num_special_tokens_to_add(is_pair=True)
        if most_second:
            other.truncate(most_second)
        if most:
            if len(one.ids) + own >= most:
                raise PromptError(
                    f"the first text has {len(one.ids)} tokens: a pair may have {most}"
                )
            other.truncate(most - own - len(one.ids))
        return tuple(self._plain.post_process(one, other).ids)

    def __getstate__(self) -> dict[str, object]:
        return {name: kept for name, kept in self.__dict__.items() if name != "_plain"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._plain = without_special_tokens(self._fast)

    def _ids(self, text: str, adds: bool = False, special: bool = False) -> list[int]:
        """Token ids of a text. adds: add the tokenizer's own special tokens. special: encode
        special tokens that the text spells as special tokens."""
        check_encodable(text)
        by = self._fast if special else self._plain
        (found,) = by.encode_batch_fast([text], add_special_tokens=adds)
        ids: list[int] = found.ids
        return ids

    def chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a chat rendered with the template, up to where the answer begins.

        The template writes the special tokens, so the tokenizer adds none: no double BOS. Raises
        PromptError if there is no template, or if it refuses the messages.
        """
        if not self._template:
            raise PromptError("the model has no chat template: use generate() with a plain prompt")
        return self._chatted(messages, TO_ANSWER)

    def _templated(
        self, pairs: PairTemplate, first: str, second: str, most: int, most_second: int
    ) -> tuple[int, ...]:
        """Token ids of a pair rendered with the chat template. If it is too long, the end of the
        document is cut, so that the template's text after it stays."""

        def asked(document: str) -> tuple[int, ...]:
            messages = [Message(role=r, content=c) for r, c in pairs.messages(first, document)]
            return self._chatted(messages, pairs.arguments)

        if most_second:
            second = self._beginning(second, most_second)
        ids, room = asked(second), len(self._ids(second))
        while most and len(ids) > most:  # cut text may encode to one token more
            room -= len(ids) - most
            if room <= 0:
                raise PromptError(
                    f"the query leaves no room for a document: a pair may have {most}"
                )
            ids = asked(self._beginning(second, room))
        return ids

    def _check_pairs(self, pairs: PairTemplate, folder: Path) -> None:
        """Raise TokenizerError unless the chat template shows both texts of a pair."""
        query, document = PRIVATE[0] * MARK_LENGTH, PRIVATE[1] * MARK_LENGTH
        messages = [Message(role=r, content=c) for r, c in pairs.messages(query, document)]
        where = f"{folder}: a reranker that answers yes or no needs a chat template"
        if not self._template:
            raise TokenizerError(f"{where}, and there is none")
        try:
            rendered = self._rendered(messages, pairs.arguments)
        except PromptError as error:
            raise TokenizerError(f"{where} of a query and a document: {error}") from None
        if query not in rendered or document not in rendered:
            raise TokenizerError(f"{where} that writes the messages of a query and a document")

    def _beginning(self, text: str, most: int) -> str:
        """The beginning of a text that its first `most` tokens stand for."""
        (found,) = self._plain.encode_batch([text], add_special_tokens=False)  # with offsets
        return text if len(found.ids) <= most else text[: found.offsets[most - 1][1]]

    def _chatted(
        self, messages: Sequence[Message], arguments: Mapping[str, Any]
    ) -> tuple[int, ...]:
        """Token ids of messages rendered with the template. arguments: for the template."""
        contents = contents_of(messages)
        if not self._special.is_in("".join(contents)):
            return tuple(self._ids(self._rendered(list(messages), arguments), special=True))
        # Render the template with random marks in place of the contents, then encode the contents
        # as plain text. No content can contain a mark that has just been drawn.
        mark = "".join(SystemRandom().choices(PRIVATE, k=MARK_LENGTH))
        marked: list[Message] = [
            {**each, "content": f"{mark}{i}{mark}"} for i, each in enumerate(messages)
        ]
        pieces = re.split(f"{mark}([0-9]+){mark}", self._rendered(marked, arguments))
        rendered = self._rendered(list(messages), arguments)
        for kept in (contents, [each.strip() for each in contents]):  # many templates strip
            put = [kept[int(piece)] if i % 2 else piece for i, piece in enumerate(pieces)]
            if "".join(put) == rendered:
                ids = [self._ids(text, special=i % 2 == 0) for i, text in enumerate(put)]
                return tuple(chain.from_iterable(ids))
        raise PromptError(
            "the chat template changes messages' contents, and one spells a special token"
        )

    def _rendered(self, messages: list[Message], arguments: Mapping[str, Any]) -> str:
        from transformers.utils.chat_template_utils import render_jinja_template

        if not messages:
            raise PromptError("a chat needs at least one message")
        try:
            (text,), _ = render_jinja_template(
                [messages], chat_template=self._template, **{**self._named, **arguments}
            )
        except Exception as error:  # of any kind: a template is a program
            said = first_line(error)
            raise PromptError(f"the chat template refuses these messages: {said}") from error
        rendered: str = text
        return rendered

    def is_like(self, other: "Tokenizer") -> bool:
        """Whether both give the same tokens the same ids, and have the same chat template."""
        mine, theirs = (
            (each.vocab, each._template, each._fast.get_vocab()) for each in (self, other)
        )
        return mine == theirs

    def spellings(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Token ids of each word at the beginning of a text, after a space, and right after another
        character. SentencePiece begins every text with a space, so the last form is encoded after
        an anchor. It is left out if the anchor does not keep its own ids."""
        anchor = self._ids(ANCHOR) if words else []
        found = list[list[int]]()
        for word in words:
            found += self._ids(word), self._ids(f" {word.lstrip()}")
            behind = self._ids(ANCHOR + word)
            if behind[: len(anchor)] == anchor and len(behind) > len(anchor):
                found.append(behind[len(anchor) :])
        return tuple(dict.fromkeys(map(tuple, found)))

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of these token ids, by default without special tokens."""
        text: str = self._fast.decode(ids, skip_special_tokens=skip_special)
        return text
