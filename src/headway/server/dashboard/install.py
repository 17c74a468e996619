"""Install the live page in an application (install_dashboard)."""

from headway.server import clock
from headway.server.dashboard.board import Board, VersionTeller, ViewTeller, dashboard_routes
from headway.server.dashboard.door import Door
from headway.server.dashboard.watched import Watched
from headway.server.http.application import DocumentedApp
from headway.server.http.body import BodyReader
from headway.server.intake.model import Model
from headway.server.intake.service import Service
from headway.server.ledger.books import Books


def install_dashboard(
    app: DocumentedApp,
    service: Service,
    books: Books,
    bodies: BodyReader,
    versions: VersionTeller,
    functions: ViewTeller,
) -> None:
    """Watch all models from now on, and add the page's routes. functions: tells their views."""
    entries = service.models.entries
    watched = [_watched(model, entry.name) for entry in entries for model in entry.models]
    board = Board(watched, books, versions, functions)
    app.include_router(dashboard_routes(board, Door(service.keys, bodies, clock.now)))


def _watched(model: Model, entry: str) -> Watched:
    config = model.config
    made = Watched(model.name, config.core_lanes, config.engine.slots, model.engine, clock.now)
    made.entry = entry
    model.watch(made)
    return made
