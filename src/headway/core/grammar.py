"""What an answer must look like (Grammar). The executor compiles and obeys it."""

from dataclasses import dataclass

KINDS = ("json_object", "json_schema", "regex", "choice", "lark")
# Errors, or their beginnings, of rows whose own request leaves no token to sample (finish_of).
ALL_BANNED = "no token can be sampled: the grammar, bad words and min_tokens ban them all"
DEAD_END = "the grammar cannot be followed"
MOST_TEXT = 65_536  # characters: longer texts may take longer to compile


@dataclass(frozen=True, slots=True)
class Grammar:
    """Restricts each token to those after which the answer can still match.

    kind         text
    json_object  empty: any JSON object
    json_schema  a JSON Schema, as JSON
    regex        what the whole answer matches, in Rust's syntax: no look-around, no back-references
    choice       a JSON list of strings: the answer is one of them
    lark         a grammar in llguidance's variant of Lark
    """

    kind: str = ""  # empty: the answer is free
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.kind)

    def problem(self) -> str:
        """What is wrong, as far as can be seen without compiling it; empty: nothing."""
        if not self.kind:
            return "a grammar's text has no kind" if self.text else ""
        if self.kind not in KINDS:
            return f"a grammar must be one of {', '.join(KINDS)}, not {self.kind!r}"
        if len(self.text) > MOST_TEXT:
            return f"a grammar may have {MOST_TEXT} characters, and this has {len(self.text)}"
        if bool(self.text) == (self.kind == "json_object"):
            return f"the grammar {self.kind} " + ("takes no text" if self.text else "has no text")
        return ""
