"""The configuration: its sources, their precedence, and what is refused with which message."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.operate import versions
from headway.commands.explain import explain
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.defer import WithoutDeadline, WithTimeToSpare
from headway.core.policies.fairly import Fairly
from headway.core.policies.join import Continuous, Dynamic, LengthClasses
from headway.core.policies.memory import Ahead
from headway.core.policies.mix import Mixed, PrefillFirst
from headway.core.policies.order import FirstCome, Priority
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane
from headway.core.policies.relegate import Hopeless
from headway.core.request import NEVER
from headway.costing.calibration import write_cost_file
from headway.costing.token_cost import TokenCost
from headway.errors import HeadwayError, SettingError
from headway.executor.torch.cpu import build
from headway.models import EMBEDDED, display_name
from headway.server.config.config import ELSEWHERE, ServerConfig
from headway.server.config.durations import format_duration, parse_duration
from headway.server.config.engine_options import engine_options
from headway.server.config.sections.jobs import new_secret
from headway.server.config.show import file_schema, show_settings, validate_file
from headway.server.config.tenant import Tenant
from headway.strategies.registry import PARTS_OF_BUDGETS, find_strategy
from headway.strategies.strategy_inputs import StrategyInputs
from tests.commands.small_cost_model import CALIBRATION

MS, S = 1_000_000, 1_000_000_000
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
SECRET = "whsec_" + "c2VjcmV0" * 5
ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "server-config.md"


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """Remove the machine's own variables."""
    import os

    for name in [each for each in os.environ if each.upper().startswith("HEADWAY")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "headway.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def load(file):
    return lambda text, flags=None: ServerConfig.load(file(text), flags)


def refusal(load, text, flags=None):
    with pytest.raises(SettingError) as caught:
        load(text, flags)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_by_default_the_embedded_model_is_served_in_three_lanes_on_loopback(load):
    config = load("")
    assert config == ServerConfig()
    assert config.model.served_name == "headway-tiny"
    assert list(config.lanes) == ["interactive", "standard", "offline"]
    assert (config.default_lane, config.server.host, config.server.port) == (
        "standard",
        "127.0.0.1",
        8_000,
    )
    assert config.server.drain_timeout == 30 * S and config.server.cors_origins == ()
    made = engine_options(config)
    assert made["model"] is None and made["slots"] == 32
    assert made["policies"].join == Continuous(32) and made["policies"].order == Priority()
    assert made["policies"].chunk == Fixed(256) and made["policies"].step_tokens == 32 + 256
    assert made["lanes"][0] == Lane(
        "interactive", Budget(500 * MS, 50 * MS, NEVER, 2 * S), 0, 64, 262_144
    )
    assert made["lanes"][2].budget == Budget()


def test_all_fields_of_a_lane_are_read(load):
    config = load("""
engine: {strategy: dynamic-lanes, slots: 4}
lanes:
  voice: {ttft: 300ms, tpot: 50ms, e2e: 1m, queue: 2s, window: 20ms, max_waiting: 3,
          max_waiting_tokens: 100}
  chat: {ttft: 2s, queue: none, e2e: null}
  nightly:
""")
    voice, chat, nightly = config.core_lanes
    assert voice == Lane("voice", Budget(300 * MS, 50 * MS, 60 * S, 2 * S), 0, 3, 100)
    assert chat == Lane("chat", Budget(ttft=2 * S), 0, 1_024)
    assert nightly == Lane("nightly", Budget(), 0, 1_024)
    assert config.default_lane == "voice", "the first lane, since none is called standard"
    windows = {"voice": 20 * MS, "chat": 500 * MS, "nightly": S}
    assert config.policies.join == Dynamic(4, S, windows)


@pytest.mark.parametrize(
    "said, join, order, mix, chunk, step",
    [
        ("priority", Continuous(8), Priority(), Mixed(), Fixed(256), 264),
        ("first-come", Continuous(8), FirstCome(), Mixed(), Fixed(256), 264),
        ("continuous-mixed", Continuous(8), FirstCome(), Mixed(), Whole(), 2_048),
        ("continuous-prefill-first", Continuous(8), FirstCome(), PrefillFirst(), Whole(), 2_048),
        ("continuous-chunk-64", Continuous(8), FirstCome(), Mixed(), Fixed(64), 72),
        ("{chunk: 64}", Continuous(8), Priority(), Mixed(), Fixed(64), 72),
        ("{chunk: whole}", Continuous(8), Priority(), Mixed(), Whole(), 2_048),
        (
            "{join: length-classes, bounds: [64, 256], window: 30ms}",
            LengthClasses(8, (64, 256), 30 * MS),
            Priority(),
            PrefillFirst(),
            Whole(),
            2_048,
        ),
        (
            "{join: length-classes, bounds: [64, 256], pad_to_bound: true, window: 30ms}",
            LengthClasses(8, (64, 256), 30 * MS, pad_to_bound=True),
            Priority(),
            PrefillFirst(),
            Whole(),
            2_048,
        ),
        (
            "{join: dynamic, window: 30ms, buckets: [64, 128], chunk: 32, order: first-come}",
            Dynamic(8, S, {"a": 30 * MS}, (64, 128)),
            FirstCome(),
            PrefillFirst(),
            Fixed(32),
            40,
        ),
    ],
)
def test_a_strategy_is_given_by_name_or_by_parts(load, said, join, order, mix, chunk, step):
    made = load(f"engine: {{slots: 8, strategy: {said}}}\nlanes: {{a: {{ttft: 1s}}}}").policies
    assert (made.join, made.order, made.mix) == (join, order, mix)
    assert (made.chunk, made.step_tokens) == (chunk, step)


BUDGETS = Policies(
    Continuous(8),
    ByDeadline(),
    chunk=BySlack(),
    preempt=ByLane(),
    defer=WithTimeToSpare(),
    relegate=Hopeless(),
    memory=Ahead(timed=False),
    step_tokens=8 + 2_048,
)


@pytest.mark.parametrize(
    "said, wanted",
    [
        ("budgets", BUDGETS),
        ("{order: deadline, chunk: slack, preempt: by-lane}", {"preempt": ByLane()}),
        ("deadline-order", {"chunk": Fixed(256)}),
        ("slack-steps", {"order": FirstCome()}),
        ("relegation", {"order": FirstCome(), "relegate": Hopeless(), "chunk": Fixed(256)}),
        ("memory-ahead", {"order": FirstCome(), "memory": Ahead()}),
        ("filler", {"order": Priority(), "preempt": ByLane(), "defer": WithoutDeadline()}),
    ],
)
def test_budget_strategies_and_their_parts_become_the_expected_policies(load, said, wanted):
    made = load(f"engine: {{slots: 8, strategy: {said}, cost: a.json}}").policies
    if isinstance(wanted, dict):
        chunk = BySlack() if "slack" in said else Fixed(256)
        plain = Policies(Continuous(8), ByDeadline(), chunk=chunk)
        wanted = replace(plain, step_tokens=8 + 2_048 if chunk == BySlack() else 264, **wanted)
    assert made == wanted
    if said in ("budgets", "memory-ahead", *PARTS_OF_BUDGETS):
        token_cost = TokenCost(prompt=1e6, answer=1e6)
        fitted = find_strategy(said)(StrategyInputs((Lane(),), token_cost, 512, slots=8)).policies
        same = replace(made, chunk=fitted.chunk, step_tokens=fitted.step_tokens)
        assert fitted == same, "as headway compare has it, but for a chunk of its own"


def test_budgets_are_the_default_where_lanes_have_budgets_and_a_cost_file_is_given(load):
    assert load("engine: {slots: 8, cost: a.json}").policies == BUDGETS
    assert load("engine: {slots: 8, cost: a.json}").notes == ()
    config = load("engine: {slots: 8}")
    assert config.policies.order == Priority()
    assert config.notes == (
        "lanes go by priority, not by budgets: no engine.cost (headway calibrate)",
    )
    config = load("engine: {cost: a.json}\nlanes: {bulk: {}}")
    assert (config.policies.order, config.notes) == (Priority(), ())
    config = load("engine: {strategy: priority}")
    assert (config.policies.order, config.notes) == (Priority(), ())
    config = load("engine: {strategy: , cost: a.json}")
    assert config.policies.order == ByDeadline()


def with_keys(*rest):
    """A file's keys, of these tenants and with these weights."""
    entries = [
        f"  - {{name: k{i}, sha256: '{i:064x}', {each}}}\n" for i, each in enumerate(rest, 1)
    ]
    return "keys:\n" + "".join(entries)


def test_several_tenants_share_their_lanes_fairly_by_the_weights_of_their_keys(load):
    several = with_keys("tenant: acme, weight: 3", "tenant: bell", "tenant: acme, weight: 3")
    config = load("engine: {slots: 8, cost: a.json}\n" + several)
    weights = {"acme": 3, "bell": 1}
    assert config.policies == replace(BUDGETS, order=Fairly(ByDeadline(), weights))
    assert config.effective()["engine"]["strategy"]["fair"] is True
    assert [key["weight"] for key in config.effective()["keys"]] == [3, 1, 3]
    assert load("engine: {strategy: fair}").policies.order == Fairly(FirstCome())
    for one in ("", with_keys("tenant: acme", "tenant: acme"), with_keys("weight: 2")):
        assert load(one).policies.order == Priority()
        assert load(one).effective()["engine"]["strategy"]["fair"] is False
    never = load("engine: {strategy: {fair: false}}\n" + with_keys("tenant: a", "tenant: b"))
    assert never.policies.order == Priority()


@pytest.mark.parametrize(
    "text, message",
    [
        (
            with_keys("tenant: acme", "tenant: bell, weight: 2", "tenant: acme, weight: 2"),
            "keys[2].weight: the keys of tenant acme have different weights: 1 and 2",
        ),
        (
            "engine: {strategy: {fair: false}}\n" + with_keys("weight: 2", "weight: 1"),
            "keys[0].weight: engine.strategy has fair: false, and then no weight counts",
        ),
        (with_keys("weight: 0"), "greater than or equal to 1"),
        (with_keys("weight: 1001"), "less than or equal to 1000"),
    ],
)
def test_contradictory_ineffective_or_out_of_range_weights_are_refused(load, text, message):
    with pytest.raises(SettingError, match=re.escape(message)):
        load(text)


def test_shares_chunk_and_late_of_a_lane_are_read_and_shown(load, file):
    text = """
engine: {cost: a.json}
lanes:
  voice: {ttft: 300ms, late: refuse, slots: {least: 4, most: 8}, blocks: {least: 10}}
  bulk: {slots: {least: 1}, blocks: {most: 100}, step_tokens: {most: 64}, chunk: 32}
"""
    voice, bulk = load(text).core_lanes
    assert voice.slots == Share(4, 8) and voice.blocks == Share(10) and voice.refuses_late
    assert bulk.slots == Share(1) and bulk.blocks == Share(most=100) and not bulk.refuses_late
    assert (bulk.step_tokens, bulk.chunk) == (Share(most=64), 32)
    found = rows(show_settings(file(text), False))
    assert found["lanes.voice.slots.most"] == ["8", "headway.yaml"]
    assert found["lanes.voice.blocks.most"] == ["none", "default"]
    assert found["lanes.voice.late"] == ["refuse", "headway.yaml"]
    assert found["lanes.bulk.chunk"] == ["32", "headway.yaml"]
    assert found["engine.strategy.chunk"] == ["slack", "default"]
    assert "lanes.bulk.late" not in found, "nothing is late there"
    config = load(text)
    again = ServerConfig(**config.effective())
    assert again.effective() == config.effective() and again.core_lanes == config.core_lanes


@pytest.mark.parametrize("strategy", ["deadline-order", "{preempt: by-lane}"])
def test_the_least_blocks_of_a_lane_are_kept_by_the_same_strategies_as_its_least_slots(
    load, strategy
):
    kept = "lanes: {a: {ttft: 1s, slots: {least: 2}, blocks: {least: 3}}}"
    config = load(f"engine: {{strategy: {strategy}, cost: a.json}}\n{kept}")
    assert config.policies.keeps_leasts
    (lane,) = config.core_lanes
    assert (lane.slots, lane.blocks) == (Share(2), Share(3))


def test_slots_that_follow_the_load_are_read_and_shown(load):
    config = load("lanes: {a: {tpot: 1s, slots: {between: [2, 8]}}}")
    assert config.core_lanes[0].slots == Share(0, 8, 2)
    assert config.effective()["lanes"]["a"]["slots"]["between"] == [2, 8]


def test_a_window_may_follow_the_load(load):
    config = load(
        "engine: {strategy: {join: dynamic, window: {between: [1ms, 2s]}}}\n"
        "lanes: {a: {ttft: 1s, window: {between: [5ms, 50ms]}}, b: {ttft: 1s}, c: {window: 3s}}"
    )
    join = config.policies.join
    assert (join.window, join.windows) == (2 * S, {"a": 50 * MS, "c": 3 * S})
    assert join.lows == {"": MS, "a": 5 * MS}
    shown = {name: lane["window"] for name, lane in config.effective()["lanes"].items()}
    between = {"between": ["1ms", "2s"]}
    assert shown == {"a": {"between": ["5ms", "50ms"]}, "b": between, "c": "3s"}
    assert config.effective()["engine"]["strategy"]["window"] == between


def test_by_default_a_window_is_within_all_limits_of_its_lane(load):
    config = load("""
engine: {strategy: dynamic-lanes}
lanes:
  queue: {queue: 500ms}
  patient: {queue: 1h}
  both: {ttft: 2s, queue: 1s}
  end: {e2e: 100ms}
""")
    windows = {"queue": 125 * MS, "patient": S, "both": 250 * MS, "end": 25 * MS}
    assert config.policies.join.windows == windows
    shown = config.effective()["lanes"]
    assert {name: lane["window"] for name, lane in shown.items()} == {
        "queue": "125ms",
        "patient": "1s",
        "both": "250ms",
        "end": "25ms",
    }


@pytest.mark.parametrize(
    "strategy, lane, message",
    [
        (
            "{join: dynamic}",
            "{queue: 500ms, window: 5s}",
            "lanes.a: window 5s is not shorter than queue 500ms, so a lone request would always",
        ),
        ("{join: dynamic}", "{e2e: 300ms, window: 300ms}", "is not shorter than e2e 300ms"),
        ("{join: dynamic}", "{e2e: 1s, window: 3s}", "window 3s is not shorter than e2e 1s"),
        (
            "{join: dynamic}",
            "{queue: 1s, window: {between: [1s, 2s]}}",
            "window 1s is not shorter than queue 1s",
        ),
        (
            "{join: dynamic, window: 7s}",
            "{queue: 500ms}",
            "engine.strategy: lane a: window 7s is not shorter than queue 500ms",
        ),
        (
            "{join: dynamic, window: {between: [1s, 2s]}}",
            "{e2e: 1s}",
            "engine.strategy: lane a: window 1s is not shorter than e2e 1s",
        ),
        (
            "{join: length-classes, bounds: [64], window: 1s}",
            "{e2e: 1s}",
            "engine.strategy: lane a: window 1s is not shorter than e2e 1s",
        ),
    ],
)
def test_a_window_that_uses_up_a_limit_is_refused(load, strategy, lane, message):
    with pytest.raises(SettingError, match=re.escape(message)):
        load(f"engine: {{strategy: {strategy}}}\nlanes: {{a: {lane}}}")


def test_the_default_offline_lane_keeps_a_slot_where_lanes_go_by_budgets(load):
    offline = load("engine: {cost: a.json}").effective()["lanes"]["offline"]
    assert offline["slots"] == {"least": 1, "most": "none"}
    config = load("")
    assert config.core_lanes[2].slots == Share(1)
    assert config.effective()["lanes"]["offline"]["slots"] == {"most": "none"}, "none takes it"
    assert "late" not in config.effective()["lanes"]["interactive"]
    load("engine: {slots: 1}")
    words = refusal(load, "engine: {slots: 1, cost: a}\nlanes: {b: {slots: {least: 2}}}")
    assert words == "headway.yaml: lanes: the lanes keep 2 slots at least (b 2), and there are 1"


def test_quoted_names_and_merged_mappings_are_read(load):
    text = 'lanes: {"on": &a {ttft: 1s}, "1": {<<: *a, tpot: 1s}}'
    lanes = load(text).lanes
    assert list(lanes) == ["on", "1"] and lanes["1"].ttft == S


def test_a_variable_sets_a_share_of_a_lane_that_ships(load, monkeypatch):
    monkeypatch.setenv("HEADWAY_LANES__OFFLINE__SLOTS__LEAST", "3")
    monkeypatch.setenv("HEADWAY_ENGINE__COST", "a.json")
    assert load("").core_lanes[2].slots == Share(3)


def test_a_flag_overrides_the_environment_then_the_file_then_the_default(load, monkeypatch):
    text = "server: {port: 1, host: 0.0.0.0}\nengine: {slots: 2, context: 64}"
    assert load(text).server.port == 1
    monkeypatch.setenv("HEADWAY_SERVER__PORT", "2")
    monkeypatch.setenv("HEADWAY_ENGINE", '{"slots": 3}')
    config = load(text)
    assert (config.server.port, config.server.host) == (2, "0.0.0.0")
    assert (config.engine.slots, config.engine.context) == (3, 64)
    config = load(text, {"server": {"port": 3, "host": None}, "models": None})
    assert (config.server.port, config.server.host) == (3, "0.0.0.0")


def test_a_variable_changes_one_limit_of_a_shipped_or_configured_lane(load, monkeypatch):
    monkeypatch.setenv("HEADWAY_LANES__STANDARD__TTFT", "200ms")
    lanes = load("").lanes
    assert list(lanes) == ["interactive", "standard", "offline"]
    assert (lanes["standard"].ttft, lanes["interactive"].ttft) == (200 * MS, 500 * MS)
    monkeypatch.delenv("HEADWAY_LANES__STANDARD__TTFT")
    monkeypatch.setenv("HEADWAY_LANES__VOICE__TTFT", "200ms")
    lanes = load("lanes: {voice: {ttft: 1s, tpot: 1s}}").lanes
    assert list(lanes) == ["voice"], "the lanes of a file replace all others"
    assert (lanes["voice"].ttft, lanes["voice"].tpot) == (200 * MS, S)
    monkeypatch.setenv("HEADWAY_LANES", '{"voice": {"tpot": "1s"}}')
    lanes = load("lanes: {a: {}}").lanes
    assert list(lanes) == ["a", "voice"], "a whole lane comes from JSON"
    assert (lanes["voice"].ttft, lanes["voice"].tpot) == (200 * MS, S)


@pytest.mark.parametrize(
    "name, text, hint",
    [
        ("INTERACTIV__TTFT", "", "lanes.interactiv is not known; did you mean interactive?"),
        ("INTERACTIV", "", "lanes.interactiv is not known; did you mean interactive?"),
        ("INTERACTIVE__TTFT", "lanes: {a: {}}", "lanes.interactive is not known; there are a"),
        ("A__TTFT", "lanes: {}", "lanes.a is not known; there are none"),
    ],
)
def test_a_variable_of_an_unknown_lane_is_refused(load, monkeypatch, name, text, hint):
    monkeypatch.setenv(f"HEADWAY_LANES__{name}", "300ms" if "TTFT" in name else "{}")
    assert refusal(load, text) == f"HEADWAY_LANES__{name}: {hint}"


def test_jobs_and_the_ledger_may_have_their_store_from_another_source(load, monkeypatch):
    text = "jobs: {at_once: 5}\nledger: {rows: 5}"
    monkeypatch.setenv("HEADWAY_JOBS__STORE", "jobs.db")
    assert load(text, {"ledger": {"url": "ledger.db"}}).jobs.at_once == 5
    monkeypatch.setenv("HEADWAY_LEDGER__FLUSH", "1s")
    words = refusal(load, "")
    assert words == "HEADWAY_LEDGER__FLUSH: ledger.flush is of no use without ledger.url"


def test_a_variable_names_the_file_if_no_flag_does(file, monkeypatch):
    monkeypatch.setenv("HEADWAY_CONFIG", str(file("server: {port: 4}")))
    assert ServerConfig.load().server.port == 4


def test_a_config_constructed_directly_reads_no_environment(monkeypatch):
    monkeypatch.setenv("HEADWAY_SERVER__PORT", "2")
    assert ServerConfig().server.port == 8_000


@pytest.mark.parametrize(
    "text, message",
    [
        ("lane: {}", "headway.yaml: lane is not known; did you mean lanes?"),
        ("engine: {slotz: 3}", "headway.yaml: engine.slotz is not known; did you mean slots?"),
        (
            "lanes: {a: {tttft: 1s}}",
            "headway.yaml: lanes.a.tttft is not known; did you mean ttft?",
        ),
        ("server: {limits: {stop: 1}}", "server.limits.stop is not known; did you mean stops?"),
        (
            "server: {limits: {schema_bytes: 65537}}",
            "server.limits.schema_bytes should be less than or equal to 65536, not 65537",
        ),
        (
            "server: {limits: {grammar_compile: 2m}}",
            "server.limits.grammar_compile: may be 1m at most, not 2m",
        ),
        (
            "server: {limits: {grammar_compile: none}}",
            "server.limits.grammar_compile: may be 1m at most, not none",
        ),
        ("models: [{pth: x}]", "models[0].pth is not known; did you mean path?"),
        ("engine: {slots: 0}", "engine.slots should be greater than or equal to 1, not 0"),
        ("engine: {slots: yes}", "engine.slots: true is not a number"),
        ("engine: 3", "headway.yaml: engine should be a mapping of names to values, not 3"),
        ("engine: {slots: many}", "engine.slots should be a whole number, not 'many'"),
        ("engine: {slots: 1.5}", "engine.slots should be a whole number, not 1.5"),
        ("prices: {per_hour: x}", "prices.per_hour should be a number, not 'x'"),
        ("logs: {access: sure}", "logs.access should be true or false, not 'sure'"),
        ("server: {host: 5}", "server.host should be a text, not 5"),
        (
            "engine: {strategy: budgets}",
            "headway.yaml: engine.strategy: it predicts the times of steps, and engine.cost names "
            "no cost file; make one with headway calibrate",
        ),
        ("engine: {strategy: {relegate: hopeless}}", "engine.cost names no cost file"),
        (
            "engine: {strategy: {join: dynamic, order: deadline}, cost: a}",
            "engine.strategy: order deadline is for join continuous and mix mixed, not dynamic and",
        ),
        (
            "lanes: {a: {slots: {least: 3, most: 2}}}",
            "headway.yaml: lanes.a.slots: least 3 is more than most 2",
        ),
        (
            "lanes: {a: {blocks: {most: 0}}}",
            "lanes.a.blocks.most should be greater than or equal to 1, not 0",
        ),
        (
            "lanes: {a: {ttft: 1s, slots: {between: [9, 3]}}}",
            "lanes.a.slots: between 9 and 3: the first must not exceed the second",
        ),
        (
            "lanes: {a: {ttft: 1s, slots: {between: [0, 3]}}}",
            "lanes.a.slots.between[0] should be greater than or equal to 1, not 0",
        ),
        (
            "lanes: {a: {ttft: 1s, slots: {between: [2, 3], most: 3}}}",
            "lanes.a.slots: say either most or between: a most of 3 does not follow the load",
        ),
        (
            "engine: {slots: 4}\nlanes: {a: {ttft: 1s, slots: {between: [100, 200]}}}",
            "headway.yaml: lanes.a.slots.between: 100 is more than all slots: there are 4",
        ),
        (
            "engine: {slots: 4}\nlanes: {a: {ttft: 1s, slots: {between: [2, 5]}}}",
            "headway.yaml: lanes.a.slots.between: 5 is more than all slots: there are 4",
        ),
        (
            "engine: {slots: 4}\nlanes: {a: {slots: {most: 5}}}",
            "headway.yaml: lanes.a.slots.most: 5 is more than all slots: there are 4",
        ),
        (
            "engine: {slots: 8}\nlanes: {a: {step_tokens: {most: 265}}}",
            "lanes.a.step_tokens.most: 265 is more than all step_tokens: there are 264",
        ),
        (
            "lanes: {a: {chunk: 100000000000000000000}}",
            "lanes.a.chunk should be none, or 2147483648 at most, not 100000000000000000000",
        ),
        (
            "lanes: {a: {max_waiting: 100000000000000000000}}",
            "lanes.a.max_waiting should be less than or equal to 2147483648, not 1000000000000",
        ),
        ("lanes: {a: {slots: {between: [2, 3]}}}", "no ttft, tpot or e2e that they could follow"),
        (
            "engine: {strategy: {join: dynamic}}\nlanes: {a: {ttft: 1s, slots: {between: [2, 8]}}}",
            "headway.yaml: lanes.a.slots: it is for join continuous, not dynamic",
        ),
        ("lanes: {a: {blocks: {between: [2, 3]}}}", "lanes.a.blocks.between is not known"),
        (
            "engine: {strategy: {join: dynamic}}\n"
            "lanes: {a: {ttft: 1s, window: {between: [9ms, 3ms]}}}",
            "lanes.a.window: between 9ms and 3ms: the first must not exceed the second",
        ),
        (
            "engine: {strategy: {join: dynamic}}\nlanes: {a: {ttft: 1s, window: {between: 3ms}}}",
            "lanes.a.window: write a time, or {between: [5ms, 50ms]}",
        ),
        (
            "engine: {strategy: {join: dynamic}}\nlanes: {a: {window: {between: [1ms, 3ms]}}}",
            "lanes: lane 'a' has a window that follows the load, and no budget that it could",
        ),
        (
            "lanes: {a: {ttft: 1s, window: {between: [1ms, 3ms]}}}",
            "lanes.a.window: join continuous has no window per lane",
        ),
        (
            "engine: {strategy: {join: dynamic, window: {between: [1ms, 3ms]}}}\n"
            "lanes: {a: {ttft: 1s, window: 3ms}}",
            "each lane has a window of its own: none has the strategy's",
        ),
        (
            "engine: {strategy: {join: length-classes, bounds: [9], "
            "window: {between: [1ms, 3ms]}}}",
            "the window of length-classes is one time: it follows no load",
        ),
        ("lanes: {a: {slots: {least: -1}}}", "lanes.a.slots.least should be greater than or equal"),
        ("lanes: {a: {slots: 3}}", "lanes.a.slots should be a mapping of names to values, not 3"),
        (
            "engine: {slots: 8}\n"
            "lanes: {a: {step_tokens: {least: 200}}, b: {step_tokens: {least: 99}}}",
            "lanes: the lanes keep 299 step_tokens at least (a 200 and b 99), and of 264 there are "
            "256 beside one for each of 8 slots",
        ),
        (
            "lanes: {a: {step_tokens: {least: 3, most: 2}}}",
            "lanes.a.step_tokens: least 3 is more than most 2",
        ),
        (
            "engine: {strategy: {join: dynamic}}\nlanes: {a: {step_tokens: {least: 3}}}",
            "headway.yaml: lanes.a.step_tokens: it is for join continuous, not dynamic",
        ),
        (
            "engine: {strategy: continuous-mixed}\nlanes: {a: {step_tokens: {least: 3}}}",
            "lanes: lane 'a' keeps step_tokens, and chunk Whole never splits a prompt",
        ),
        ("lanes: {a: {late: refuse}}", "lanes.a: late refuse is for lanes with a ttft or an e2e"),
        ("lanes: {a: {late: take}}", "lanes.a: late take is for lanes with a ttft or an e2e"),
        (
            "engine: {slots: 4, cost: a}\n"
            "lanes: {a: {slots: {least: 3}}, b: {}, c: {slots: {least: 2}}}",
            "lanes: the lanes keep 5 slots at least (a 3 and c 2), and there are 4",
        ),
        (
            "lanes: {a: {slots: {least: 3}}}",
            "headway.yaml: lanes.a.slots.least: the strategy keeps nothing for a lane; use "
            "engine.strategy: budgets",
        ),
        (
            "engine: {strategy: priority}\nlanes: {a: {blocks: {least: 3}}}",
            "headway.yaml: lanes.a.blocks.least: the strategy keeps nothing for a lane",
        ),
        (
            "lanes: {a: {ttft: 1s, late: relegate}}",
            "headway.yaml: lanes.a.late: the strategy relegates no request",
        ),
        (
            "engine: {strategy: {join: dynamic}}\nlanes: {a: {chunk: 8}}",
            "headway.yaml: lanes.a.chunk: it is for join continuous, not dynamic",
        ),
        (
            "engine: {strategy: {join: dynamic}}\nlanes: {a: {slots: {most: 8}}}",
            "headway.yaml: lanes.a.slots: it is for join continuous, not dynamic",
        ),
        ("engine: {slots: 8, step_tokens: 4}", "engine: step_tokens 4 is less than slots 8"),
        (
            "engine: {step_tokens: 64, strategy: {chunk: 1000}}",
            "engine: chunk 1000 is more than step_tokens 64, which a step may compute at most",
        ),
        (
            "models: [{engine: {step_tokens: 64}}]\nengine: {strategy: continuous-chunk-65}",
            "models[0].engine: chunk 65 is more than step_tokens 64",
        ),
        ("engine: {strategy: priorty}", "no strategy 'priorty'; did you mean priority?"),
        ("engine: {strategy: static}", "never knows whether more will come: use dynamic-lanes"),
        ("engine: {strategy: continuous-chunk-0}", "strategy.chunk: a chunk is whole, slack or 1"),
        ("engine: {strategy: {window: 1s}}", "window is for join dynamic or length-classes"),
        ("engine: {strategy: {join: length-classes}}", "needs bounds, such as [128, 512]"),
        ("engine: {strategy: {pad_to_bound: true}}", "pad_to_bound is for join length-classes"),
        (
            "engine: {strategy: {join: dynamic, buckets: [8, 4]}}",
            "engine.strategy: buckets must be positive, ascending",
        ),
        ("lanes: {a: {ttft: 80 parsecs}}", "lanes.a.ttft: '80 parsecs' is not a time; write"),
        (
            "lanes: {a: {ttft: 300}}",
            "headway.yaml: lanes.a.ttft: 300 has no unit; write 300ms, 300s or 300m",
        ),
        ("server: {drain_timeout: 30}", "server.drain_timeout: 30 has no unit; write 30ms"),
        (
            "metrics: {key: prom}",
            "headway.yaml: metrics.key: there is no key 'prom'; there are none",
        ),
        (
            f"metrics: {{key: prom}}\nkeys: [{{name: prom1, sha256: '{HASH}'}}]",
            "headway.yaml: metrics.key: there is no key 'prom'; did you mean prom1?",
        ),
        ("engine: {slots: 100000}", "engine.slots should be less than or equal to 4096"),
        ("lanes: {a: {ttft: 0}}", "lanes.a.ttft should be greater than 0, not 0"),
        ("lanes: {a: {ttft: -1}}", "lanes.a.ttft: -1 is not a time"),
        ("lanes: {a: {ttft: 80s, e2e: 9s}}", "ttft 80s can never be used up, because e2e is 9s"),
        ("lanes: {a: {window: 1s}}", "lanes.a.window: join continuous has no window per lane"),
        (
            "lanes: {a: {priority: 1}}\nengine: {strategy: first-come}",
            "headway.yaml: lanes.a.priority: the order is first-come, which no priority changes",
        ),
        ("lanes: {A B: {}}", "headway.yaml: lanes.A B should match pattern"),
        ("lanes: {}", "headway.yaml: lanes: at least one is needed"),
        (
            "server: {host: éé..x}",
            "headway.yaml: server.host: 'éé..x' is no host name and no address",
        ),
        ('server: {host: "a\\0b"}', "server.host: 'a\\x00b' is no host name and no address"),
        ("server: {default_lane: ofline}", "server.default_lane: there is no lane 'ofline'; did"),
        (
            "models: [{}, {}]",
            "headway.yaml: models[1]: 'headway-tiny' is a name of models[0], too",
        ),
        ("models: [{name: a@b}]", "'a@b' cannot name a model"),
        ("models: [{aliases: [headway-tiny]}]", "its name, aliases and adapters are not distinct"),
        (
            "prices: {per_hour: 10000000000}",
            "prices.per_hour should be less than or equal to 1000000, not 10000000000",
        ),
        (
            "keys: [{name: a, sha256: %s, caps: {money_per_day: 1.0e+300}}]" % ("ab" * 32),
            "keys[0].caps.money_per_day should be less than or equal to 1000000000",
        ),
        ("prices: {per_hour: -1}", "prices.per_hour should be greater than or equal to 0, not -1"),
        ("server: {cors_origins: [shop.example]}", "server.cors_origins[0] should match pattern"),
        (
            "server: {cors_origins: ['https://*.example.com']}",
            "server.cors_origins[0]: https://*.example.com: a * stands alone, for all origins",
        ),
        (f"keys: [{{name: a, sha256: '{HASH}', lanes: [b]}}]", "keys[0]: a: there is no lane 'b'"),
        (
            f"keys: [{{name: a, sha256: '{HASH}', lanes: []}}]",
            "headway.yaml: keys[0].lanes: an empty list names none: leave it out for all",
        ),
        (
            f"keys: [{{name: a, sha256: '{HASH}', models: []}}]",
            "headway.yaml: keys[0].models: an empty list names none: leave it out for all",
        ),
        (
            f"keys: [{{name: a, sha256: '{HASH}', lanes: [offline], "
            "caps: {lanes: {standard: {n: 2}}}}]",
            "keys[0]: its caps are for 'standard', which is not one of its lanes",
        ),
        (
            "engine: {journal_bytes: 5}",
            "headway.yaml: engine.journal_bytes is of no use without engine.journal",
        ),
        ("ledger: {keep: 1h}", "headway.yaml: ledger.keep is of no use without ledger.url"),
        ("ledger: {flush: 1s}", "ledger.flush is of no use without ledger.url"),
        ("ledger: {rows: 5}", "ledger.rows is of no use without ledger.url"),
        ("ledger: {when_away: refuse}", "ledger.when_away is of no use without ledger.url"),
        ("jobs: {lane: offline}", "headway.yaml: jobs.lane is of no use without jobs.store"),
        ("jobs: {at_once: 5}", "headway.yaml: jobs.at_once is of no use without jobs.store"),
        ("jobs: {lines: 3}", "jobs.lines is of no use without jobs.store"),
        ("jobs: {keep: 1h}", "jobs.keep is of no use without jobs.store"),
        (
            f"jobs: {{webhooks: [{{url: 'https://x/', secret: {SECRET}}}]}}",
            "headway.yaml: jobs.webhooks is of no use without jobs.store",
        ),
        (
            "server: {port: 1}\nserver: {port: 2}",
            "headway.yaml is not YAML: line 2: 'server' is there twice",
        ),
        (
            "lanes:\n  on: {}",
            "headway.yaml is not YAML: line 2: the name `on` must be in quotes",
        ),
        ("lanes: {1: {}}", "headway.yaml is not YAML: line 1: the name `1` must be in quotes"),
        ("lanes: {true: {}}", "line 1: the name `true` must be in quotes"),
        ("1: {}", "line 1: the name `1` must be in quotes"),
        ("lanes: {? [a]: {}}", "line 1: found unhashable key"),
        ("- a", "headway.yaml: sections with names are wanted"),
        ("a: [", "headway.yaml is not YAML: line 1: expected the node content"),
        ("\nserver: {port: 2026-02-30}", "is not YAML: line 2: the value is not a valid timestamp"),
        ("server: {port: 0x_}", "is not YAML: line 1: the value is not a valid int"),
        (f"server: {{port: {'9' * 5_000}}}", "line 1: the value is not a valid int"),
        ("server: {port: !!bool x}", "line 1: the value is not a valid bool"),
        (f"a: {'[' * 3_000}{']' * 3_000}", "headway.yaml is not YAML: it is nested too deeply"),
        ("engine: &a {strategy: *a}", "line 1: found unconstructable recursive node"),
        ("engine: {slots: 0}\nserver: {port: -1}", "not 0 (and 1 more)"),
    ],
)
def test_an_invalid_setting_is_refused_with_its_path_and_origin(load, text, message):
    assert message in refusal(load, text)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("HEADWAY_SERVER_PORT", "1", "HEADWAY_SERVER_PORT is not known; did you mean HEADWAY_SER"),
        ("HEADWAY_PORT", "1", "HEADWAY_PORT is not known; did you mean HEADWAY_SERVER__PORT?"),
        ("HEADWAY_SLOTS", "1", "HEADWAY_SLOTS is not known; did you mean HEADWAY_ENGINE__SLOTS?"),
        ("HEADWAY_SERVER__DRAIN_TIMEOUT", "30", "server.drain_timeout: '30' has no unit"),
        ("HEADWAY_ENGIN__SLOTS", "1", "did you mean HEADWAY_ENGINE__SLOTS?"),
        (
            "HEADWAY_ENGINE__SLOTZ",
            "1",
            "HEADWAY_ENGINE__SLOTZ: engine.slotz is not known; did you mean slots?",
        ),
        ("HEADWAY_SERVER__PORT", "x", "HEADWAY_SERVER__PORT: server.port should be a whole number"),
        (
            "HEADWAY_ENGINE__STRATEGY",
            '{"join": "dynamic", "join": "continuous"}',
            "HEADWAY_ENGINE__STRATEGY: 'join' is there twice",
        ),
        ("HEADWAY_ENGINE", '{"slots": 3, "slots": 4}', "HEADWAY_ENGINE: 'slots' is there twice"),
        (
            "HEADWAY_MODELS",
            '[{"name": "a", "name": "b"}]',
            "HEADWAY_MODELS: 'name' is there twice",
        ),
        ("HEADWAY_MODELS", "x", "environment: error parsing value for field"),
    ],
)
def test_an_invalid_variable_is_refused_by_name(load, monkeypatch, name, value, message):
    monkeypatch.setenv(name, value)
    assert message in refusal(load, "engine: {slots: 4}")


