"""The model field chooses a LoRA adapter, and each request tells the engine its adapter."""

import httpx2
import pytest

from headway.errors import SettingError
from headway.executor.fake import FakeExecutor
from headway.server.config.config import ServerConfig
from tests.server.running_server import Local, fake, scheduler, serving

MODELS = [{"name": "base", "adapters": {"sql": "/adapters/sql", "poems": "org/poems"}}]
CONFIG = ServerConfig(engine={"executor": "vllm"}, models=MODELS)


def ask(url, model):
    body = {"model": model, "prompt": "x", "max_tokens": 2, "ignore_eos": True}
    return httpx2.post(f"{url}/v1/completions", json=body, timeout=60)


def test_the_model_field_chooses_an_adapter():
    begun = []

    def engine(config):
        return Local(scheduler(config), FakeExecutor(512, 16, begins=begun.append))

    with serving(CONFIG, engine) as (url, _):
        listed = [each["id"] for each in httpx2.get(f"{url}/v1/models").json()["data"]]
        assert listed[:3] == ["base", "sql", "poems"] and "sql@standard" in listed
        answers = [ask(url, name) for name in ("base", "sql", "poems@standard", "")]
        assert [each.json()["model"] for each in answers] == ["base", "sql", "poems", "base"]
        missing = ask(url, "sq")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
        shown = httpx2.get(f"{url}/v1/config/effective").text
    assert [each.adapter for each in begun] == ["", "sql", "poems", ""]
    assert "org/poems" not in shown and "/adapters" not in shown


def test_our_executor_refuses_adapters_and_repeated_names_are_refused():
    with pytest.raises(ValueError, match=r"applies no LoRA adapters \(sql, poems\)"):
        ServerConfig(models=MODELS)
    twice = [{"name": "base", "adapters": {"base": "/adapters/sql"}}]
    with pytest.raises((ValueError, SettingError), match="aliases and adapters are not distinct"):
        ServerConfig(engine={"executor": "vllm"}, models=twice)


def test_effective_settings_without_adapters_do_not_mention_any():
    with serving(ServerConfig(), fake) as (url, _):
        assert "adapters" not in httpx2.get(f"{url}/v1/config/effective").text
