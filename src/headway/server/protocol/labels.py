"""Labels: what a caller notes about its request for the ledger."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headway.server.protocol.problem import wrong

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/+-]{0,127}")
MOST_ATTEMPTS = 1_000_000
PROMPT_VERSION, WORKFLOW = "x-headway-prompt-version", "x-headway-workflow"
ATTEMPT = "x-headway-attempt"


@dataclass(frozen=True, slots=True)
class Labels:
    """A request's labels. They are kept with its ledger row and never sent to the engine."""

    prompt_version: str = ""  # empty: not given
    workflow: str = ""  # empty: not given
    attempt: int = 0  # 1 for the first; 0: not given


def labels_of(headers: Mapping[str, str]) -> Labels:
    """The labels in a request's headers. Raises Problem for a malformed label."""
    return Labels(
        _word(headers, PROMPT_VERSION),
        _word(headers, WORKFLOW),
        _attempt(headers),
    )


def _word(headers: Mapping[str, str], name: str) -> str:
    said = headers.get(name, "")
    if said and not _WORD.fullmatch(said):
        raise wrong(
            "a label has up to 128 letters, digits and _.:@/+- and begins with a letter or a digit",
            name,
            "invalid_label",
        )
    return said


def _attempt(headers: Mapping[str, str]) -> int:
    said = headers.get(ATTEMPT)
    if said is None:
        return 0
    few = said.isascii() and said.isdecimal() and len(said) < 8
    if not few or not 1 <= int(said) <= MOST_ATTEMPTS:
        raise wrong(f"an attempt is a number from 1 to {MOST_ATTEMPTS}", ATTEMPT, "invalid_label")
    return int(said)
