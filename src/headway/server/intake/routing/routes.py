"""Routes: names that several models answer together, and the requests being answered."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from headway.errors import HeadwayError
from headway.routing.price import Price
from headway.routing.request import RouteRequest
from headway.routing.route import Route
from headway.server import clock
from headway.server.answering.call import SLOW, Call
from headway.server.answering.routed import Routed
from headway.server.config.config import ServerConfig
from headway.server.config.routes.settings import RouteSettings
from headway.server.config.sections.prices import HOUR
from headway.server.intake.access_record import access_record
from headway.server.intake.client import Client
from headway.server.intake.model import Model
from headway.server.intake.replicas import Replicas
from headway.server.intake.routing.accounts import Account, Accounts
from headway.server.intake.routing.asked import Asked
from headway.server.intake.routing.build import make_routes
from headway.server.intake.routing.decisions import Decisions
from headway.server.intake.routing.failures import problem_of
from headway.server.intake.routing.model_target import ModelTarget
from headway.server.intake.supersede import Supersession
from headway.server.protocol.problem import Problem, wrong

LEFT = frozenset({409, 499})  # statuses of calls that the client itself ended


class ServedRoute:
    """One entry of `routes`."""

    def __init__(self, name: str, settings: RouteSettings, route: Route, routes: "Routes") -> None:
        self.name, self.settings, self.route = name, settings, route
        self.models: Sequence[Model] = ()  # those that may answer, each once
        self.counts = False  # a rule, here or in a nested route, asks for the prompt's tokens
        self._routes = routes

    @property
    def capacity(self) -> int:
        """Tokens that the route's largest model can hold."""
        return max([each.engine.load.capacity for each in self.models])

    async def call(self, routed: Routed, client: Client, size: int) -> Call:
        """Answer the request. The call returned has ended; a stream's has begun. Raises Problem."""
        wanted = routed.request
        streams = wanted.stream and self.route.streams
        if not self.route.streams:
            check_judged(self.name, routed)
        held = ExitStack()
        held.enter_context(self._routes.answering(routed, client))
        try:
            with client.preparing():
                tokens = await self._tokens(routed, size) if self.counts else 0
                asked = Asked(routed, size, tokens)
                call = await self._answered(asked, streams, held)
        except BaseException:
            held.close()
            raise
        client.call = access_record().call = call
        access_record().model = call.routed.served
        if not streams:
            held.close()
            if wanted.stream:
                call.stream_whole()
        return call

    async def _answered(self, asked: Asked, streams: bool, held: ExitStack) -> Call:
        routed = asked.routed
        request = RouteRequest(
            asked,
            routed.request.options,
            routed.lane,
            routed.tenant.name,
            routed.request.metadata,
            deadline=routed.deadlines.end_by,
            due=routed.deadlines.due,
            id=routed.id,
        )
        try:
            if streams:
                pieces = self.route.stream(request)
                account = await anext(pieces)
                self._routes.finish(account, pieces, held)
                return account.call  # type: ignore[no-any-return]
            answer = await self.route.ask(request)
        except HeadwayError as error:
            raise problem_of(error, asked) from error
        call: Call = answer.value
        call.accepted = answer.accepted
        return call

    async def _tokens(self, routed: Routed, size: int) -> int:
        """Tokens of the longest prompt, counted by the first model that has been loaded."""
        for model in self.models:
            if model.was_ready:
                return await model.count(routed.request, size)
        return 0


def check_judged(name: str, routed: Routed) -> None:
    """Raises Problem if the request needs what a route that judges whole answers cannot do."""
    request = routed.request
    why = f"the route {name!r} judges whole answers, one for a request"
    if request.options.n > 1:
        raise wrong(f"'n': {why}", "n", "not_supported")
    if len(request.prompts) > 1:
        raise wrong(f"'prompt': {why}, so it takes one prompt", "prompt", "not_supported")
    if request.options.echo:
        raise wrong(f"'echo': {why}, without its prompt", "echo", "not_supported")


class Routes:
    """All entries of `routes`. models: the models' entries under all their names."""

    def __init__(
        self, config: ServerConfig, models: Mapping[str, Replicas], supersession: Supersession
    ) -> None:
        self.decisions = Decisions(list(config.routes))
        self._supersession = supersession
        self._open: dict[Client, Routed] = {}  # requests being answered or streamed
        self._idle = asyncio.Event()
        self._idle.set()
        self._finishing = set[asyncio.Task[None]]()
        accounts: dict[Model, Accounts] = {}  # one per engine, since engines restart separately
        an_hour = config.prices.per_hour
        price = Price(device_second=an_hour / HOUR * 1e9) if an_hour else Price()
        targets: dict[str, ModelTarget] = {}

        def model_target(name: str) -> ModelTarget:
            if name not in targets:
                replicas = models[name]
                for each in replicas.models:
                    if each not in accounts:
                        accounts[each] = Accounts()
                        each.watch(accounts[each])
                targets[name] = ModelTarget(replicas, name, accounts, price)
            return targets[name]

        made = make_routes(config.routes, model_target, self.decisions.take)
        self.by_name = {
            name: ServedRoute(name, config.routes[name], route, self)
            for name, route in made.items()
        }
        for each in self.by_name.values():
            each.models = tuple(dict.fromkeys(_models(each.route)))
            each.counts = any(config.routes[one].counts for one in _names(each.route))

    @property
    def open(self) -> int:
        """How many requests are being answered."""
        return len(self._open)

    @contextmanager
    def answering(self, routed: Routed, client: Client) -> Iterator[None]:
        """A context while a request is answered. Raises Problem if a later one superseded it."""
        with self._supersession.holding(routed, client):
            self._open[client] = routed
            self._idle.clear()
            try:
                yield
            finally:
                del self._open[client]
                if not self._open:
                    self._idle.set()

    def finish(self, account: Account, pieces: Any, held: ExitStack) -> None:
        """Once a begun stream is over, leave the contexts in `held` and finish its decision."""
        task = asyncio.get_running_loop().create_task(_finished(account, pieces, held))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    def cancel(self, tenant: str, id: str) -> int:
        """End the tenant's requests with this X-Request-Id. Returns how many."""
        mine = [
            client
            for client, routed in self._open.items()
            if routed.tenant.name == tenant and id == routed.request_id
        ]
        for each in mine:
            each.end(Problem(409, "the request was cancelled", code="cancelled", final=True))
        return len(mine)

    async def drain(self, seconds: float) -> float:
        """Wait until no request is being answered, for at most this many seconds. Returns the
        seconds left."""
        began = clock.now()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)
        return max(0.0, seconds - (clock.now() - began) / 1e9)


async def _finished(account: Account, pieces: Any, held: ExitStack) -> None:
    with held:
        await account.over.wait()
        problem = account.call.problem
        if problem and (problem.status in LEFT or problem.code == SLOW):
            await pieces.aclose()
            return
        with suppress(HeadwayError):  # the client has been told
            async for _ in pieces:
                pass


def _models(route: Route) -> Iterator[Model]:
    """The models that may answer, in the order of the targets."""
    for each in route.targets:
        if isinstance(each, ModelTarget):
            yield from each.replicas.models
        elif isinstance(each, Route):
            yield from _models(each)


def _names(route: Route) -> Iterator[str]:
    """The names of this route and of all nested routes."""
    yield route.name
    for each in route.targets:
        if isinstance(each, Route):
            yield from _names(each)
