"""JobHost: what jobs need of the server that answers their items. And how they are opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.server.intake.keys import KeyRing
from headway.server.observe.logs import Log

if TYPE_CHECKING:
    from headway.server.jobs.paths import JobServer


@dataclass(frozen=True, slots=True)
class JobHost:
    """endpoints: the paths that items may have, each with the content types that it takes. lane: of
    the items. takes_objects: whether a body is always a JSON object.
    """

    keys: KeyRing
    endpoints: Mapping[str, frozenset[str]]
    lane: str
    takes_objects: bool


def open_jobs(config: ServerConfig, host: JobHost, log: Log) -> "JobServer | None":
    """None without a store. Raises SettingError if the store cannot be opened."""
    if not config.jobs.store:
        return None
    try:
        from headway.server.jobs.paths import JobServer
    except ModuleNotFoundError as missing:
        raise SettingError(
            f"jobs.store is set, and {missing.name} is not installed: pip install 'headway[jobs]'"
        ) from missing
    return JobServer(config.jobs, config.server, host, log)