def test_a_variable_may_have_the_parts_of_a_strategy_as_json(load, monkeypatch):
    monkeypatch.setenv("HEADWAY_ENGINE__STRATEGY", '{"join": "dynamic", "order": "first-come"}')
    assert load("").policies.join == load("engine: {strategy: dynamic-lanes}").policies.join
    assert isinstance(load("").policies.join, Dynamic)
    monkeypatch.setenv("HEADWAY_ENGINE__STRATEGY", "first-come")
    assert load("").policies.order == FirstCome()


def test_variables_of_other_parts_of_headway_are_ignored(load, monkeypatch):
    assert {build.SWITCH, explain.KEY, versions.KEY} == set(ELSEWHERE)
    for name in ELSEWHERE:
        monkeypatch.setenv(name, "off")
    assert load("") == ServerConfig()


def test_variables_that_kubernetes_sets_for_a_service_are_ignored(load, monkeypatch):
    monkeypatch.setenv("HEADWAY_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HEADWAY_PORT_8000_TCP", "tcp://10.0.0.1:8000")
    assert load("") == ServerConfig()
    monkeypatch.setenv("HEADWAY_PROT", "1")
    assert "HEADWAY_PROT is not known" in refusal(load, "")


def test_a_misspelt_variable_that_is_read_elsewhere_names_the_right_one(load, monkeypatch):
    monkeypatch.setenv("HEADWAY_CPU_KERNEL", "off")
    assert "did you mean HEADWAY_CPU_KERNELS?" in refusal(load, "")


