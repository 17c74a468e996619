"""What a caller says of its request for the ledger: prompt version, workflow and attempt."""

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
    """Kept with the request's row, and never sent to the engine."""

    prompt_version: str = ""  # empty: it does not say
    workflow: str = ""
    attempt: int = 0  # 1 for the first; 0: it does not say


def labels_of(headers: Mapping[str, str]) -> Labels:
    """Raises Problem for a label that could not be kept as it is."""
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
