"""Open the jobs of a server, if its configuration names a store."""

from typing import TYPE_CHECKING

from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.server.jobs.host import JobHost
from headway.server.observe.logs import Log

if TYPE_CHECKING:
    from headway.server.jobs.paths import JobServer


def open_jobs(config: ServerConfig, host: JobHost, log: Log) -> "JobServer | None":
    """Open the jobs' service; None: no store is set. Raises SettingError if it cannot be opened."""
    if not config.jobs.store:
        return None
    try:
        from headway.server.jobs.paths import JobServer
    except ModuleNotFoundError as missing:
        raise SettingError(
            f"jobs.store is set, and {missing.name} is not installed: pip install 'headway[jobs]'"
        ) from missing
    return JobServer(config.jobs, config.server, host, log)