@pytest.mark.parametrize("name", ["four_endpoints.yaml", "voice_agent/lanes.yaml"])
def test_the_endpoints_of_compare_are_recognised_as_another_kind_of_file(name):
    with pytest.raises(SettingError, match=r"yaml has the endpoints of `headway compare`.*`lanes`"):
        ServerConfig.load(ROOT / "examples" / name)


def test_a_missing_file_is_named(tmp_path):
    missing = tmp_path / "none.yaml"
    with pytest.raises(SettingError, match=f"^{re.escape(str(missing))} cannot be read: No such"):
        ServerConfig.load(missing)


def rows(text):
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()}


def test_show_prints_each_setting_in_force_and_its_origin(file, monkeypatch):
    monkeypatch.setenv("HEADWAY_LANES__VOICE__TPOT", "60ms")
    path = file(f"""
lanes: {{voice: {{ttft: 0.3s}}, nightly: }}
keys: [{{name: ci, sha256: "{HASH}"}}]
""")
    said = show_settings(path, False, {"server": {"port": 9}})
    found = rows(said)
    assert found["lanes.voice.ttft"] == ["300ms", "headway.yaml"]
    assert found["lanes.voice.tpot"] == ["60ms", "HEADWAY_LANES__VOICE__TPOT"]
    assert found["lanes.nightly.ttft"] == ["none", "default"]
    assert found["server.port"] == ["9", "--port"]
    assert found["engine.step_tokens"] == ["288", "default"]
    assert found["engine.strategy.mix"] == ["mixed", "default"]
    assert found["models[0].name"] == ["headway-tiny", "default"]
    assert found["keys[0].name"] == ["ci", "headway.yaml"]
    assert found["keys[0].tenant"] == ["ci", "default"]
    assert found["keys[0].lanes"] == ['["voice",', '"nightly"]', "default"]
    assert found["keys[0].default_lane"] == ["voice", "default"]
    assert found["keys[0].sha256"] == ["9f86d081...", "headway.yaml"] and HASH not in said
    as_json = json.loads(show_settings(path, True))
    assert as_json["config"] == ServerConfig.load(path).effective()
    assert as_json["origins"]["lanes.voice.ttft"] == "headway.yaml"


