"""FunctionBook: gathers what the ledger keeps of a function's calls, on the event loop's thread."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from headway.core.ledger import StepRow
from headway.core.load import Load
from headway.server import clock
from headway.server.config.sections.prices import PriceSettings
from headway.server.config.tenant import Tenant
from headway.server.engine.handle import EngineState
from headway.server.functions.ledger.item_accounts import ItemRow
from headway.server.functions.ledger.item_rows import FunctionCall, item_rows
from headway.server.intake.access_record import access_record
from headway.server.ledger.engine_book import EngineBook

_ids = Random()  # seeded by the system once: an id is no secret
UP = (EngineState.READY, EngineState.DRAINING)


class FunctionBook(EngineBook):
    """The book of one function. name: the function's. state: of its engine. most: as in
    EngineBook."""

    def __init__(
        self, name: str, state: Callable[[], EngineState], prices: PriceSettings, most: int
    ) -> None:
        super().__init__(prices, keeps=True, most=most)
        self._name, self._state = name, state
        self._calls: dict[str, FunctionCall] = {}
        self._computing = 0  # calls whose items the function has, or will have

    # -- its engine

    def ready(self) -> None:
        """Note that an engine is ready."""
        with self._lock:
            self._device.begin(self._now)

    def measured(self, steps: list[StepRow], load: Load) -> None:
        """Add what calls of the function took. May run in any thread, before `told` of their
        items."""
        with self._lock:
            self._device.rows(steps, (), load)

    # -- a call, in this order; but `told` may come at any time after `begin`

    def begin(self, headers: Mapping[str, str], tenant: Tenant) -> FunctionCall:
        """Begin a call, whose header has come and whose key is known."""
        id, record = f"func-{_ids.getrandbits(128):032x}", access_record()
        request_id = record.id or headers.get("x-request-id", "")
        call = FunctionCall(id, self._name, request_id, tenant, clock.now())
        self._calls[id], record.sent = call, partial(self.delivered, call)
        return call

    def asked(self, call: FunctionCall, lane: str) -> None:
        """Note that the function gets the call's items. `told` follows once."""
        call.asked, call.lane = True, lane
        self._computing += 1

    def told(self, call: FunctionCall, items: Sequence[ItemRow]) -> None:
        """Add what became of the call's items."""
        self._computing -= 1
        if call.told:  # the book was closed
            return
        with self._lock:
            self._device.rows((), [each.row for each in items if each.row], Load())
        call.items, call.told, call.is_empty = list(items), True, not items
        self._end(call)

    def lost(self, call: FunctionCall) -> None:
        """As `told`, where nothing will be known of the items any more."""
        self._computing -= 1
        call.told = call.is_lost = True
        self._end(call)

    def left(self, call: FunctionCall) -> None:
        """Note that the call's answer was made or given up."""
        call.left, call.told = clock.now(), call.told or not call.asked
        self._end(call)

    def delivered(self, call: FunctionCall) -> None:
        """Note that the answer's last byte was sent, or that the client has gone."""
        call.sent, call.code = clock.now(), access_record().code
        self._end(call)

    # -- inside

    @property
    def _is_idle(self) -> bool:
        return self._state() in UP and not self._computing

    def _end_all(self) -> None:
        for call in list(self._calls.values()):
            now = clock.now()
            call.left, call.sent, call.told = min(call.left, now), min(call.sent, now), True
            self._end(call)

    def _end(self, call: FunctionCall) -> None:
        """Make the rows of a call, one for each item, if all is known of it."""
        if not call.is_whole or call.id not in self._calls:  # else it ended when the book did
            return
        del self._calls[call.id]
        if call.is_empty and not call.code:  # an empty list, answered with one
            return
        rows = item_rows(call, self._prices, self._epoch)
        if any(item.row for item in call.items):
            self._recent.add(rows)
            self._keep(rows)
        else:
            self._remember_refused(rows)
