"""Find special tokens in a text (SpecialTokens), or make a tokenizer encode them as plain text."""

import re
from copy import deepcopy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers


class SpecialTokens:
    """The special tokens of a tokenizer, whether or not its configuration names them."""

    def __init__(self, fast: "tokenizers.Tokenizer") -> None:
        self._fast = fast
        added = fast.get_added_tokens_decoder()
        self.ids = frozenset([id for id, each in added.items() if each.special])
        special = [added[id] for id in self.ids]
        self._spelled = frozenset([each.content for each in special])
        # Some special tokens are matched against the normalized text, so normalize them too.
        normal = [self._normal(each.content) for each in special if each.normalized]
        self._normalized = frozenset(normal) - self._spelled

    def is_in(self, text: str) -> bool:
        """Whether the text spells a special token."""
        if any(token in text for token in self._spelled):
            return True
        if not self._normalized:
            return False
        normal = self._normal(text)
        return any(token in normal for token in self._normalized)

    def _normal(self, text: str) -> str:
        normalizer = self._fast.normalizer
        normalized: str = normalizer.normalize_str(text) if normalizer else text
        return normalized


def without_special_tokens(fast: "tokenizers.Tokenizer") -> "tokenizers.Tokenizer":
    """A tokenizer that encodes special tokens as plain text.

    It is a second object because the switch belongs to the tokenizer, and other threads may be
    using the first one. The two share everything large, unless the added tokens' ids have gaps.
    """
    import tokenizers

    tokenizer = tokenizers.Tokenizer(fast.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (kept := getattr(fast, part)) is not None:
            setattr(tokenizer, part, kept)
    added = fast.get_added_tokens_decoder()
    tokenizer.add_tokens([token for _, token in sorted(added.items())])
    if tokenizer.get_added_tokens_decoder() != added:  # the ids have gaps
        tokenizer = deepcopy(fast)
    tokenizer.encode_special_tokens = True
    _cut_in_two(tokenizer)
    return tokenizer


def _cut_in_two(plain: "tokenizers.Tokenizer") -> None:
    """Cut a spelled special token behind its first character, where the model itself would give its
    id: Unigram (XLM-RoBERTa, CamemBERT) has special tokens among its pieces, at the best score."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Sequence, Split

    special = [
        (id, each.content)
        for id, each in plain.get_added_tokens_decoder().items()
        if each.special and len(each.content) > 1
    ]
    texts = [f"{spelled}a{spelled}" for _, spelled in special]  # at the beginning and inside
    found = plain.encode_batch(texts, add_special_tokens=False)
    cuts = [
        f"{re.escape(spelled[0])}(?={re.escape(spelled[1:])})"
        for (id, spelled), each in zip(special, found, strict=True)
        if id in each.ids
    ]
    if cuts:
        split, own = Split(Regex("|".join(cuts)), "isolated"), plain.pre_tokenizer
        plain.pre_tokenizer = Sequence([own, split]) if own else split
