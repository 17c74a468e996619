"""Read the stages of a stored row (stages_of)."""

import json
from collections.abc import Mapping

from headway.errors import SettingError


def stages_of(id: str, stages: str) -> Mapping[str, int]:
    """The nanoseconds of a row by stage. id: the row's. Raises SettingError if they are not what
    headway writes, such as in a ledger that was changed by hand."""
    try:
        found = json.loads(stages)
    except (TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(type(each) is int for each in found.values()):
        raise SettingError(f"{id}: its stages cannot be read: {str(stages)[:100]!r}")
    return found
