"""From a request's bytes to a call in its lane: what both endpoints do before an answer begins.

authenticate    who asks                              an Arrival
begin           may the key ask for more              a Permit
(the body is read and checked)                        an ApiRequest
call            which model, which lane, by when      Routed
                tokenized beside the event loop       Tokenized
                one choice per prompt and n           Choices
                into the lane, or refused             a Call
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

from headway.core.request import NEVER
from headway.errors import GrammarCheckError, PromptError
from headway.executor.traits import EVERYTHING, Traits
from headway.server import clock
from headway.server.answering.arrival import Arrival
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.answering.routed import Routed
from headway.server.answering.vector_call import VectorCall
from headway.server.config.config import ServerConfig
from headway.server.engine.handle import EngineHandle
from headway.server.intake.access_record import access_record
from headway.server.intake.admission import Admission, loading
from headway.server.intake.client import Client
from headway.server.intake.concurrency import Permit, permit
from headway.server.intake.keys import KeyRing
from headway.server.intake.model_and_lane import lane_of, model_of
from headway.server.intake.prepare import ServedModel, Tokenized, choices_of, tokenize
from headway.server.intake.tokenizing import AsyncTokenizer, most_bytes
from headway.server.intake.watcher import Watcher
from headway.server.protocol.deadlines import deadlines_of, late
from headway.server.protocol.expected import expected_tokens
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.request import ApiRequest
from headway.server.protocol.retry_after import SOON, jittered
from headway.server.protocol.vectors.request import VectorModel
from headway.vectors.model_card import ModelCard

NO_CARD = ModelCard()
REPORTED = frozenset({408, 409, 429, 499, 503})  # refusals that are not the request's own fault


class Service:
    """One model behind its lanes. It can be made before the model is loaded, and refuses until
    then."""

    def __init__(self, config: ServerConfig, engine: EngineHandle) -> None:
        self.config, self.engine = config, engine
        model = config.model
        self.names = (model.served_name, *model.aliases, *model.adapters)
        self.lanes = {lane.name: lane for lane in config.core_lanes}
        self.keys = KeyRing(config.keys, config.lanes, config.default_lane)
        self.admission = Admission(engine, self.keys, clock.now)
        self.created = clock.unix()
        self._tokenizer: AsyncTokenizer | None = None
        self._eos: frozenset[int] = frozenset()
        self.vectors = VectorModel(EVERYTHING, NO_CARD)
        self._random = random.SystemRandom()

    def ready(
        self,
        tokenizer: AsyncTokenizer,
        eos: frozenset[int],
        traits: Traits = EVERYTHING,
        card: ModelCard = NO_CARD,
    ) -> None:
        """The model is loaded. eos: the tokens that end its answers. traits: the executor's. card:
        what the checkpoint says of its vectors."""
        self._tokenizer, self._eos = tokenizer, eos
        self.vectors = VectorModel(traits, card)
        self.engine_ready()

    def engine_ready(self) -> None:
        """An engine is ready: the first one, or the next one after a fault."""
        for each in self.admission.watchers:
            each.ready()

    def watch(self, watcher: Watcher) -> None:
        """Tell it of calls, of the ledger's rows and of engines, from now on."""
        self.admission.watchers.append(watcher)
        self.admission.listeners.append(watcher.rows)
        if self._tokenizer:
            watcher.ready()

    def retune(self, config: ServerConfig) -> None:
        """Another version of the configuration is in force, with the same lanes by name."""
        self.config = config
        self.lanes = {lane.name: lane for lane in config.core_lanes}

    def close(self) -> None:
        """End the tokenizer's thread."""
        if self._tokenizer:
            self._tokenizer.close()

    @property
    def tokenizer(self) -> AsyncTokenizer:
        """Raises Problem while the model is loading, or when nothing is accepted."""
        self.admission.check_open()
        if self._tokenizer is None:  # the engine is ready, its tokenizer is still being read here
            raise loading()
        return self._tokenizer

    @property
    def text_bytes(self) -> int:
        """The most bytes that one text may have."""
        return most_bytes(self.config.server.limits.text_bytes, self.engine.load.capacity)

    # -- before the body is read

    def authenticate(self, headers: Mapping[str, str]) -> Arrival:
        """Who asks, stamped with the time. Raises Problem."""
        return Arrival(self.keys.caller(headers), headers, clock.now())

    def begin(self, arrival: Arrival, operation: str) -> Permit:
        """Check that the server is open and that the key may have one more request. Raises
        Problem. The permit is released when the request is over."""
        with self.reporting(arrival, operation):
            _ = self.tokenizer
            return permit(self.keys, arrival.tenant)

    @contextmanager
    def reporting(self, arrival: Arrival, operation: str) -> Iterator[None]:
        """While the lane is not known: report a request that is refused in the block."""
        try:
            yield
        except Problem as problem:
            self._report_refusal(Refusal(problem, operation, arrival))
            raise

    def _report_refusal(self, refusal: Refusal) -> None:
        if refusal.problem.status in REPORTED:
            self.admission.refuse_early(refusal)

    def charge(self, arrival: Arrival, tokens: int) -> None:
        """Charge the key for text that was tokenized or detokenized. It may go into debt."""
        self.keys.give_back(arrival.tenant, -tokens, clock.now())

    # -- once it is read

    async def call(self, arrival: Arrival, request: ApiRequest, client: Client, size: int) -> Call:
        """Put a request into its lane. size: bytes of its body. Raises Problem."""
        limits, tokenizer = self.config.server.limits, self.tokenizer
        routed = self._route(arrival, request)
        capacity = self.engine.load.capacity
        model = ServedModel(
            tokenizer,
            self._eos,
            capacity,
            limits.logprobs,
            self.text_bytes,
            self.config.model.adapters,
        )
        tokenized = await self._prepare(routed, model, client, size)
        try:
            choices = choices_of(routed, tokenized, model, self._random)
        except PromptError as error:
            raise wrong(str(error)) from error
        made = clock.unix(), choices, self.config.prices, self.admission
        form = request.vectors
        call = VectorCall(routed, form, *made, self.vectors.card) if form else Call(routed, *made)
        call.version = self.engine.load.version
        self.admission.enter(call)
        client.call = access_record().call = call
        return call

    def _route(self, arrival: Arrival, request: ApiRequest) -> Routed:
        """Which model and lane it means, and by when it must start and end. Raises Problem."""
        headers = arrival.headers
        model, alias = model_of(request.model, self.names, self.lanes)
        header = headers.get("x-headway-lane", "")
        lane = lane_of(header, request.tier, alias, arrival.tenant, self.lanes)
        access_record().lane = lane
        deadlines = deadlines_of(self.lanes[lane].budget, headers, arrival.at)
        kind = request.vectors.kind if request.vectors else "chatcmpl" if request.chat else "cmpl"
        id, expected = f"{kind}-{uuid4().hex}", expected_tokens(headers)
        return Routed(id, request, arrival, model, lane, deadlines, expected)

    async def _prepare(
        self, routed: Routed, model: ServedModel, client: Client, size: int
    ) -> Tokenized:
        """Tokenize it, within its deadlines and as long as its client is there. Raises Problem."""
        deadlines = routed.deadlines
        by = min(deadlines.start_by, deadlines.end_by)
        try:
            with (
                client.preparing(),
                self.admission.holding(size),
                self.admission.reserving(routed, client),
            ):
                async with asyncio.timeout(None if by == NEVER else (by - clock.now()) / 1e9):
                    self._check_traits(routed.request)
                    await self._check_grammar(routed.request, model.tokenizer)
                    return await tokenize(routed.request, model)
        except TimeoutError:
            problem = late(deadlines, routed.arrival.at)
        except PromptError as error:
            raise wrong(str(error)) from error
        except Problem as found:
            problem = found
        self._report_refusal(
            Refusal(problem, routed.operation, routed.arrival, routed.lane, routed.count)
        )
        raise problem

    def _check_traits(self, request: ApiRequest) -> None:
        """Raises Problem for what the executor cannot do."""
        if request.vectors:
            return  # its pooling was checked when it was read
        options = request.options
        scores = options.logprobs, options.prompt_logprobs
        wanted = *scores, options.grammar, options.temperature
        if refusal := self.vectors.traits.refusal(*wanted):
            raise wrong(refusal, code="not_supported")

    async def _check_grammar(self, request: ApiRequest, tokenizer: AsyncTokenizer) -> None:
        grammar, bound = request.options.grammar, self.config.server.limits.grammar_compile
        try:
            problem = await tokenizer.check_grammar(grammar, bound) if grammar else ""
        except GrammarCheckError as error:
            code = "grammar_not_tried"
            raise Problem(503, str(error), request.shaped, code, jittered(SOON)) from error
        if problem:
            raise wrong(f"'{request.shaped}': {problem}", request.shaped, "invalid_grammar")
