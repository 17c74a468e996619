"""Model: a checkpoint and its lanes. It turns a request for it into a call in its engine."""

import asyncio
import random
from collections.abc import Callable

from headway.core.request import NEVER
from headway.errors import GrammarCheckError, PromptError
from headway.executor.traits import EVERYTHING, Traits
from headway.server import clock
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.answering.routed import Routed
from headway.server.answering.vector_call import VectorCall
from headway.server.config.config import ServerConfig
from headway.server.engine.device_work import DeviceWork
from headway.server.engine.handle import EngineHandle
from headway.server.intake.access_record import access_record
from headway.server.intake.admission import Admission, loading
from headway.server.intake.client import Client
from headway.server.intake.keys import KeyRing
from headway.server.intake.limits.spend import SpendControl
from headway.server.intake.prepare import ServedModel, Tokenized, choices_of, field_of, tokenize
from headway.server.intake.supersede import Supersession
from headway.server.intake.tokenizing import AsyncTokenizer, HeldText, check_size, most_bytes
from headway.server.intake.watcher import Watcher
from headway.server.protocol.deadlines import late
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.request import ApiRequest
from headway.server.protocol.retry_after import SOON, jittered
from headway.server.protocol.vectors.request import VectorModel
from headway.vectors.model_card import ModelCard

NO_CARD = ModelCard()
REPORTED = frozenset({408, 409, 429, 499, 503})  # refusals that are not the request's own fault


class Model:
    """One engine of an entry of `models`. It can be created before the checkpoint is loaded, and
    refuses requests until then.

    config: one of ServerConfig.engines. keys, supersession, held, spend: shared by all models.
    """

    def __init__(
        self,
        config: ServerConfig,
        engine: EngineHandle,
        keys: KeyRing,
        supersession: Supersession,
        held: HeldText,
        spend: SpendControl,
    ) -> None:
        self.config, self.engine = config, engine
        self.name = config.model.served_name
        self.lanes = {lane.name: lane for lane in config.core_lanes}  # of the version in force
        self.admission = Admission(engine, keys, clock.now, supersession, spend)
        self._held, self._spend = held, spend
        self._tokenizer: AsyncTokenizer | None = None
        self._eos: frozenset[int] = frozenset()
        self.vectors = VectorModel(EVERYTHING, NO_CARD)
        self._random = random.SystemRandom()
        # sent: called when a stream has ended, with its lane and the nanoseconds it waited for its
        # client. loaded: called with the engine's device work and its load time in nanoseconds.
        self.sent: Callable[[str, int], object] = lambda lane, waited: None
        self.loaded: Callable[[DeviceWork, int], object] = lambda work, load_ns: None

    @property
    def was_ready(self) -> bool:
        """Whether the model has been loaded once. Its engine may have gone down since."""
        return self._tokenizer is not None

    def ready(
        self,
        tokenizer: AsyncTokenizer,
        eos: frozenset[int],
        traits: Traits = EVERYTHING,
        card: ModelCard = NO_CARD,
    ) -> None:
        """Mark the model as loaded. eos: the tokens that end its answers. traits: the executor's.
        card: what the checkpoint says about its vectors."""
        self._tokenizer, self._eos = tokenizer, eos
        self.vectors = VectorModel(traits, card)
        self.engine_ready()

    def engine_ready(self) -> None:
        """Tell admission that an engine is ready: the first one, or the next after a fault."""
        self.admission.engine_ready()

    def engine_lost(self) -> None:
        """Tell admission that the engine has failed for good and is not restarted."""
        self.admission.engine_lost()

    def watch(self, watcher: Watcher) -> None:
        """Report calls, ledger rows and engine changes to this watcher from now on."""
        self.admission.watchers.append(watcher)
        self.admission.listeners.append(watcher.rows)
        if self._tokenizer:
            watcher.ready()

    def close(self) -> None:
        """End the tokenizer's thread."""
        if self._tokenizer:
            self._tokenizer.close()

    @property
    def tokenizer(self) -> AsyncTokenizer:
        """The model's tokenizer. Raises Problem while the engine takes no requests."""
        self.admission.check_open()
        if self._tokenizer is None:  # the engine is ready, its tokenizer is still being read here
            raise loading()
        return self._tokenizer

    @property
    def text_bytes(self) -> int:
        """The most bytes that one text may have."""
        return most_bytes(self.config.server.limits.text_bytes, self.engine.load.capacity)

    async def count(self, request: ApiRequest, size: int) -> int:
        """Tokens of the request's longest prompt. size: bytes of the request's body. The model
        must have been ready once. Raises Problem."""
        assert self._tokenizer
        with self._held.holding(size):
            for prompt in request.prompts:
                check_size(prompt, self.text_bytes, field_of(request))
            try:
                encoded = await self._tokenizer.encode(*request.prompts)
            except PromptError as error:
                raise wrong(str(error), field_of(request)) from error
        return max(map(len, encoded))

    def report_refusal(self, refusal: Refusal) -> None:
        """Tell the watchers of a request that never became a call, unless the request itself was
        at fault (REPORTED)."""
        if refusal.problem.status in REPORTED:
            self.admission.refuse_early(refusal)

    async def call(self, routed: Routed, client: Client, size: int) -> Call:
        """Put a request into its lane. size: bytes of the request's body. Raises Problem."""
        limits, request = self.config.server.limits, routed.request
        model = ServedModel(
            self.tokenizer,
            self._eos,
            self.engine.load.capacity,
            limits.logprobs,
            self.text_bytes,
            self.config.model.adapters,
            self._spend.most_tokens(routed.tenant, routed.lane),
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
        record = access_record()
        client.call = record.call = call
        record.calls += (call,)
        return call

    async def _prepare(
        self, routed: Routed, model: ServedModel, client: Client, size: int
    ) -> Tokenized:
        """Tokenize the request, within its deadlines and while its client stays connected.
        Raises Problem."""
        deadlines = routed.deadlines
        by = min(deadlines.start_by, deadlines.end_by)
        try:
            with (
                client.preparing(),
                self._held.holding(size),
                self.admission.reserving(routed, client),
            ):
                async with asyncio.timeout(None if by == NEVER else (by - clock.now()) / 1e9):
                    self._check_traits(routed.request)
                    await self._check_grammar(routed.request, model.tokenizer)
                    return await tokenize(routed.request, model)
        except TimeoutError:
            problem = late(deadlines, routed.arrival.at)
        except PromptError as error:
            raise wrong(str(error), field_of(routed.request)) from error
        except Problem as found:
            problem = found
        told = problem, routed.operation, routed.arrival, routed.lane, routed.count
        self.report_refusal(Refusal(*told, deadlines.own_start))
        raise problem

    def _check_traits(self, request: ApiRequest) -> None:
        """Raises Problem if the request asks for something the executor cannot do."""
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
