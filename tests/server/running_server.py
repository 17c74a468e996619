"""A server running on loopback: the real front, with the engine in a thread of this process."""

import asyncio
import functools
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from time import monotonic, sleep
from types import SimpleNamespace

import uvicorn.server

from headway.core.accounts.accounts import Accounts
from headway.core.batch import Event
from headway.core.cost.step_cost import StepCost
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.executor.fake import VOCABULARY, FakeExecutor
from headway.executor.traits import EVERYTHING
from headway.live.engine import LiveEngine
from headway.llm.llm import EMBEDDED
from headway.runs.shared_executor import SharedExecutor
from headway.server.app import job_host, make_app
from headway.server.config.config import ServerConfig
from headway.server.engine.handle import EngineState
from headway.server.intake.service import Service
from headway.server.intake.tokenizing import AsyncTokenizer
from headway.server.jobs.opening import open_jobs
from headway.server.ledger.opening import open_ledger
from headway.server.listening.http_server import HttpServer
from headway.server.observe.logs import logger
from headway.server.versions.opening import open_versions
from headway.text.tokenizer import Tokenizer
from tests.server.new_store import lay_out

BLOCK = 16
# Tokens that end an answer: the embedded model's, and one that is beyond the fake's vocabulary. The
# server draws a seed for each request, and with it the fake would say any token once in 97.
EOS, NEVER_SAID = frozenset({2}), frozenset({VOCABULARY})


async def sleep_less(seconds):
    await asyncio.sleep(seconds / 10)


# uvicorn looks ten times a second whether it is to end, and then waits for a tenth more: too long
# for tests that start hundreds of servers.
uvicorn.server.asyncio = SimpleNamespace(**vars(asyncio) | {"sleep": sleep_less})


def requests_sent(engine):
    """The requests that the engine is sent from now on: a list that grows."""
    sent, submit = [], engine.submit

    def heard_by(requests, *more):
        sent.extend(requests)
        submit(requests, *more)

    engine.submit = heard_by
    return sent


@functools.cache
def tokenizer():
    vocab = json.loads((EMBEDDED / "config.json").read_text())["vocab_size"]
    return Tokenizer(EMBEDDED, vocab)


def quiet():
    """A real log whose lines are kept nowhere."""
    return logger("debug", lambda values: None)


class Hop:
    """Passes events from the engine's thread to the loop's."""

    def __init__(self, local, caller):
        self.local, self.caller, self.told = local, caller, []

    def tell(self, news):
        self.told.append(news)

    def flush(self):
        told, self.told = self.told, []
        self.local.loop.call_soon_threadsafe(self.deliver, told)

    def deliver(self, told):
        self.local.events([news for news in told if isinstance(news, Event)])
        for news in told:
            self.caller.tell(news)
        self.caller.flush()


class Local:
    """server.engine.handle.EngineHandle over a LiveEngine."""

    def __init__(self, scheduler, executor):
        self.loop, self.traits = asyncio.get_running_loop(), executor.traits
        self.eos = NEVER_SAID if isinstance(executor, FakeExecutor) else EOS
        self.rows = lambda steps, requests: None
        self.events = lambda events: None
        self.staged = lambda stages: None
        self.accounts = scheduler.accounts = Accounts(scheduler.roster)
        self.state, self.down, self.journal = EngineState.READY, "", ""
        self.live = LiveEngine(scheduler, executor, rows=self._rows)
        self.cancel, self.stop = self.live.cancel, self.live.stop
        self.retune = self.live.retune

    @property
    def load(self):
        return self.live.load

    def submit(self, requests, caller, instead=()):
        self.live.submit(requests, Hop(self, caller))

    def _rows(self, steps, requests):
        stages = self.accounts.take()
        self.loop.call_soon_threadsafe(lambda: (self.staged(stages), self.rows(steps, requests)))


def scheduler(config, blocks=512, context=1_024, cost=StepCost()):
    policies = Policies(Continuous(config.engine.slots), step_tokens=2_048)
    settings = Settings(blocks, BLOCK, config.core_lanes, policies, context, cost=cost)
    return Scheduler(settings, b"0" * 16)


