"""RemoteFunction: an entry of `models` that is a function, in one process after another."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from headway.core.lane import Budget, Lane
from headway.core.request import NEVER
from headway.server.config.config import ServerConfig
from headway.server.config.sections.models import ModelSettings
from headway.server.config.sections.prices import PriceSettings
from headway.server.dashboard.view import ModelView, nothing_of
from headway.server.engine.handle import EngineState
from headway.server.engine.restarts import Restarting
from headway.server.functions.client import FunctionClient
from headway.server.functions.ledger.function_book import FunctionBook
from headway.server.functions.ledger.item_rows import FunctionCall
from headway.server.functions.messages import About, Ask, FunctionOptions, Seen
from headway.server.intake.admission import not_open
from headway.server.observe.logs import Log


class RemoteFunction(Restarting[FunctionClient, About]):
    """A function in its own process, restarted as an engine is. A restart fails the requests that
    were waiting."""

    def __init__(self, settings: ModelSettings, config: ServerConfig, log: Log) -> None:
        self.name = settings.served_name
        self.lanes = {lane.name: lane_of_items(lane) for lane in config.core_lanes}
        self.budgets = {lane.name: lane.budget for lane in config.core_lanes}  # no version's
        lanes = tuple(self.lanes.values())
        self._options = FunctionOptions(settings.function, self.name, lanes)
        self._most_unsent = config.server.limits.bodies_bytes
        self.book: FunctionBook | None = None  # none: no ledger is kept
        most = settings.engine.over(config.engine).restart
        super().__init__(most, log, "function")
        self.about = About(self.name, "", False, 0)  # until it is known

    def keep(self, prices: PriceSettings, most: int) -> FunctionBook:
        """Keep a ledger; call it before the start. Returns the book that the function fills. most:
        rows that may wait."""
        self.book = FunctionBook(self.name, lambda: self.state, prices, most)
        self._options = replace(self._options, tells_rows=True)
        self._client, self.renewed = self._next(), self.book.ready
        return self.book

    async def start(self, progress: Callable[[str], object]) -> About:
        self.about = await super().start(progress)
        if self.book:
            self.book.ready()
        return self.about

    async def answer(self, ask: Ask, call: FunctionCall | None) -> bytes:
        """As FunctionClient.answer."""
        self.check_open()
        return await self._client.answer(ask, call)

    async def events(self, ask: Ask, call: FunctionCall | None) -> AsyncGenerator[bytes]:
        """As FunctionClient.events."""
        self.check_open()
        async for event in self._client.events(ask, call):
            yield event

    async def look(self) -> Seen | None:
        """The function's state now; None: it is not ready, or does not answer in time."""
        return await self._client.look() if self.state is EngineState.READY else None

    async def show(self, now: int) -> ModelView:
        """What the live page shows of the function, with all of its lanes. now: nanoseconds of the
        machine's monotonic clock. A function that is not ready, or does not answer in time, has no
        lanes."""
        view = await self._client.show(now) if self.state is EngineState.READY else None
        return view or nothing_of(self.name, self.state.value, self.down)

    def check_open(self) -> None:
        """Raise Problem unless the function takes requests."""
        if self.state is not EngineState.READY:
            raise not_open(self)

    def _next(self) -> FunctionClient:
        return FunctionClient(self._options, self._hear, self._most_unsent, self.book)


def lane_of_items(lane: Lane) -> Lane:
    """A server's lane as a function has it. An item's result counts as its first and its last
    token. Items have no tokens between, no slots and no KV blocks."""
    budget = lane.budget
    within = Budget(e2e=min(budget.ttft, budget.e2e), queue=budget.queue)
    bound = lane.max_waiting
    return Lane(lane.name, within, lane.priority, bound, max_waiting_tokens=NEVER)
