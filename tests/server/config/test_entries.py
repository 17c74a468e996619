"""Entries under `models`: what each takes from the engine's section, and what is refused."""

import json

import pytest
import yaml
from rich.console import Console

from headway.commands.check_together import run_check_together
from headway.core.policies.chunk import Fixed
from headway.errors import CheckpointError, MemoryPlanError, SettingError
from headway.server.config import validate
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.config.sections.lanes import LaneSettings
from headway.server.config.show import file_schema, show_settings, validate_file
from headway.server.config.versioned import bases, versioned, with_version

HASH = digest("a key").hex()


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise AssertionError('validate imports no function')\n")

    def written(config):
        path = tmp_path / "headway.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    return written


def test_an_entry_inherits_the_engines_section_beside_its_own_settings(file):
    strategy = {"chunk": 64}
    config = ServerConfig.load(
        file(
            {
                "models": [
                    {"name": "a"},
                    {"name": "b", "engine": {"slots": 3, "strategy": strategy}},
                    {"function": "mine:f"},
                ],
                "engine": {"slots": 9, "context": 64},
            }
        )
    )
    first, second = config.entries
    assert [each.engine.slots for each in (config, first, second)] == [9, 9, 3]
    assert second.engine.context == 64, "what it leaves out is the section's"
    assert second.policies.chunk == Fixed(64) and second.policies.step_tokens == 67
    assert (first.model.name, second.model.name) == ("a", "b")
    assert [each.served_name for each in config.functions] == ["f"]
    again = ServerConfig(**config.effective())
    assert [each.engine for each in again.entries] == [
        ServerConfig(**each.effective()).engine for each in config.entries
    ]


def test_a_lanes_most_slots_may_exceed_those_of_some_engines_but_not_of_all(file):
    entries = [{"name": "a"}, {"name": "b", "engine": {"slots": 3}}]

    def load(most):
        lanes = {"x": {"slots": {"most": most}}}
        return ServerConfig.load(file({"models": entries, "engine": {"slots": 9}, "lanes": lanes}))

    assert load(9).lanes["x"].slots.most == 9
    with pytest.raises(SettingError, match=r"lanes\.x\.slots\.most: 10 is more than all slots"):
        load(10)


def test_journal_bytes_is_refused_for_an_engine_without_a_journal(file):
    def load(first, **section):
        entries = [{"name": "a", "engine": first}, {"name": "b"}]
        return ServerConfig.load(file({"models": entries, "engine": section}))

    assert load({"journal": "a.jsonl"}, journal_bytes=5).entries[0].engine.journal_bytes == 5
    assert load({"journal_bytes": 5}, journal="a.jsonl").entries[0].engine.journal_bytes == 5
    with pytest.raises(SettingError, match=r": engine\.journal_bytes is of no use without engine"):
        load({"slots": 3}, journal_bytes=5)
    with pytest.raises(SettingError, match=r"models\[0\]\.engine\.journal_bytes is of no use"):
        load({"journal_bytes": 5})


def test_a_single_checkpoint_is_shown_without_engine_memory_and_function():
    shown = ServerConfig().effective()["models"][0]
    assert {"engine", "memory", "function"}.isdisjoint(shown)


