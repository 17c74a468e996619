"""Which version of a model a server begins with: foreseen, and once its model is loaded (begun)."""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import SettingError
from headway.rollout.proposal import Proposal, digest_of
from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.config.versioned import versioned, with_version
from headway.server.versions.ending import OURSELVES
from headway.store.versions import (
    ON_TRIAL,
    PROMOTED,
    ROLLED_BACK,
    StoredVersion,
    VersionEvent,
    Versions,
)

FILE = "the configuration file"


def foreseen(model: str, base: ServerConfig, versions: Versions) -> StoredVersion:
    """The version that `begun` would put in force now. It stores nothing: the server may still fail
    to start. The file's own version has number 0 if it is not stored yet.

    base: the file's configuration of this model.
    """
    if found := _standing(base, versions.all(model)):
        return found
    own, now = versioned(base), clock.unix()
    content = Proposal(own, FILE, FILE, model=model).as_json()
    event = VersionEvent(PROMOTED, now, FILE, FILE)
    return StoredVersion(0, content, digest_of(own), True, now, (event,))


def begun(model: str, base: ServerConfig, versions: Versions) -> StoredVersion:
    """Roll back a trial that was cut short, and return the version to put in force: the promoted
    one or, if the file has changed, the file's. The engine starts with the file's configuration,
    whose memory bounds all versions.

    base: the file's configuration of this model.
    """
    now, own = clock.unix(), versioned(base)
    found = versions.all(model)
    for each in found:
        if each.state == ON_TRIAL:
            why = "the server ended during its trial"
            versions.happen(each.number, VersionEvent(ROLLED_BACK, now, OURSELVES, why))
    if standing := _standing(base, found):
        return standing
    why = f"{FILE} was changed" if any(each.is_file for each in found) else FILE
    content = Proposal(own, FILE, why, model=model).as_json()
    event = VersionEvent(PROMOTED, now, FILE, why)
    return versions.add(content, digest_of(own), event, is_file=True)


def _standing(base: ServerConfig, found: Sequence[StoredVersion]) -> StoredVersion | None:
    """The promoted version; None: there is none, or the file has changed since its own version."""
    files = [each for each in found if each.is_file]
    promoted = [each for each in found if each.state == PROMOTED]
    if promoted and files and _filled_in(base, files[-1]) == versioned(base):
        return promoted[0]
    return None


def _filled_in(base: ServerConfig, version: StoredVersion) -> Mapping[str, Any]:
    """What a version holds, with the defaults of settings that headway did not have when it was
    stored; empty: this headway has not all of its settings."""
    try:
        return versioned(with_version(base, version.content["config"], ""))
    except SettingError:
        return {}
