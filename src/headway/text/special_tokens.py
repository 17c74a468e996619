"""Find special tokens in a text (SpecialTokens), or make a tokenizer encode them as plain text."""

from copy import deepcopy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers


class SpecialTokens:
    """The special tokens of a tokenizer, whether or not its configuration names them."""

    def __init__(self, fast: "tokenizers.Tokenizer") -> None:
        self._fast = fast
        special = [each for each in fast.get_added_tokens_decoder().values() if each.special]
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
    return tokenizer
