"""A model that is loaded before the others begins with its promoted version, and answers."""

import asyncio
from types import SimpleNamespace

from headway.executor.fake import FakeExecutor
from headway.executor.traits import EVERYTHING
from headway.llm.llm import EMBEDDED
from headway.server.backends import Backends
from headway.server.config.config import ServerConfig
from headway.server.intake.service import Service
from headway.server.versions.opening import open_versions
from headway.vectors.model_card import ModelCard
from tests.server.running_server import StepCost, by_budgets, quiet, tokenizer
from tests.server.versions.test_split import fast, post, served

CHANGE = {"config": {"engine": {"strategy": {"chunk": 64}}}, "reason": "shorter steps"}


class Loading:
    """A backend over a local engine, which is loaded once `go` is set."""

    def __init__(self, config):
        self._local = by_budgets(config, FakeExecutor(512, 16), StepCost())
        self.go, self.told = asyncio.Event(), []

    def __getattr__(self, name):
        return getattr(self._local, name)

    def give_memory(self, size, beside): ...

    def retune(self, retune):
        self.told.append(retune.version)

    async def start(self, say):
        await self.go.wait()
        return SimpleNamespace(
            tokenizer=tokenizer(),
            folder=EMBEDDED,
            work=None,
            load_ns=0,
            eos=frozenset(),
            traits=EVERYTHING,
            card=ModelCard(),
        )


def test_a_model_begins_with_its_promoted_version_while_another_is_loaded(tmp_path):
    engine = {"strategy": {"join": "continuous", "chunk": 256}, "slots": 4}
    models = [{"name": "small"}, {"name": "large", "replicas": 2}]
    config = ServerConfig(models=models, engine=engine, versions={"store": str(tmp_path / "v.db")})
    with served(config, fast) as (client, _, _):
        assert post(client, "", {**CHANGE, "model": "small"}).json()["number"] == 3
        assert post(client, "/3/promote").json()["state"] == "promoted"

    async def main():
        engines = [Loading(each) for each in config.engines]
        backends = Backends(config, quiet())
        backends.engines = engines
        service, versions = Service(config, *engines), open_versions(config, quiet())
        versions.attach(service)
        models = list(service.models)
        told = (lambda text: None), versions.enter, versions.begin
        starting = asyncio.create_task(backends.start(models, *told))
        try:
            for model, each, number in zip(models, engines, (3, 2, 2), strict=True):
                each.go.set()
                while not model.was_ready:
                    assert not starting.done()
                    await asyncio.sleep(0)
                assert each.told == [number], "it may answer from now on"
            await starting
        finally:
            starting.cancel()
            await versions.close()
            for each in engines:
                await asyncio.to_thread(each.live.close)
            await asyncio.sleep(0)  # their last rows
            service.close()
        assert [each.told for each in engines] == [[3], [2], [2]]

    asyncio.run(main())
