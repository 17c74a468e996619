"""Open the ledger of a server, if its configuration names a store."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.server.intake.limits.spend import SpendControl
from headway.server.intake.service import Service
from headway.server.ledger.books import model_books
from headway.server.ledger.engine_book import EngineBook
from headway.server.observe.logs import Log

if TYPE_CHECKING:
    from headway.server.ledger.ledger_service import LedgerService


def open_ledger(
    service: Service, log: Log, functions: Callable[[], Sequence[EngineBook]]
) -> "LedgerService | None":
    """Open the ledger; None: no store is set. functions: makes the books of functions, in addition
    to those of models. Raises SettingError if the store cannot be opened."""
    config = service.config
    if not config.ledger.url:
        return None
    books = [*model_books(service, keeps=True, most=config.ledger.rows), *functions()]
    return open_service(config, service.spend, books, log)


def open_service(
    config: ServerConfig, spend: SpendControl, books: Sequence[EngineBook], log: Log
) -> "LedgerService":
    """Open the ledger in the store that is set. Raises SettingError if it cannot be opened."""
    try:
        from headway.server.ledger.ledger_service import LedgerService
    except ModuleNotFoundError as missing:
        raise SettingError(
            f"ledger.url is set, and {missing.name} is not installed: pip install 'headway[jobs]'"
        ) from missing
    return LedgerService(config, spend, books, log)
