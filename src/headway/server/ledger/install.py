"""Install the ledger in an application (install_ledger)."""

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from headway.server.http.application import DocumentedApp
from headway.server.http.body import BodyReader
from headway.server.http.openapi import REF
from headway.server.intake.keys import KeyRing
from headway.server.intake.service import Service
from headway.server.ledger.books import Books, model_books
from headway.server.ledger.metrics import LedgerMetrics
from headway.server.ledger.routes import OutcomeBody, Sent, outcome_routes, request_routes

if TYPE_CHECKING:
    from headway.server.ledger.ledger_service import LedgerService


def install_ledger(
    app: DocumentedApp, service: Service, bodies: BodyReader, kept: "LedgerService | None"
) -> Books:
    """Add the paths, and the middleware that notices an answer's last byte. Returns the books.

    kept: the stored ledger. None: there is none, and only calls in memory can be explained.
    """
    if kept is None:
        books = Books(model_books(service, keeps=False, most=0))
        _add_paths(app, service.keys, books, None)
        return books
    most = service.config.server.limits.body_bytes
    install_kept(app, service.keys, bodies, most, kept)
    return kept.books


def install_kept(
    app: DocumentedApp, keys: KeyRing, bodies: BodyReader, most: int, kept: "LedgerService"
) -> None:
    """Install a stored ledger. most: bytes of a body."""
    books = kept.books
    _add_paths(app, keys, books, kept)
    app.include_router(outcome_routes(keys, bodies, most, kept))
    app.state.registry.register(LedgerMetrics(books, kept.writers))
    others = app.models

    def models() -> dict[str, Any]:
        _, mine = models_json_schema([(OutcomeBody, "validation")], ref_template=REF)
        return {**others(), **mine["$defs"]}

    app.models = models


def _add_paths(
    app: DocumentedApp, keys: KeyRing, books: Books, kept: "LedgerService | None"
) -> None:
    app.include_router(request_routes(keys, books, kept))
    app.add_middleware(Sent, books=books)
