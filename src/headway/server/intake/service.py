"""From a request's bytes to a call in its lane: what all endpoints do before an answer begins.

authenticate    who asks                              an Arrival
begin           may the key ask for more              a Permit
(the body is read)
find            which model answers, is it up         Found
(the body is checked)                                 an ApiRequest
call            which lane, by when                   Routed
                tokenized beside the event loop       Tokenized
                one choice per prompt and n           Choices
                into the lane, or refused             a Call
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from uuid import uuid4

from headway.server import clock
from headway.server.answering.arrival import Arrival
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.answering.routed import Routed
from headway.server.config.config import ServerConfig
from headway.server.config.versioned import put_in_force
from headway.server.engine.handle import EngineHandle, EngineState, FunctionBackend
from headway.server.intake.access_record import access_record
from headway.server.intake.admission import draining
from headway.server.intake.client import Client
from headway.server.intake.keys import KeyRing
from headway.server.intake.limits.concurrency import Permit, permit
from headway.server.intake.limits.spend import SpendControl
from headway.server.intake.model import REPORTED, Model
from headway.server.intake.model_and_lane import Found, Models, lane_of
from headway.server.intake.replicas import Replicas
from headway.server.intake.routing.routes import Routes
from headway.server.intake.supersede import Supersession
from headway.server.intake.tokenizing import HeldText
from headway.server.protocol.deadlines import deadlines_of
from headway.server.protocol.expected import expected_tokens
from headway.server.protocol.labels import labels_of
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.request import ApiRequest

GENERATING = frozenset({"chat", "text_completion"})  # the operations that routes answer
NO_FUNCTIONS: dict[str, FunctionBackend] = {}


class Service:
    """All models, with the lanes, keys and limits that they share."""

    def __init__(
        self,
        config: ServerConfig,
        *engines: EngineHandle,
        functions: Mapping[str, FunctionBackend] = NO_FUNCTIONS,
    ) -> None:
        """engines: one for each of config.engines. functions: by name."""
        self.config = config
        self.lanes = {lane.name: lane for lane in config.core_lanes}
        self.keys = KeyRing(config.keys, config.lanes, config.default_lane)
        refuses = config.ledger.when_away == "refuse"
        self.spend = SpendControl(config.keys, config.prices, clock.day, refuses)
        self.held = HeldText()
        superseding, each = Supersession(), zip(config.engines, engines, strict=True)
        models = iter([Model(*one, self.keys, superseding, self.held, self.spend) for one in each])
        entries = [
            Replicas(entry.model.names, list(islice(models, entry.model.replicas)))
            for entry in config.entries
        ]
        named = {name: entry for entry in entries for name in entry.names}
        self.routes = Routes(config, named, superseding) if config.routes else None
        self.models = Models(entries, functions, self.routes.by_name if self.routes else {})
        self._closing = False  # no more requests are admitted; routes may still ask models
        # With several models: called with requests refused before their model was known.
        self.unrouted: list[Callable[[Refusal], object]] = []
        self.created = clock.unix()

    @property
    def model(self) -> Model:
        """The first model."""
        return self.models.first

    @property
    def open(self) -> int:
        """How many engine requests are being answered."""
        return sum([each.admission.open for each in self.models])

    def retune(self, config: ServerConfig) -> None:
        """Put another version of the only checkpoint in force, with the same lane names. All that a
        version does not hold stays: functions, routes, and keys, which may have been reloaded."""
        self.config = put_in_force(self.config, config)
        self.lanes = {lane.name: lane for lane in config.core_lanes}

    def close(self) -> None:
        """End the tokenizers' threads."""
        for each in self.models:
            each.close()

    # -- before the body is read

    def authenticate(self, headers: Mapping[str, str]) -> Arrival:
        """The request's arrival: its tenant, headers and time. Raises Problem."""
        return Arrival(self.keys.caller(headers), headers, clock.now())

    def begin(self, arrival: Arrival, operation: str) -> Permit:
        """Check that a model is ready and that the key may have one more request. The caller
        releases the permit when the request is over. Raises Problem."""
        with self.reporting(arrival, operation):
            self._check_open()
            return permit(self.keys, arrival.tenant)

    def _check_open(self) -> None:
        """Raises Problem unless some model takes requests."""
        self.check_closing()
        ready = any(each.engine.state is EngineState.READY for each in self.models)
        if ready and not self.models.is_one:
            return
        for each in self.models:
            _ = each.tokenizer  # raises

    @contextmanager
    def reporting(self, arrival: Arrival, operation: str) -> Iterator[None]:
        """Report a request that is refused in the block, while its model is not known yet."""
        try:
            yield
        except Problem as problem:
            refusal = Refusal(problem, operation, arrival)
            if self.models.is_one:
                self.model.report_refusal(refusal)
            elif problem.status in REPORTED:
                for told in self.unrouted:
                    told(refusal)
            raise

    async def drain_routes(self, seconds: float) -> float:
        """Admit no more requests, and wait up to so many seconds for routes to end. Routes may
        still ask their models. Returns the seconds left."""
        if not self.routes:
            return seconds
        self._closing = True
        return await self.routes.drain(seconds)

    def check_closing(self) -> None:
        """Raises Problem once the server admits no more requests."""
        if self._closing:
            raise draining()

    def charge(self, arrival: Arrival, tokens: int) -> None:
        """Charge the key for text that was tokenized or detokenized. It may go into debt."""
        self.keys.give_back(arrival.tenant, -tokens, clock.now())

    # -- once the body is read

    def find(self, arrival: Arrival, requested: str, operation: str) -> Found:
        """The model that answers. Raises Problem if there is none, or if it takes no requests."""
        found = self.models.find(requested, self.lanes, arrival)
        model = found.model
        if found.route:
            if operation not in GENERATING:
                paths = "/v1/chat/completions and /v1/completions"
                raise wrong(
                    f"{found.name!r} is a route: it answers {paths}", "model", "not_a_model"
                )
            return found  # its models are asked as they are
        if not self.models.is_one:
            access_record().model = model.name
        try:
            _ = model.tokenizer
        except Problem as problem:
            model.report_refusal(Refusal(problem, operation, arrival))
            raise
        return found

    async def call(
        self, arrival: Arrival, request: ApiRequest, found: Found, client: Client, size: int
    ) -> Call:
        """Put a request into its lane. size: bytes of the request's body. Raises Problem."""
        routed = self._route(arrival, request, found)
        return await (found.route or found.model).call(routed, client, size)

    def _route(self, arrival: Arrival, request: ApiRequest, found: Found) -> Routed:
        """The request with its lane, and when it must start and end. Raises Problem."""
        headers, read_at = arrival.headers, clock.now()
        header = headers.get("x-headway-lane", "")
        lane = lane_of(header, request.tier, found.lane, arrival.tenant, self.lanes)
        access_record().lane = lane
        request = self.spend.check(arrival.tenant, lane, request)
        lanes = self.lanes if found.route else found.model.lanes
        deadlines = deadlines_of(lanes[lane].budget, headers, arrival.at)
        kind = request.vectors.kind if request.vectors else "chatcmpl" if request.chat else "cmpl"
        id, expected = f"{kind}-{uuid4().hex}", expected_tokens(headers)
        named = found.name, lane, deadlines, expected, found.model.name
        return Routed(id, request, arrival, *named, labels_of(headers), read_at)

    def sent(self, call: Call, waited: int) -> None:
        """A call's stream has ended. waited: nanoseconds for which it waited for its client. Of a
        route's models, only the one that answered is told."""
        for model in self.models:
            if model.name == call.routed.served:
                model.sent(call.routed.lane, waited)

    def cancel(self, tenant: str, id: str) -> int:
        """Cancel as Admission.cancel does, in every model and route."""
        routed = self.routes.cancel(tenant, id) if self.routes else 0
        return routed + sum([each.admission.cancel(tenant, id) for each in self.models])
