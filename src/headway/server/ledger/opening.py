"""Opens the ledger of a server, if its configuration names a store."""

from typing import TYPE_CHECKING

from headway.errors import SettingError
from headway.server.intake.service import Service
from headway.server.observe.logs import Log

if TYPE_CHECKING:
    from headway.server.ledger.ledger_service import LedgerService


def open_ledger(service: Service, log: Log) -> "LedgerService | None":
    """None without a store. Raises SettingError if the store cannot be opened."""
    if not service.config.ledger.url:
        return None
    try:
        from headway.server.ledger.ledger_service import LedgerService
    except ModuleNotFoundError as missing:
        raise SettingError(
            f"ledger.url is set, and {missing.name} is not installed: pip install 'headway[jobs]'"
        ) from missing
    return LedgerService(service, log)