def test_only_settings_that_the_strategy_reads_are_in_force(load):
    said = load("engine: {strategy: first-come}").effective()["lanes"]["interactive"]
    assert "priority" not in said and "window" not in said
    said = load("engine: {strategy: {join: dynamic}}").effective()["lanes"]["interactive"]
    assert (said["priority"], said["window"]) == (0, "125ms")


def test_the_settings_in_force_can_be_loaded_again(load):
    config = load("engine: {strategy: dynamic-lanes}\nlanes: {a: {ttft: 2s}}")
    again = ServerConfig(**config.effective())
    assert again.effective() == config.effective() and again.policies == config.policies


def test_the_chunk_in_force_is_no_more_than_a_step(load):
    for strategy, chunk in (("{}", 64), ("{chunk: 64}", 64), ("{chunk: slack}", "slack")):
        text = f"engine: {{cost: cost.json, step_tokens: 64, strategy: {strategy}}}"
        shown = load(text).effective()
        assert shown["engine"]["strategy"]["chunk"] == chunk
        assert ServerConfig(**shown).effective() == shown
    load("engine: {step_tokens: 64, strategy: {join: dynamic, chunk: 100}}")


def test_the_schema_describes_every_key_and_allows_no_other():
    made = json.loads(file_schema())
    assert made["additionalProperties"] is False
    for name, section in made["$defs"].items():
        assert section["additionalProperties"] is False
        for field, about in section["properties"].items():
            assert "description" in about or "$ref" in about, f"{name}.{field}"