@pytest.mark.parametrize(
    "config, message",
    [
        (
            {"models": [{"name": "a"}, {"name": "b", "engine": {"slots": 0}}]},
            "headway.yaml: models[1].engine.slots should be greater than or equal to 1, not 0",
        ),
        (
            {"models": [{"engine": {"slotss": 1}}]},
            "headway.yaml: models[0].engine.slotss is not known; did you mean slots?",
        ),
        (
            {"models": [{"name": "a"}, {"name": "b", "engine": {"step_tokens": 2}}]},
            "headway.yaml: models[1].engine: step_tokens 2 is less than slots 32",
        ),
        (
            {"models": [{"name": "a"}, {"name": "b", "engine": {"strategy": "budgets"}}]},
            "headway.yaml: models[1].engine.strategy: it predicts the times of steps",
        ),
        (
            {"models": [{"name": "a"}, {"name": "b"}], "engine": {"strategy": "budgets"}},
            "headway.yaml: engine.strategy: it predicts the times of steps",
        ),
        (
            {"models": [{"name": "a"}, {"name": "b", "engine": {"executor": "vllm"}}]}
            | {"engine": {"threads": 2}},
            "headway.yaml: models[1].engine: threads are vLLM's own",
        ),
        (
            {"models": [{"name": "a", "adapters": {"tuned": "x"}}]},
            "headway.yaml: models[0].adapters: ",
        ),
        (
            {"models": [{"name": "a", "aliases": ["b"]}, {"name": "b"}]},
            "headway.yaml: models[1]: 'b' is a name of models[0], too",
        ),
        (
            {"models": [{"name": "f"}, {"function": "mine:f"}]},
            "headway.yaml: models[1]: 'f' is a name of models[0], too",
        ),
        ({"models": []}, "headway.yaml: models: at least one is needed"),
        (
            {"models": [{"name": "a", "memory": 0.7}, {"name": "b", "memory": 0.4}]},
            "headway.yaml: models: the shares of memory come to 1.1, which is more than all of it",
        ),
        (
            {"models": [{"memory": "4GB"}]},
            "headway.yaml: models[0].memory is a share of the free memory, above 0 and at most 1, "
            "or an amount such as 4GiB, in MiB, GiB, TiB; not '4GB'",
        ),
        ({"models": [{"memory": 4}]}, "headway.yaml: models[0].memory is a share"),
        ({"models": [{"memory": True}]}, "headway.yaml: models[0].memory is a share"),
        (
            {"models": [{"function": "mine"}]},
            "headway.yaml: models[0].function is module:name, not 'mine'",
        ),
        (
            {"models": [{"function": "mine:f", "dtype": "float32"}]},
            "headway.yaml: models[0].dtype is for checkpoints, not for a function",
        ),
        (
            {"models": [{"function": "mine:f", "engine": {"slots": 2}}]},
            "headway.yaml: models[0].engine.slots is for checkpoints, not for a function",
        ),
        (
            {"models": [{"function": "mine:f", "name": "a/b"}]},
            "headway.yaml: models[0].name: 'a/b' cannot be a part of a path",
        ),
        (
            {"models": [{"name": "a"}], "keys": [{"name": "k", "sha256": HASH, "models": ["b"]}]},
            "headway.yaml: keys[0].models: there is no model 'b'; there are a",
        ),
        (
            {"models": [{"function": "mine:f"}], "lanes": {"a": {"slots": {"most": 2}}}},
            "headway.yaml: lanes.a.slots: it is for join continuous, not a function",
        ),
        (
            {"models": [{"name": "a"}, {"name": "b", "engine": {"strategy": "first-come"}}]}
            | {"engine": {"strategy": "first-come"}, "lanes": {"a": {"priority": 3}}},
            "headway.yaml: lanes.a.priority: the order is first-come, which no priority changes",
        ),
    ],
)
def test_an_invalid_entry_is_refused_with_its_place_in_the_file(file, config, message):
    with pytest.raises(SettingError) as error:
        ServerConfig.load(file(config))
    assert message in str(error.value)


def test_a_lanes_setting_that_one_of_the_engines_reads_is_accepted(file):
    dynamic = {"strategy": {"join": "dynamic"}}
    models = [{"name": "a"}, {"name": "b", "engine": dynamic}]
    config = ServerConfig.load(file({"models": models, "lanes": {"a": {"window": "5ms"}}}))
    assert config.effective()["lanes"]["a"]["window"] == "5ms"
    own = [
        {"name": "a"},
        {"name": "b", "engine": {"strategy": {"join": "dynamic", "window": "20ms"}}},
    ]
    config = ServerConfig.load(file({"models": own, "lanes": {"a": {}}}))
    assert config.effective()["lanes"]["a"]["window"] == "20ms", "of the engine that has windows"


