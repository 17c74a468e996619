"""FunctionService: a function in the server's own process, and who may call it."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER
from headway.errors import EngineDownError, SettingError
from headway.server.answering.call import down
from headway.server.config.config import ServerConfig
from headway.server.config.durations import SECOND
from headway.server.config.sections.keys import KeySettings
from headway.server.config.sections.prices import PriceSettings
from headway.server.config.tenant import Tenant
from headway.server.engine.handle import EngineState
from headway.server.functions.calls import FunctionCalls
from headway.server.functions.ledger.admission import Admission
from headway.server.functions.ledger.function_book import FunctionBook
from headway.server.functions.ledger.item_accounts import ItemAccounts, Staged
from headway.server.functions.ledger.item_rows import FunctionCall
from headway.server.functions.messages import Ask, Wishes
from headway.server.functions.target import Target
from headway.server.intake.access_record import access_record
from headway.server.intake.keys import KeyRing
from headway.server.intake.limits.spend import NO_CAPS
from headway.server.intake.model_and_lane import lane_of
from headway.server.protocol.deadlines import result_time
from headway.server.protocol.problem import Problem
from headway.server.protocol.retry_after import SOON, jittered

LANE = "x-headway-lane"
NOT_OURS = ("lanes", "models", "default_lane", "tokens_per_minute", "weight")


class FunctionService(FunctionCalls):
    """A function in the server's own process. Its lanes are those of its decorator."""

    def __init__(
        self,
        target: Target,
        keys: Sequence[KeySettings] = (),
        prices: PriceSettings | None = None,
        most: int = 0,
    ) -> None:
        """prices: None if no ledger is kept. most: rows of the ledger that may wait. Raises
        SettingError for settings that do not go together."""
        self._staged = Staged() if prices else None
        super().__init__(target, self._staged)
        self.book: FunctionBook | None = None  # none: no ledger is kept
        if prices:
            self.book = FunctionBook(target.name, lambda: self.state, prices, most)
            self.book.ready()
            self.metrics.listeners.append(self._measure)
        lanes = list(self.batcher.settings.lanes)
        self.keys = KeyRing(checked_keys(keys), lanes, lanes[0])
        self.open = 0  # requests that are being answered
        self.draining = False

    def use_keys(self, config: ServerConfig) -> None:
        """Use the configuration's keys from now on. Raises SettingError if a function cannot have
        them, and then changes nothing."""
        lanes = list(self.batcher.settings.lanes)
        self.keys.replace(checked_keys(config.keys), lanes, lanes[0])

    @property
    def state(self) -> EngineState:
        state = super().state
        return EngineState.DRAINING if self.draining and state is EngineState.READY else state

    def admit(self, headers: Mapping[str, str]) -> Admission:
        """Admit one more request of the caller who sends these headers. Raises Problem."""
        tenant = self.keys.caller(headers)
        return Admission(self.keys, tenant, headers, self.book, self.check_open)

    def check_open(self) -> None:
        """Raise Problem once the server drains, or if the batcher's engine is down."""
        if self.draining:
            message = "the server is shutting down and takes no more"
            raise Problem(503, message, code="draining", retry=jittered(SOON))
        if why := self.batcher.down:
            raise down(EngineDownError(why))

    def wishes(self, headers: Mapping[str, str], tenant: Tenant) -> Wishes:
        """The lane and the deadline of items with these headers. Raises Problem."""
        lanes = self.batcher.settings.lanes
        lane = access_record().lane = lane_of(headers.get(LANE, ""), "", "", tenant, lanes)
        limit = result_time(headers, self.about.streams)
        return Wishes(lane, 0 if limit == NEVER else limit / SECOND)

    async def answer(self, ask: Ask, call: FunctionCall | None) -> bytes:
        """As FunctionCalls.result. call: None if no ledger is kept."""
        with self._accounts(ask, call) as accounts:
            return await self.result(ask, accounts)

    async def events(self, ask: Ask, call: FunctionCall | None) -> AsyncGenerator[bytes]:
        """As FunctionCalls.pieces. call: as in `answer`."""
        with self._accounts(ask, call) as accounts:
            async for event in self.pieces(ask, accounts):
                yield event

    @contextmanager
    def _accounts(self, ask: Ask, call: FunctionCall | None) -> Iterator[ItemAccounts | None]:
        if not (call and self.book and self._staged):
            yield None
            return
        self.book.asked(call, ask.wishes.lane)
        accounts = ItemAccounts(self._staged, partial(self.book.told, call))
        try:
            yield accounts
        finally:
            accounts.close()

    def _measure(self, steps: list[StepRow], items: list[RequestRow]) -> None:
        if self.book and (steps or items):
            self.book.measured(steps, self.batcher.load)


def made_service(target: Target, config: ServerConfig) -> FunctionService:
    """The service of a function, with the configuration's keys and prices. Raises SettingError."""
    prices = config.prices if config.ledger.url else None
    return FunctionService(target, config.keys, prices, config.ledger.rows)


def checked_keys(keys: Sequence[KeySettings]) -> Sequence[KeySettings]:
    """The keys. Raises SettingError for a setting that a function's key cannot have."""
    for key in keys:
        for name in NOT_OURS:
            if name in key.model_fields_set:
                raise SettingError(f"keys: {key.name}: a function's keys have no {name}")
        if key.caps != NO_CAPS:
            raise SettingError(f"keys: {key.name}: a function has no tokens, and its keys no caps")
    return keys