@functools.cache
def tiny():
    """An engine with the embedded model. In float32, so that batches change no answer."""
    from headway.executor.torch.load import load
    from headway.executor.torch.memory.memory_plan import Limits

    return load(EMBEDDED, Limits(32, 2_048, 0, BLOCK), "float32", "")


@functools.cache
def relay():
    """Lends its executor to one engine after another, and drops what the last one left open."""
    return SharedExecutor(tiny().executor)


def embedded(config):
    """The engine, which must be made on the loop."""
    plan = tiny().plan
    relay().hand_over()
    return Local(scheduler(config, plan.num_blocks, plan.context), relay())


def fake(config, blocks=512):
    return Local(scheduler(config, blocks), FakeExecutor(blocks, BLOCK))


def priced(config):
    """An engine that compares its steps with a cost model."""
    return Local(scheduler(config, cost=StepCost.of(1)), FakeExecutor(512, BLOCK))


def by_budgets(config, executor, cost, blocks=512, context=1_024):
    """An engine with the policies of the configuration."""
    settings = Settings(blocks, BLOCK, config.core_lanes, config.policies, context, cost=cost)
    return Local(Scheduler(settings, b"0" * 16), executor)


def hopeless(config):
    """An engine whose cost model predicts a minute for each step."""
    return by_budgets(config, FakeExecutor(512, BLOCK), StepCost.of(60 * 10**9))


class Permitted(FakeExecutor):
    """An executor whose steps wait for a permit."""

    def __init__(self):
        super().__init__(512, BLOCK)
        self.permits = threading.Semaphore(0)
        self.asked = 0  # steps that were to be computed

    def submit(self, batch):
        self.asked += 1
        assert self.permits.acquire(timeout=60)
        return super().submit(batch)

    def engine(self, config):
        return Local(scheduler(config), self)


def until(holds):
    """Wait for another thread's work; sleep between two looks so that it can run."""
    end = monotonic() + 60
    while not holds():
        assert monotonic() < end
        sleep(0.001)


def service_of(config, *engines):
    """A service that draws the same seeds in every run: some answers of a token have no text."""
    service = Service(config, *engines)
    for model, engine in zip(service.models, engines, strict=True):
        theirs = engine.traits
        traits = replace(EVERYTHING, poolings=theirs.poolings, width=theirs.width)
        model.ready(AsyncTokenizer(tokenizer(), EMBEDDED), engine.eos, traits)
        model._random = Random(1)
    return service


def app_of(service, jobs=None, ledger=None, versions=None):
    """The application; tests look at its state through the front."""
    app = make_app(service, jobs, ledger=ledger, versions=versions)
    service.bodies, service.metrics = app.state.bodies, app.state.metrics
    return app


@contextmanager
def serving(config=None, engine=embedded):
    """Run a server; gives its URL and its front, and ends it when the block is left.

    engine: makes an engine of each of config.engines, on the server's own loop.
    """
    config = config or ServerConfig()
    lay_out(config)
    began, kept = threading.Event(), {}

    async def serve():
        engines = [engine(each) for each in config.engines]
        service = kept["front"] = service_of(config, *engines)
        jobs = service.jobs = open_jobs(config, job_host(service), quiet())
        ledger = service.ledger = open_ledger(service, quiet(), list)
        versions = service.versions = open_versions(config, quiet())
        if versions:
            versions.attach(service)
            for model in service.models:
                await versions.enter(model)
                versions.begin(model)
        app = app_of(service, jobs, ledger, versions)
        server = kept["server"] = HttpServer(app, config.server, 1_024)
        service.http_server = server
        listening = socket.create_server(("127.0.0.1", 0))
        kept["url"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
        task = asyncio.create_task(server.serve([listening]))
        if ledger:
            ledger.start()
        if jobs:
            await jobs.start(app)
        began.set()
        await task
        if jobs:
            await jobs.close()
        if versions:
            await versions.close()
        for local in engines:
            await asyncio.to_thread(local.live.close)
        await asyncio.sleep(0)  # its last rows
        if ledger:
            await ledger.close()
        service.close()

    def run():
        try:
            asyncio.run(serve())
        finally:
            began.set()  # a server that cannot begin is not waited for

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert began.wait(120) and "server" in kept
        yield kept["url"], kept["front"]
    finally:
        if "server" in kept:
            kept["server"].should_exit = True
        thread.join(60)
        assert not thread.is_alive()