def test_the_schema_has_bounds_and_no_limits_in_words_that_editors_read():
    made = json.loads(file_schema())
    words = {keyword for part in _parts(made) for keyword in part}
    assert not words & {"ge", "le", "gt", "lt"}
    section = {name: about["properties"] for name, about in made["$defs"].items()}
    assert section["EngineSettings"]["slots"]["maximum"] == 4_096
    assert section["RouteSettings"]["quorum"]["minimum"] == 0
    assert section["RouteSettings"]["timeout"]["default"] == "none"


def _parts(schema):
    """The schema and all schemas in it."""
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(inner, dict | list):
            yield from _parts(inner)


def test_validate_names_what_would_be_served_and_warns(file):
    assert validate_file(None).splitlines() == [
        "the configuration is sound: model headway-tiny, lanes interactive, standard, offline, "
        "0 keys",
        "lanes go by priority, not by budgets: no engine.cost (headway calibrate)",
        "no API keys: open to everybody on this machine",
    ]
    said = validate_file(file("server: {host: 0.0.0.0}"))
    assert "OPEN TO EVERYBODY who can reach 0.0.0.0:8000" in said
    said = validate_file(file(f"keys: [{{name: a, sha256: '{HASH}'}}]"))
    assert said.splitlines()[0].endswith("1 key")


