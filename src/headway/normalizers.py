"""What a tokenizer does to a text before it looks for tokens (lowercase)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers


def lowercase(fast: "tokenizers.Tokenizer") -> None:
    """Put lower case before what the tokenizer does already."""
    from tokenizers.normalizers import Lowercase, Sequence

    own = fast.normalizer
    fast.normalizer = Sequence([Lowercase(), own]) if own else Lowercase()
