"""Board: makes the page's views and their HTML. Also the routes of the page."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headway.server import clock
from headway.server.config.durations import SECOND
from headway.server.config.tenant import Tenant
from headway.server.dashboard.door import FOUND, Door, Visitor, page_response
from headway.server.dashboard.looking import Watchable, model_view, point_ends, slow_of
from headway.server.dashboard.page.document import PATH, document, fragment, sign_in
from headway.server.dashboard.page.html_table import Html
from headway.server.dashboard.view import ModelView, View
from headway.server.http.errors import error_response
from headway.server.ledger.books import Books
from headway.server.protocol.problem import Problem

FRESH = SECOND  # nanoseconds for which a view is reused: many viewers cost no more than one
# What /v1/versions answers this tenant; None: nothing.
VersionTeller = Callable[[Tenant], Awaitable[Mapping[str, Any] | None]]
# Views of what other processes serve, as this tenant may see it. The int: the engine clock's time.
ViewTeller = Callable[[Tenant, int], Awaitable[Sequence[ModelView]]]


async def no_versions(tenant: Tenant) -> None:
    """The VersionTeller of a server without versions."""


async def no_views(tenant: Tenant, now: int) -> Sequence[ModelView]:
    """The ViewTeller of a server that serves everything in its own process."""
    return ()


class Shown(NamedTuple):
    """A view, and its HTML."""

    view: View
    fragment: Html


class Board:
    """Makes views and their HTML: at most one per second and key, however many viewers look."""

    def __init__(
        self,
        watched: Sequence[Watchable],
        books: Books | None = None,
        versions: VersionTeller = no_versions,
        elsewhere: ViewTeller = no_views,
    ) -> None:
        """books: None if requests are not explained. elsewhere: tells functions' views."""
        self.watched, self._books = watched, books
        self._versions, self._elsewhere = versions, elsewhere
        # By key, and whether it signed in: when the view was begun, and the task that makes it.
        self._shown: dict[tuple[str, bool], tuple[int, asyncio.Task[Shown]]] = {}
        self._epoch = clock.epoch()

    async def shown(self, visitor: Visitor) -> Shown:
        """The view that this visitor may see, at most FRESH old when asked for."""
        now, known = clock.now(), (visitor.tenant.key, visitor.signed_in)
        began, task = self._shown.get(known, (0, None))
        if task is None or now - began >= FRESH:
            task = asyncio.create_task(self._show(visitor, now))
            self._shown[known] = now, task
        return await asyncio.shield(task)  # other viewers may wait for it, too

    async def _show(self, visitor: Visitor, now: int) -> Shown:
        """Copy the values on the event loop, and make their HTML in another thread, so that
        streams get their tokens meanwhile (benchmarks/dashboard.py)."""
        view = await self._look(visitor, now)
        return Shown(view, await asyncio.to_thread(fragment, view))

    async def _look(self, visitor: Visitor, now: int) -> View:
        tenant = visitor.tenant
        mine = [each for each in self.watched if tenant.may_use(each.entry)]
        latest = self._books.latest(tenant.name) if self._books else ()
        here = [model_view(each, tenant, now) for each in mine]
        budgets = {lane.name: lane.budget for model in here for lane in model.lanes}
        return View(
            self._epoch + now,
            self._epoch + point_ends(now),
            (*here, *await self._elsewhere(tenant, now)),
            *slow_of(latest, tenant, budgets),
            key=tenant.key,
            signed_in=visitor.signed_in,
            explains=self._books is not None,
            versions=await self._versions(tenant),
        )


def dashboard_routes(board: Board, door: Door) -> APIRouter:
    """The routes of the page, of its live fragment, and of signing in and out."""
    router = APIRouter(include_in_schema=False)

    @router.get(PATH)
    async def page(request: Request) -> Response:
        visitor = door.visitor(request)
        if visitor is None:
            return RedirectResponse(f"{PATH}/sign-in", FOUND)
        return page_response(document(*await board.shown(visitor)))

    @router.get(f"{PATH}/live")
    async def live(request: Request) -> Response:
        visitor = door.visitor(request)
        if visitor is None:
            return error_response(Problem(401, "sign in at /dashboard", code="invalid_api_key"))
        return page_response((await board.shown(visitor)).fragment)

    @router.get(f"{PATH}/sign-in")
    async def form(request: Request) -> Response:
        if door.visitor(request):
            return RedirectResponse(PATH, FOUND)
        return page_response(sign_in())

    @router.post(f"{PATH}/sign-in")
    async def signing_in(request: Request) -> Response:
        return await door.sign_in(request)

    @router.post(f"{PATH}/sign-out")
    async def signing_out(request: Request) -> Response:
        return door.sign_out(request)

    return router