def shortened(folder):
    """A copy of the embedded checkpoint with truncated weights."""
    shutil.copytree(EMBEDDED, folder)
    with open(folder / "model.safetensors", "r+b") as weights:
        weights.truncate(10_000)


@pytest.mark.parametrize(
    "text, message",
    [
        (f"models: [{{path: {'a' * 300}}}]", "aaa cannot be read: File name too long"),
        ("models: [{path: ./nothing}]", "the model ./nothing is not a folder, nor a model's id"),
        (f"models: [{{path: {'a' * 5_000}}}]", "aaa cannot be read: File name too long"),
        ("models: [{path: TMP}]", "config.json"),
        ("models: [{path: TMP/short}]", "model.safetensors is damaged or cut short"),
        ("models: [{path: TMP/speechless}]", "has no tokenizer.json"),
        ("engine: {cost: TMP/cost.json}", "the cost file cost.json cannot be read: No such file"),
        ("engine: {journal: TMP/a/run.jsonl}", "cannot be written: there is no such folder"),
        ("engine: {block_size: 100000000}", "KV blocks of"),
        ("engine: {context: 1000000}", "is longer than the"),
        (
            "engine: {cost: TMP/known.json}\nlanes: {a: {ttft: 1s, blocks: {least: 9999999}}}",
            "the lanes keep 9999999 blocks at least (a 9999999), and there are",
        ),
        ("engine: {cost: TMP/free.json}", "prices every step at nothing: calibrate again"),
    ],
)
def test_validate_checks_what_a_file_names_without_torch(file, tmp_path, text, message):
    shortened(tmp_path / "short")
    shutil.copytree(EMBEDDED, tmp_path / "speechless")
    (tmp_path / "speechless" / "tokenizer.json").unlink()
    for name, cost in (("known", CALIBRATION.cost), ("free", StepCost())):
        made = replace(CALIBRATION, model=display_name(None), cost=cost)
        write_cost_file(made, tmp_path / f"{name}.json")
    path = file(text.replace("TMP", str(tmp_path)))
    with pytest.raises(HeadwayError, match=re.escape(message)):
        validate_file(path)


