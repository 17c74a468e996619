"""Which headway wrote a journal: its version, and a digest of the source code that schedules."""

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from headway import __version__

HOME = Path(__file__).parents[1]
DECIDES = ("engine.py", "core/**/*.py")  # files below HOME that decide what is served when


@cache
def source() -> str:
    """The digest of the source files in DECIDES. It changes more often than the version."""
    files = sorted(path for pattern in DECIDES for path in HOME.glob(pattern))
    digest = blake2b(digest_size=8)
    for path in files:
        digest.update(path.relative_to(HOME).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def own() -> dict[str, str]:
    """What a journal's head says about the headway that writes it."""
    return {"headway": __version__, "source": source()}


def other(about: Mapping[str, Any]) -> str:
    """In words, which headway wrote a journal and what to do. Empty: this one, or it is unknown.

    about: what the journal's head says about the run.
    """
    wrote = about.get("headway", "")
    if not wrote or own().items() <= about.items():
        return ""
    begun = f" ({about['begun']})" if "begun" in about else ""
    if wrote != __version__:
        return f"headway {wrote} wrote it{begun}: replay it with that version"
    return f"headway {wrote} of other source code wrote it{begun}: replay it with that code"