def test_validate_names_the_entry_that_is_wrong(file):
    two = [{"name": "a"}, {"name": "b", "path": "./nowhere"}]
    with pytest.raises(CheckpointError, match=r"^b: the model ./nowhere is not a folder"):
        validate_file(file({"models": two}))
    with pytest.raises(SettingError, match=r"^f: there is no module absent"):
        validate_file(file({"models": [{"name": "a"}, {"function": "absent:f"}]}))
    said = validate_file(file({"models": [{"name": "a"}, {"function": "mine:f"}]}))
    assert said.splitlines()[:2] == [
        "headway.yaml is sound: models a, f, lanes interactive, standard, offline, 0 keys",
        "mine:f is imported only when the server starts",
    ]


def test_validate_finds_functions_and_imports_no_package(file, tmp_path):
    for name in ("outer", "outer/inner", "spread/deep"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("outer/__init__", "outer/inner/__init__", "outer/inner/own", "spread/deep/own"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('validate imports nothing')\n")
    for module in ("outer", "outer.inner", "outer.inner.own", "spread.deep.own", "os.path"):
        assert "is sound" in validate_file(file({"models": [{"function": f"{module}:f"}]}))
    for module in ("outer.other", "outer.inner.own.more", "spread.more", "mine.more", "__main__"):
        with pytest.raises(SettingError, match=f"there is no module {module}$"):
            validate_file(file({"models": [{"function": f"{module}:f"}]}))


def test_validate_plans_the_memory_of_the_strategys_largest_step(file, monkeypatch):
    monkeypatch.setattr(validate, "free_on_host", lambda: 4 << 30)
    engine = {"slots": 1_024, "context": 2_048}
    assert "is sound" in validate_file(file({"engine": engine}))
    with pytest.raises(MemoryPlanError, match=r"^engine.slots 1024: .* or split prompts"):
        validate_file(file({"engine": {**engine, "strategy": "dynamic-lanes"}}))


def test_validate_refuses_an_invalid_device_and_too_many_threads(file):
    for sound in ("cpu", "cuda:1"):
        assert "is sound" in validate_file(file({"models": [{"device": sound}]}))
    with pytest.raises(SettingError, match="a device is cpu, cuda or cuda:N, not 'cudaa'"):
        validate_file(file({"models": [{"device": "cudaa"}]}))
    with pytest.raises(SettingError, match="quantize int8 is for a CPU, not for cuda"):
        validate_file(file({"models": [{"device": "cuda:1", "quantize": "int8"}]}))
    with pytest.raises(SettingError, match=r"engine.threads should be less than or equal to 1024"):
        validate_file(file({"engine": {"threads": 100_000}}))


def test_models_that_do_not_fit_in_memory_together_are_refused_by_name(file, capsys):
    two = [{"name": "a", "memory": "2MiB"}, {"name": "b"}]
    with pytest.raises(MemoryPlanError, match=r"^a: memory 2.0 MiB is less than the .* it needs"):
        validate_file(file({"models": two}))
    two = [{"name": "a", "memory": "1000TiB"}, {"name": "b"}]
    path = file({"models": two})
    with pytest.raises(MemoryPlanError, match=r"do not fit together: a .*, b .* at least, and .*"):
        validate_file(path)
    assert run_check_together(path, False, Console()) == 1
    assert "the models do not fit together" in capsys.readouterr().out


def test_check_together_shows_the_memory_of_each_model(file, capsys):
    two = [{"name": "a", "memory": "1GiB"}, {"name": "b"}, {"function": "mine:f"}]
    assert run_check_together(file({"models": two}), True, Console()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] and found["models"]["a"] == 1 << 30
    assert 0 < found["models"]["b"] < 1 << 30, "no more than its slots can use"


def test_show_gives_the_origin_of_an_entrys_setting_and_the_schema_its_keys(file):
    two = [{"name": "a"}, {"name": "b", "engine": {"slots": 3}}]
    said = show_settings(file({"models": two}), False).splitlines()
    (slots,) = [line.split() for line in said if line.startswith("models[1].engine.slots")]
    assert slots == ["models[1].engine.slots", "3", "headway.yaml"]
    own = json.loads(file_schema())["$defs"]["OwnEngineSettings"]
    assert own["additionalProperties"] is False and "slots" in own["properties"]


def test_replicas_are_engines_of_their_own_under_one_name_for_callers(file):
    models = [{"name": "a", "replicas": 2, "engine": {"slots": 3}, "aliases": ["b"]}, {"name": "c"}]
    config = ServerConfig.load(file({"models": models}))
    assert [each.model.served_name for each in config.entries] == ["a", "c"]
    assert [each.model.served_name for each in config.engines] == ["a#1", "a#2", "c"]
    assert [each.engine.slots for each in config.engines] == [3, 3, 32]
    assert not config.is_one and ServerConfig().is_one
    assert [each.get("replicas") for each in config.effective()["models"]] == [2, None]
    assert ServerConfig(**config.effective()).model.replicas == 2


@pytest.mark.parametrize(
    "models, why",
    [
        ([{"name": "a", "replicas": 0}], "replicas"),
        ([{"name": "a", "replicas": 2}, {"name": "a#2"}], "'a#2' is a name of models[0], too"),
        ([{"name": "a", "replicas": 2, "memory": 0.6}], "come to 1.2"),
        ([{"function": "mine:f", "replicas": 2}], "is for checkpoints, not for a function"),
    ],
)
def test_invalid_replicas_are_refused_with_the_reason(file, models, why):
    with pytest.raises(SettingError) as error:
        ServerConfig.load(file({"models": models}))
    assert why in str(error.value)


def test_versions_are_refused_for_functions_alone(file):
    given = {"models": [{"function": "mine:f"}], "versions": {"store": "v.db"}}
    with pytest.raises(SettingError, match="functions have no versions"):
        ServerConfig.load(file(given))


PAID = {"prices": {"per_million_answer": 1}, "ledger": {"url": "ledger.db"}}
BOTH = {"models": [{"name": "a"}, {"function": "mine:f"}, {"function": "mine:g"}]}


def capped(caps, *models):
    key = {"name": "ann", "sha256": HASH, "caps": caps}
    return {"keys": [{**key, "models": list(models)} if models else key]}


@pytest.mark.parametrize("caps", [{"money_per_day": 1}, {"lanes": {"chat": {"money_per_day": 1}}}])
def test_a_cap_on_money_is_refused_for_a_key_that_may_call_a_function(file, caps):
    caps = json.loads(json.dumps(caps).replace("chat", next(iter(ServerConfig().lanes))))
    for models, function in (((), "f"), (("a", "g"), "g"), (("f",), "f")):
        why = f"ann: calls of the function {function} have no price, so no cap on money counts"
        with pytest.raises(SettingError, match=rf"keys\[0\]\.caps: {why}"):
            ServerConfig.load(file({**BOTH, **PAID, **capped(caps, *models)}))
    ServerConfig.load(file({**BOTH, **PAID, **capped(caps, "a")}))


def test_a_cap_on_tokens_is_refused_for_a_key_that_may_call_functions_alone(file):
    for caps in ({"max_tokens": 5}, {"n": 1}):
        with pytest.raises(SettingError, match=r"keys\[0\]\.caps: ann: it may call functions"):
            ServerConfig.load(file({**BOTH, **capped(caps, "f")}))
        with pytest.raises(SettingError, match=r"keys\[0\]\.caps: ann: it may call functions"):
            ServerConfig.load(file({"models": [{"function": "mine:f"}], **capped(caps)}))
        routed = {"routes": {"r": {"rules": [{"to": "a"}]}}}
        for models in ((), ("a", "f")):
            ServerConfig.load(file({**BOTH, **capped(caps, *models)}))
        ServerConfig.load(file({**BOTH, **routed, **capped(caps, "r", "f")}))


def test_engine_settings_but_restart_are_refused_for_functions_alone(file):
    alone = [{"function": "mine:f"}]
    for setting in ({"journal": "incident.jsonl"}, {"slots": 3}):
        with pytest.raises(SettingError, match=r"engine\.\w+ is for checkpoints"):
            ServerConfig.load(file({"models": alone, "engine": setting}))
        ServerConfig.load(file({**BOTH, "engine": setting}))
        with pytest.raises(SettingError, match=r"engine\.\w+ is for checkpoints"):
            ServerConfig.load(file({"models": [{**alone[0], "engine": setting}]}))
    ServerConfig.load(file({"models": alone, "engine": {"restart": 5}}))


def test_the_base_of_a_models_versions_leaves_out_what_is_of_other_models():
    """It leaves out lane settings, keys and routes that are of another model."""
    models = [{"name": "a"}, {"name": "b", "engine": {"strategy": {"join": "dynamic"}}}]
    lanes = {"x": {"window": "20ms", "slots": {"most": 3}}}
    keys = [{"name": "k", "sha256": HASH, "models": ["b"]}]
    routes = {"r": {"fallback": ["a", "b"]}}
    config = ServerConfig(models=models, lanes=lanes, keys=keys, routes=routes)
    for base in bases(config).values():
        assert with_version(base, versioned(base), "it").lanes == base.lanes
    own = {name: base.lanes["x"] for name, base in bases(config).items()}
    default = LaneSettings()
    assert own["a"].window == default.window and own["b"].slots == default.slots
    assert own["b"].window == config.lanes["x"].window and own["a"].slots == config.lanes["x"].slots


@pytest.mark.parametrize(
    "more, said",
    [
        ({"lanes": {"a": {"tpot": "1ms"}}}, "lanes.a.tpot: it is for models"),
        ({"lanes": {"a": {"max_waiting_tokens": 1}}}, "lanes.a.max_waiting_tokens: it is for"),
        ({"lanes": {"a": {"ttft": "1s", "late": "refuse"}}}, "lanes.a.late: it is for models"),
        ({"lanes": {"a": {"slots": {"least": 1}}}}, "lanes.a.slots.least: it is for models"),
        ({"lanes": {"a": {"blocks": {"least": 1}}}}, "lanes.a.blocks.least: it is for models"),
        ({"prices": {"per_million_prompt": 5}}, "prices: functions have no tokens"),
        (
            {"keys": [{"name": "ann", "sha256": HASH, "tokens_per_minute": 1}]},
            "keys[0].tokens_per_minute: ann: it may call functions alone, and they have no tokens",
        ),
        (
            {"models": [{"function": "mine:f", "memory": "1GiB"}]},
            "models[0].memory: it keeps memory free beside checkpoints",
        ),
    ],
)
def test_settings_that_only_models_read_are_refused_for_functions_alone(file, more, said):
    with pytest.raises(SettingError) as caught:
        ServerConfig.load(file({"models": [{"function": "mine:f"}], **more}))
    assert str(caught.value).startswith(f"headway.yaml: {said}")
    by_budgets = {"engine": {"strategy": "budgets", "cost": "cost.json"}}
    ServerConfig.load(file({**more, **BOTH, **by_budgets}))


def test_a_priority_that_functions_obey_is_accepted_and_shown(file):
    lanes = {"a": {"priority": 7}, "b": {}}
    for models in ([{"function": "mine:f"}], BOTH["models"]):
        config = {"models": models, "lanes": lanes}
        if len(models) > 1:
            config["engine"] = {"strategy": "first-come"}
        path = file(config)
        shown = json.loads(show_settings(path, True))["config"]
        assert [each["priority"] for each in shown["lanes"].values()] == [7, 0]