def test_validate_fetches_no_hub_id(file):
    said = validate_file(file("models: [{path: org/model}]"))
    assert "org/model is not a folder here: it is looked up on the hub at the start" in said


def test_a_missing_model_is_reported_before_torch_is_loaded(tmp_path):
    code = """
import sys
from rich.console import Console
from headway.errors import HeadwayError
from headway.server.config.config import ServerConfig
from headway.server.run import serve
try:
    serve(ServerConfig(models=[{"path": "./nothing"}], server={"port": 0}), Console())
except HeadwayError as error:
    print(error, "torch" in sys.modules)
from headway.server.config.show import validate_file
print(validate_file(None).splitlines()[0][:26], "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    wanted = "the model ./nothing is not a folder, nor a model's id on the hub False\n"
    wanted += "the configuration is sound False\n"
    assert (done.stdout, done.stderr) == (wanted, ""), "no engine process was started"


def test_a_folder_is_served_under_its_name_and_a_hub_id_unchanged(load, tmp_path):
    (tmp_path / "mine").mkdir()
    assert load("", {"models": [{"path": str(tmp_path / "mine")}]}).model.served_name == "mine"
    assert load("models: [{path: org/model}]").model.served_name == "org/model"
    assert load("models: [{path: org/model, name: chat}]").model.served_name == "chat"


def test_the_example_file_and_those_in_the_docs_are_valid(file):
    example = ServerConfig.load(ROOT / "examples" / "headway.yaml")
    assert list(example.lanes) == ["voice", "chat", "nightly"]
    blocks = DOCUMENT.read_text().split("```yaml\n")[1:]
    assert blocks
    for block in blocks:
        ServerConfig.load(file(block.partition("```")[0]))


def test_the_docs_name_every_key(load):
    text = DOCUMENT.read_text()
    made = json.loads(file_schema())
    names = {key for section in made["$defs"].values() for key in section["properties"]}
    assert not {name for name in names | set(made["properties"]) if f"`{name}`" not in text}


@pytest.mark.parametrize(
    "said, time",
    [
        ("300ms", 300 * MS),
        ("2s", 2 * S),
        ("1.5 s", 1_500 * MS),
        ("0.3s", 300 * MS),
        ("5m", 300 * S),
        ("1h", 3_600 * S),
        ("20us", 20_000),
        ("0", 0),
        (0, 0),
        (0.0, 0),
        (None, NEVER),
        ("none", NEVER),
    ],
)
def test_times_with_units_are_read(said, time):
    assert parse_duration(said) == time


@pytest.mark.parametrize(
    "said", ["", "ms", "1 d", "-1s", True, [1], float("nan"), 1e300, "1e3", 300, 0.3, "300", "0.3"]
)
def test_an_invalid_time_is_refused(said):
    with pytest.raises(SettingError):
        parse_duration(said)


@given(st.integers(0, NEVER))
def test_a_printed_time_reads_back_the_same(time):
    assert parse_duration(format_duration(time)) == time


def test_defaults_in_the_schema_are_valid_in_a_file():
    made = json.loads(file_schema())["$defs"]
    for name, section in (
        ("server", "ServerSettings"),
        ("engine", "EngineSettings"),
        ("prices", "PriceSettings"),
    ):
        said = {key: about["default"] for key, about in made[section]["properties"].items()}
        assert ServerConfig(**{name: said}) == ServerConfig()
    said = {key: about["default"] for key, about in made["LaneSettings"]["properties"].items()}
    assert ServerConfig(lanes={"a": said}) == ServerConfig(lanes={"a": {}})


def test_prices_give_the_cost_of_time_and_of_tokens(load):
    prices = load("prices: {per_hour: 2, per_million_prompt: 3, per_million_answer: 10}").prices
    assert prices.machine_cost(1_800 * S) == 1.0
    assert prices.token_cost(prompt=1_000_000, cached=400_000, answer=100_000) == 4.0
    prices = load("prices: {per_million_prompt: 3, per_million_cached: 1}").prices
    assert prices.token_cost(prompt=1_000_000, cached=400_000, answer=0) == pytest.approx(2.2)


@pytest.mark.parametrize(
    "said, words",
    [
        ("{connections: {trusted: [10.0.0.0/8]}}", "no limit per address"),
        ("{connections: {per_address: 3, trusted: [10.0.0.1/8]}}", "write 10.0.0.0/8"),
        ("{connections: {most: 0}}", "server.connections.most"),
        ("{connections: {header_time: 0s}}", "server.connections.header_time"),
        ("{limits: {body_bytes: 100, bodies_bytes: 99}}", "server.limits.bodies_bytes"),
        ("{hosts: ['http://gpu.lan']}", "server.hosts"),
        ("{hosts: ['gpu.lan:8000']}", "server.hosts"),
    ],
)
def test_impossible_limits_of_connections_are_refused(load, said, words):
    assert words in refusal(load, f"server: {said}")


HOOK = {"url": "https://x/", "secret": SECRET}


def test_secrets_of_jobs_are_shown_to_nobody():
    hook = {"url": "https://example.com/hook", "secret": SECRET}
    store = "postgresql://me:password@host/name?password=password&sslpassword=password"
    config = ServerConfig(jobs={"store": store, "webhooks": [hook]})
    shown = config.effective()["jobs"]
    assert shown["store"] == "postgresql://me@host/name"
    assert shown["webhooks"][0]["secret"] == "whsec_..."
    assert "c2VjcmV0" not in repr(config.jobs)
    tenant = Tenant("", "", frozenset(config.lanes), "standard", "")
    assert {"store", "webhooks"}.isdisjoint(config.visible_to(tenant)["jobs"])


@pytest.mark.parametrize(
    "jobs, why",
    [
        ({"lane": "night"}, "there is no lane 'night'"),
        ({"webhooks": [{"url": "ftp://x", "secret": SECRET}]}, r"jobs.webhooks\[0\].url"),
        ({"webhooks": [{"url": "https://x*", "secret": SECRET}]}, "before the \\* comes a /"),
        ({"webhooks": [{"url": "https://x/", "secret": "whsec_x"}]}, "a secret is whsec_"),
        ({"webhooks": [{"url": "https://x/", "secret": "whsec_YWJj"}]}, "this one has 3"),
        (
            {"webhooks": [{"url": "https://x/", "secret": SECRET, "events": ["end"]}]},
            "event .end.; there are batch",
        ),
        ({"webhooks": [{"url": "https://x/", "secret": SECRET, "events": []}]}, "names none"),
        (
            {"webhooks": [HOOK, HOOK]},
            r"webhooks\[1\].url: https://x/ comes twice for batch.cancell",
        ),
        ({"webhooks": [{**HOOK, "url": "http://x:abc/y"}]}, "url: it cannot be called: Port could"),
        ({"webhooks": [{**HOOK, "url": "http://x:99999/*"}]}, "url: it cannot be called: Port out"),
        ({"webhooks": [{**HOOK, "url": "http://[::1/"}]}, "url: it cannot be called: Invalid IPv6"),
        ({"webhooks": [{**HOOK, "url": "http://x:0/"}]}, "url: it names no port"),
        ({"webhooks": [{**HOOK, "url": "http://:80/"}]}, "url: it names no host"),
        ({"keep": "0"}, "keep"),
    ],
)
def test_invalid_settings_of_jobs_are_refused_without_showing_secrets(jobs, why, tmp_path):
    file = tmp_path / "headway.yaml"
    file.write_text(yaml.safe_dump({"jobs": jobs}))
    with pytest.raises(SettingError, match=why) as told:
        ServerConfig.load(file)
    assert "c2VjcmV0" not in str(told.value) and "YWJj" not in str(told.value)


def test_a_generated_webhook_secret_is_valid(tmp_path):
    hook = {"url": "https://x/", "secret": new_secret()}
    assert ServerConfig(jobs={"webhooks": [hook]}).jobs.webhooks[0].secret == hook["secret"]
