"""From a request's bytes to a call in its lane: what both endpoints do before an answer begins."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from headway.core.request import NEVER
from headway.errors import GrammarCheckError, PromptError
from headway.server import clock
from headway.server.answering.call import Call, Who
from headway.server.answering.refusal import Away
from headway.server.config.config import ServerConfig
from headway.server.config.tenant import Tenant
from headway.server.engine.handle import EngineSide
from headway.server.intake.access_record import access_record
from headway.server.intake.admission import Door, loading
from headway.server.intake.client import Client
from headway.server.intake.concurrency import Turn
from headway.server.intake.keys import Denied, KeyRing
from headway.server.intake.model_and_lane import lane_of, model_of
from headway.server.intake.prepare import Model, Place, Spelled, choices_of, spelled
from headway.server.intake.tokenizing import FITTING, Texts
from headway.server.intake.watcher import Watcher
from headway.server.protocol.deadlines import Terms, late, terms
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.request import Wish
from headway.server.protocol.retry_after import LEAST, SOON, jittered

UNANSWERED = frozenset({408, 409, 429, 499, 503})  # of those who have asked for nothing wrong


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and when: stamped at the door, before anything is read."""

    tenant: Tenant
    headers: Mapping[str, str]
    arrived: int  # nanoseconds


class Front:
    """One model behind its lanes. What must be known of it comes once it is loaded."""

    def __init__(self, config: ServerConfig, engine: EngineSide) -> None:
        self.config, self.engine = config, engine
        self.names = (config.model.served, *config.model.aliases)
        self.lanes = {lane.name: lane for lane in config.core_lanes}
        self.keys = KeyRing(config.keys, config.lanes, config.default_lane)
        self.door = Door(engine, self.keys, clock.now)
        self.created = clock.unix()
        self._texts: Texts | None = None
        self._eos: frozenset[int] = frozenset()
        self._random = random.SystemRandom()

    def ready(self, texts: Texts, eos: frozenset[int]) -> None:
        """The model is loaded."""
        self._texts, self._eos = texts, eos
        self.engine_ready()

    def engine_ready(self) -> None:
        """An engine can be asked: the first, or the next one after a fault."""
        for each in self.door.watchers:
            each.ready()

    def watch(self, watcher: Watcher) -> None:
        """Tell it of calls, of the ledger's rows and of engines, from now on."""
        self.door.watchers.append(watcher)
        self.door.listeners.append(watcher.rows)
        if self._texts:
            watcher.ready()

    def close(self) -> None:
        if self._texts:
            self._texts.close()

    @property
    def texts(self) -> Texts:
        """Raises Problem while there are none, or nothing is accepted."""
        self.door.check_open()
        if self._texts is None:  # the engine is ready, its tokenizer is still being read here
            raise loading()
        return self._texts

    @property
    def text_bytes(self) -> int:
        """That one text may have."""
        return max(self.config.server.limits.text_bytes, FITTING * self.engine.load.capacity)

    def begin(self, asker: Asker, operation: str) -> Turn:
        """Before anything of a request is read: whether there is a server for it, and whether its
        key may ask for more. Raises Problem."""
        with self.telling(asker, operation):
            _ = self.texts
            self._check_key(asker.tenant)
        return Turn(self.keys, asker.tenant)

    @contextmanager
    def telling(self, asker: Asker, operation: str) -> Iterator[None]:
        """Of who is turned away in it, before the lane is known."""
        try:
            yield
        except Problem as problem:
            if problem.status in UNANSWERED:
                away = Away(problem, operation, asker.tenant, asker.arrived, headers=asker.headers)
                self.door.turn_away(away)
            raise

    def _check_key(self, tenant: Tenant) -> None:
        if wait := self.keys.ask(tenant, clock.now()):
            said = "this key's limit per minute is reached"
            raise Problem(429, said, code="rate_limit_exceeded", retry=jittered(wait / 1e9))
        if not self.keys.begin(tenant):
            said = "this key has as many requests at once as it may"
            raise Problem(429, said, code="concurrency_limit_exceeded", retry=jittered(LEAST))

    def who(self, headers: Mapping[str, str]) -> Asker:
        """Raises Problem."""
        found = self.keys.authenticate(headers.get("authorization", ""))
        if isinstance(found, Denied):
            raise Problem(401, found.reason, code="invalid_api_key")
        access_record().key = found.key
        return Asker(found, headers, clock.now())

    def charge(self, asker: Asker, tokens: int) -> None:
        """What turning text into tokens, or back, has come to; more than there is, is owed."""
        self.keys.give_back(asker.tenant, -tokens, clock.now())

    async def call(self, asker: Asker, wish: Wish, client: Client, size: int) -> Call:
        """In its lane, where it waits to be answered. size: bytes of its body. Raises Problem."""
        texts, headers = self.texts, asker.headers
        model, alias = model_of(wish.model, self.names, self.lanes)
        header = headers.get("x-headway-lane", "")
        lane = lane_of(header, wish.tier, alias, asker.tenant, self.lanes)
        access_record().lane = lane
        held = terms(self.lanes[lane].budget, headers, asker.arrived)
        who = Who(
            asker.tenant,
            lane,
            held.budget,
            headers.get("x-request-id", ""),
            headers.get("x-headway-supersede", ""),
            self.config.prices,
            headers,
        )
        scores, capacity = self.config.server.limits.logprobs, self.engine.load.capacity
        about = Model(texts, self._eos, capacity, scores, self.text_bytes)
        said = await self._prepared(wish, who, held, about, client, asker.arrived, size)
        id = f"{'chatcmpl' if wish.chat else 'cmpl'}-{uuid4().hex}"
        place = Place(id, lane, asker.tenant.salt, asker.arrived, held)
        try:
            choices = choices_of(wish, said, place, about, self._random)
        except PromptError as error:
            raise wrong(str(error)) from error
        call = Call((id, clock.unix(), model), wish, who, choices, self.door)
        self.door.enter(call)
        client.call = access_record().call = call
        return call

    async def _prepared(
        self,
        wish: Wish,
        who: Who,
        held: Terms,
        about: Model,
        client: Client,
        arrived: int,
        size: int,
    ) -> Spelled:
        """What of it takes time, as long as somebody wants it."""
        count = len(wish.prompts) * wish.options.n
        by = min(held.start_by, held.end_by)
        try:
            with (
                client.preparing(),
                self.door.holding(size),
                self.door.coming(who, arrived, held.start_by, count, client),
            ):
                async with asyncio.timeout(None if by == NEVER else (by - clock.now()) / 1e9):
                    await self._check_grammar(wish, about.texts)
                    return await spelled(wish, about)
        except TimeoutError:
            problem = late(held, arrived)
        except PromptError as error:
            raise wrong(str(error)) from error
        except Problem as found:
            problem = found
        if problem.status in UNANSWERED:
            operation = "chat" if wish.chat else "text_completion"
            tenant, headers = who.tenant, who.headers
            away = Away(problem, operation, tenant, arrived, who.lane, count, headers)
            self.door.turn_away(away)
        raise problem

    async def _check_grammar(self, wish: Wish, texts: Texts) -> None:
        grammar, bound = wish.options.grammar, self.config.server.limits.grammar_compile
        try:
            said = await texts.problem(grammar, bound) if grammar else ""
        except GrammarCheckError as error:
            code = "grammar_not_tried"
            raise Problem(503, str(error), wish.shaped, code, jittered(SOON)) from error
        if said:
            raise wrong(f"'{wish.shaped}': {said}", wish.shaped, "invalid_grammar")
