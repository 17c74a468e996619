"""Flags and variables over what a file names: a strategy, and entries with an engine's settings."""

import json

import pytest

from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.server.config.sections.strategy import BY_BUDGETS
from headway.server.config.show import show_settings

PART, WHOLE = "HEADWAY_ENGINE__STRATEGY__FAIR", "HEADWAY_ENGINE__STRATEGY"
COST = "engine: {cost: cost.json, strategy: budgets}"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes a file; the machine's own variables are removed."""
    import os

    for name in [each for each in os.environ if each.upper().startswith("HEADWAY")]:
        monkeypatch.delenv(name)

    def written(text):
        path = tmp_path / "headway.yaml"
        path.write_text(text)
        return path

    return written


def origins_of(path):
    return json.loads(show_settings(path, True))["origins"]


def test_a_variable_changes_a_part_of_a_strategy_that_the_file_names(file, monkeypatch):
    monkeypatch.setenv(PART, "false")
    path = file(COST)
    made = ServerConfig.load(path).strategy
    assert made == BY_BUDGETS.model_copy(update={"fair": False})
    origins = origins_of(path)
    assert origins["engine.strategy.fair"] == PART
    assert origins["engine.strategy.order"] == "headway.yaml"
    assert origins["engine.strategy.join"] == "default"


def test_a_part_of_an_unknown_strategy_is_refused_with_the_strategys_source(file, monkeypatch):
    monkeypatch.setenv(PART, "false")
    with pytest.raises(SettingError, match=r"^headway.yaml: engine.strategy: there is no strategy"):
        ServerConfig.load(file("engine: {strategy: budget}"))


@pytest.mark.parametrize("names", [(PART, WHOLE), (WHOLE, PART)])
def test_a_variable_of_a_strategys_part_beside_one_of_its_name_is_refused(file, monkeypatch, names):
    for name in names:
        monkeypatch.setenv(name, "fair" if name == WHOLE else "false")
    with pytest.raises(SettingError) as caught:
        ServerConfig.load(file(""))
    assert str(caught.value) == f"{PART}: {WHOLE} is set too, and has no parts"


OWN = "models: [{name: a, engine: {executor: torch, slots: 4}}, {function: 'mine:f'}]"


@pytest.mark.parametrize(
    "flags, said",
    [
        ({"server": {"port": 99_999}}, "--port: server.port"),
        ({"server": {"drain_timeout": "5"}}, "--drain-timeout: server.drain_timeout"),
        ({"engine": {"executor": "vlm"}}, "--executor: engine.executor"),
        ({"ledger": {"url": 5}}, "--ledger: ledger.url"),
        ({"models": [{"path": 5}]}, "MODEL: models[0].path"),
        ({"keys": [5]}, "--keys: keys[0]"),
    ],
)
def test_an_invalid_value_of_an_option_is_refused_by_the_options_name(flags, said):
    with pytest.raises(SettingError) as caught:
        ServerConfig.load(None, flags)
    assert str(caught.value).startswith(said)


def test_a_flag_or_variable_that_every_entry_overrides_is_refused(file, monkeypatch):
    path = file(OWN)
    said = "{}: engine.{} changes nothing: every entry of models sets its own"
    with pytest.raises(SettingError) as caught:
        ServerConfig.load(path, {"engine": {"executor": "vllm"}})
    assert str(caught.value) == said.format("--executor", "executor")
    monkeypatch.setenv("HEADWAY_ENGINE__SLOTS", "8")
    with pytest.raises(SettingError) as caught:
        ServerConfig.load(path)
    assert str(caught.value) == said.format("HEADWAY_ENGINE__SLOTS", "slots")


def test_a_variable_that_one_entry_reads_or_that_all_agree_with_is_accepted(file, monkeypatch):
    monkeypatch.setenv("HEADWAY_ENGINE", '{"slots": 8, "restart": 1}')
    two = "models: [{name: a, engine: {slots: 4, restart: 2}}, {name: b}]"
    assert [each.engine.slots for each in ServerConfig.load(file(two)).entries] == [4, 8]
    monkeypatch.setenv("HEADWAY_ENGINE", '{"slots": 4, "restart": 1}')
    path = file(OWN.replace("slots: 4", "slots: 4, restart: 2"))
    assert ServerConfig.load(path).engine.restart == 1, "the function reads it"


def test_an_inherited_setting_has_the_origin_of_the_engines_section(file, monkeypatch):
    monkeypatch.setenv("HEADWAY_ENGINE__CONTEXT", "64")
    own = "models: [{name: a, engine: {slots: 4, strategy: {chunk: 8}}}]\n"
    origins = origins_of(file(own + "engine: {strategy: {fair: true}, threads: 1}"))
    assert origins["models[0].engine.slots"] == "headway.yaml"
    assert origins["models[0].engine.context"] == "HEADWAY_ENGINE__CONTEXT"
    assert origins["models[0].engine.threads"] == "headway.yaml"
    assert origins["models[0].engine.strategy.fair"] == "default", "its strategy is its own"
    assert origins["models[0].engine.journal"] == "default"
