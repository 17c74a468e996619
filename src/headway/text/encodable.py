"""Check that texts can be encoded, before a tokenizer gets them."""

from collections.abc import Mapping, Sequence

from headway.errors import PromptError


def check_encodable(*texts: str) -> None:
    """Raise PromptError for a text with a lone surrogate, as os.fsdecode makes of invalid bytes."""
    for text in texts:
        try:
            if not text.isascii():
                text.encode()
        except UnicodeEncodeError as error:
            raise PromptError(f"a text cannot be encoded: {error}") from None


def contents_of(messages: Sequence[object]) -> list[str]:
    """The messages' texts. Raises PromptError for what is no message, and if a
    content is not text, as in a tool call."""
    contents: list[str] = []
    for i, each in enumerate(messages):
        if not isinstance(each, Mapping):
            kind = type(each).__name__
            raise PromptError(f"message {i} must have a role and a content, and is a {kind}")
        content = each.get("content")
        if not isinstance(content, str):
            raise PromptError(
                f"the content of message {i} is not text, but {type(content).__name__}"
            )
        check_encodable(content)
        contents.append(content)
    return contents
