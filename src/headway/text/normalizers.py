"""A tokenizer's normalization: make it lowercase texts (lowercase), and find the most characters
of a token, if it keeps them all (longest_token)."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers

SPLITS = "ByteLevel", "Split", "Digits"  # pre-tokenizers that keep every character
REMOVED = "Removed"  # the behaviour of a Split that drops characters


def lowercase(fast: "tokenizers.Tokenizer") -> None:
    """Lowercase texts before the tokenizer's own normalization."""
    from tokenizers.normalizers import Lowercase, Sequence

    own = fast.normalizer
    fast.normalizer = Sequence([Lowercase(), own]) if own else Lowercase()


def longest_token(fast: "tokenizers.Tokenizer", vocab: Mapping[str, int]) -> int:
    """The most characters that one token stands for. 0: any number, because the tokenizer may drop
    characters, as BERT's drops spaces. Only byte-level BPE is known to keep all of them.

    vocab: its get_vocab(), which takes a fifth of a second where tokens are many.
    """
    from tokenizers.models import BPE
    from tokenizers.normalizers import NFC
    from tokenizers.pre_tokenizers import ByteLevel

    normalizer = fast.normalizer
    composes = isinstance(normalizer, NFC)
    if not isinstance(fast.model, BPE) or not (normalizer is None or composes):
        return 0
    if not vocab.keys() >= set(ByteLevel.alphabet()) or not _keeps_bytes(fast):
        return 0
    if any(each.lstrip or each.rstrip for each in fast.get_added_tokens_decoder().values()):
        return 0  # such a token takes all spaces beside it
    longest = max(map(len, vocab))
    return 2 * longest if composes else longest  # NFC may make one of two bytes from three chars


def _keeps_bytes(fast: "tokenizers.Tokenizer") -> bool:
    """Whether the pre-tokenizer turns a text into bytes and drops none."""
    if fast.pre_tokenizer is None:
        return False
    made = json.loads(fast.pre_tokenizer.__getstate__())
    parts = made["pretokenizers"] if made["type"] == "Sequence" else [made]
    kinds = [each["type"] for each in parts]
    removes = any(each.get("behavior") == REMOVED for each in parts)
    return "ByteLevel" in kinds and set(kinds) <= set(SPLITS) and not removes
