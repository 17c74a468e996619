"""Strategies by name and by YAML: what is made, and refusals with the nearest name."""

from dataclasses import fields, replace

import pytest

from headway.core.lane import Budget, Lane
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.defer import Nobody, WithoutDeadline, WithTimeToSpare
from headway.core.policies.fairly import Fairly
from headway.core.policies.join import Continuous, Dynamic, LengthClasses, Static
from headway.core.policies.memory import Ahead
from headway.core.policies.mix import Alternate, Mixed, PrefillFirst
from headway.core.policies.order import FirstCome, Priority, ShortestFirst
from headway.core.policies.preempt import ByLane, Youngest
from headway.core.policies.relegate import Hopeless, Keep
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.strategies.from_yaml import read_strategies, strategy_from_parts
from headway.strategies.registry import (
    DEFAULT_STRATEGIES,
    PARTS_OF_BUDGETS,
    REGISTRY,
    by_budgets,
    find_strategy,
)
from headway.strategies.strategy import SLOTS
from headway.strategies.strategy_inputs import StrategyInputs
from headway.strategies.window import Window

MS = 1_000_000
VOICE = Lane("voice", Budget(ttft=20 * MS, tpot=15 * MS))
CHAT = Lane("chat", Budget(ttft=400 * MS, tpot=30 * MS), priority=1)
INPUTS = StrategyInputs(
    (VOICE, CHAT, Lane("bulk")), TokenCost(0.1 * MS, 0.3 * MS), 512, tuple(range(1, 91))
)


def made(name):
    return find_strategy(name)(INPUTS).policies


def test_every_name_makes_a_strategy_of_that_name_with_its_rule():
    for name, make in REGISTRY.items():
        strategy = make(INPUTS)
        assert strategy.name == name and strategy.rule
        assert strategy.settings["step_tokens"] == strategy.policies.step_tokens
    assert len(DEFAULT_STRATEGIES) >= 8 and {"dynamic-global", "dynamic-lanes"} <= set(
        DEFAULT_STRATEGIES
    )


def test_all_but_the_strategies_about_order_have_the_same_order():
    orders = {name: made(name).order for name in REGISTRY}
    assert orders.pop("priority") == orders.pop("filler") == Priority()
    assert orders.pop("shortest-first") == ShortestFirst()
    assert orders.pop("deadline-order") == orders.pop("budgets") == ByDeadline()
    assert orders.pop("fair") == Fairly(FirstCome())
    assert set(orders.values()) == {FirstCome()}


def test_budgets_has_the_policies_of_all_its_parts():
    plain, whole = made("first-come"), made("budgets")
    assert replace(plain, order=whole.order) == made("deadline-order")
    assert replace(plain, relegate=whole.relegate) == made("relegation")
    taken = {"preempt": whole.preempt, "defer": WithoutDeadline()}
    assert replace(plain, order=Priority(), **taken) == made("filler")
    assert (made("slack-steps").chunk, made("slack-steps").order) == (whole.chunk, plain.order)
    assert whole == by_budgets(SLOTS) and whole.step_tokens == made("slack-steps").step_tokens
    assert whole.defer == WithTimeToSpare(), "it defers more than filler does"
    assert (whole.order, whole.chunk, whole.relegate) == (ByDeadline(), BySlack(), Hopeless())
    assert not {*PARTS_OF_BUDGETS} & {*DEFAULT_STRATEGIES} and "budgets" in DEFAULT_STRATEGIES


def test_strategies_differ_in_join_mix_and_chunk():
    assert made("one-by-one").join == Continuous(1)
    assert made("static").join == Static(SLOTS)
    assert made("static-together").join == Static(SLOTS, together=True)
    assert made("static-buckets").join.buckets == (32, 64, 128, 256, 512)
    assert made("length-classes").join == LengthClasses(SLOTS, (31, 61), 100 * MS)
    mixes = [made(f"continuous-{each}").mix for each in ("prefill-first", "alternate", "mixed")]
    assert mixes == [PrefillFirst(), Alternate(), Mixed()]
    assert made("continuous-mixed").chunk == Whole()
    assert made("continuous-chunk-96").chunk == Fixed(96)
    assert made("continuous-chunk-96").step_tokens == SLOTS + 96


def test_the_window_for_all_is_that_of_the_most_patient_endpoint():
    assert made("dynamic-global").join == Dynamic(SLOTS, 100 * MS)
    assert made("dynamic-lanes").join.windows["voice"] == 5 * MS
    stated = StrategyInputs(INPUTS.lanes, INPUTS.token_cost, 512, (), {"voice": Window(2 * MS)})
    assert find_strategy("dynamic-lanes")(stated).policies.join.windows["voice"] == 2 * MS


@pytest.mark.parametrize(
    "name, said",
    [
        ("contnuous-mixed", "did you mean continuous-mixed"),
        ("continuous-chunk-0", "there is no strategy 'continuous-chunk-0'"),
        ("continuous-chunk-064", "'continuous-chunk-064': write continuous-chunk-64$"),
        ("continuous-chunk-٦٤", "there is no strategy 'continuous-chunk-٦٤'"),
        ("xyz", "there are one-by-one, static"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name, said):
    with pytest.raises(SettingError, match=said):
        find_strategy(name)


def test_a_list_of_names_is_read():
    assert [make(INPUTS).name for make in read_strategies("static, priority").values()] == [
        "static",
        "priority",
    ]
    with pytest.raises(SettingError, match="named twice"):
        read_strategies("static,static")
    with pytest.raises(SettingError, match="name at least one"):
        read_strategies(" , ")


def test_a_file_of_strategies_is_read(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "static:\n"
        "pairs:\n"
        "  join: {static: {size: 2, buckets: [16, 32], together: true}}\n"
        "  order: priority\n"
        "timed:\n"
        "  join: {dynamic: {size: 4, window: 20, windows: {voice: 1.5}}}\n"
        "classes:\n"
        "  join: {length-classes: {bounds: [64], window: 5}}\n"
        "few-shapes:\n"
        "  join: {length-classes: {bounds: [64, 128], pad_to_bound: true}}\n"
        "small: {join: continuous, mix: alternate, chunk: {fixed: 128}, step_tokens: 144}\n"
    )
    static, pairs, timed, classes, few_shapes, small = (
        make(INPUTS) for make in read_strategies(str(path)).values()
    )
    assert static.name == "static" and pairs.name == "pairs"
    assert pairs.policies.join == Static(2, (16, 32), together=True)
    assert pairs.policies.order == Priority()
    assert timed.policies.join == Dynamic(4, 20 * MS, {"voice": 1_500_000})
    assert classes.policies.join == LengthClasses(SLOTS, (64,), 5 * MS)
    assert few_shapes.policies.join == LengthClasses(SLOTS, (64, 128), 0, pad_to_bound=True)
    policies = small.policies
    assert (policies.mix, policies.chunk, policies.step_tokens) == (Alternate(), Fixed(128), 144)


def test_policies_that_go_by_budgets_can_be_combined_in_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "all:\n"
        "  order: deadline\n"
        "  chunk: slack\n"
        "  preempt: by-lane\n"
        "  defer: time-to-spare\n"
        "  relegate: hopeless\n"
        "  memory: {ahead: {share: 0.6}}\n"
        "tuned:\n"
        "  order: {deadline: {patience: 250, turn: 3, most_in_time: false}}\n"
        "  chunk: {slack: {least: 8, stretch: 4, sure: 0.5}}\n"
        "plain: {preempt: youngest, defer: nobody, relegate: keep, fair: false}\n"
    )
    whole, tuned, plain = (make(INPUTS).policies for make in read_strategies(str(path)).values())
    assert whole == replace(made("budgets"), memory=Ahead(0.6))
    assert tuned.order == ByDeadline(False, 250 * MS, 3)
    assert tuned.chunk == BySlack(8, 4, 0.5)
    assert (tuned.preempt, tuned.defer, tuned.relegate) == (Youngest(), Nobody(), Keep())
    assert plain == strategy_from_parts("plain", {}).policies
    assert whole.predicting == ("ByDeadline", "BySlack", "WithTimeToSpare", "Hopeless")
    assert plain.predicting == ()


def test_each_part_of_budgets_differs_from_first_come_only_in_its_own_policies():
    plain, parts = made("first-come"), {}
    for name in (*PARTS_OF_BUDGETS, "memory-ahead", "fair"):
        policies = made(name)
        parts[name] = {
            each.name
            for each in fields(policies)
            if getattr(policies, each.name) != getattr(plain, each.name)
        }
    assert parts == {
        "deadline-order": {"order"},
        "slack-steps": {"chunk", "step_tokens"},
        "relegation": {"relegate"},
        "filler": {"order", "preempt", "defer"},
        "memory-ahead": {"memory"},
        "fair": {"order"},
    }
    everything = made("budgets")
    assert (everything.preempt, everything.defer) == (ByLane(), WithTimeToSpare())
    assert everything.relegate == Hopeless()


def test_the_size_of_dynamic_groups_may_follow_the_load():
    parts = {"join": {"dynamic": {"size": {"between": [2, 8]}, "window": 5}}}
    assert strategy_from_parts("mine", parts).policies.join == Dynamic(8, 5 * MS, least=2)


def test_the_windows_of_dynamic_groups_may_follow_the_load():
    windows = {"voice": {"between": [1.5, 5]}, "chat": 9}
    parts = {"join": {"dynamic": {"size": 8, "window": {"between": [0, 50]}, "windows": windows}}}
    assert strategy_from_parts("mine", parts).policies.join == Dynamic(
        8,
        50 * MS,
        {"voice": 5 * MS, "chat": 9 * MS},
        lows={"": 0, "voice": 1_500_000},
    )


def test_any_order_can_be_shared_fairly():
    order = strategy_from_parts("all", {"order": "priority", "fair": True}).policies.order
    assert order == Fairly(Priority())
    parts = {"order": "deadline", "fair": {"acme": 3, "bell": 1}}
    assert strategy_from_parts("weighed", parts).policies.order == Fairly(
        ByDeadline(), {"acme": 3, "bell": 1}
    )


@pytest.mark.parametrize(
    "parts, said",
    [
        (
            {"join": {"dynamic": {"size": {"between": [9, 3]}}}},
            "dynamic: between 9 and 3: the first",
        ),
        ({"join": {"dynamic": {"size": {"between": [9]}}}}, "between is two numbers, not 1"),
        ({"join": {"dynamic": {"size": {"betwen": [1, 2]}}}}, "did you mean between"),
        ({"join": {"static": {"size": {"between": [1, 2]}}}}, "a whole number|not a number"),
        ({"fair": 2}, "fair is 2, not true or false"),
        ({"fair": {"acme": 0}}, "fair: the weight of tenant 'acme' is 0: it must be from 1"),
        ({"joyn": "static"}, "'joyn' is not known; did you mean join"),
        ({"join": {"static": {"sise": 3}}}, "static: 'sise' is not known; did you mean size"),
        ({"join": "statc"}, "'statc' is not known; did you mean static"),
        ({"join": ["static"]}, "name one of static"),
        ({"join": {"static": {"size": 0}}}, "size is 0; it must be 1 or more"),
        ({"join": {"static": {"size": 1.5}}}, "a whole number is wanted"),
        ({"join": {"static": {"together": 1}}}, "not true or false"),
        ({"join": {"static": {"buckets": 32}}}, "a list of whole numbers"),
        ({"join": {"dynamic": {"window": "soon"}}}, "window is 'soon', not a number"),
        ({"join": {"dynamic": {"window": {"between": [9, 3]}}}}, "a window between 9 and 3 ms"),
        ({"join": {"dynamic": {"window": {"between": [9]}}}}, "window: between is two numbers of"),
        ({"join": {"dynamic": {"window": {"from": 9}}}}, "window: 'from' is not known"),
        (
            {"join": {"dynamic": {"windows": {"chat": {"between": [9, "x"]}}}}},
            "windows: chat: between is 'x', not a number",
        ),
        (
            {"join": {"length-classes": {"bounds": [9], "window": {"between": [1, 2]}}}},
            "length-classes: its window is one time, and follows no load",
        ),
        ({"order": "fist-come"}, "did you mean first-come"),
        ({"chunk": {"fixed": {}}}, "not a number"),
        ({"step_tokens": True}, "not a number"),
        ({"order": {"deadlin": {}}}, "order: 'deadlin' is not known; did you mean deadline"),
        ({"order": {"deadline": {"patiens": 5}}}, "'patiens' is not known; did you mean patience"),
        ({"order": {"deadline": {"turn": 0}}}, "deadline: turn is 0; it must be 1 or more"),
        ({"order": {"deadline": {"most_in_time": 1}}}, "most_in_time is 1, not true or false"),
        ({"order": {"priority": {"turn": 2}}}, "priority: 'turn' is not known"),
        ({"chunk": "slak"}, "chunk: 'slak' is not known; did you mean slack"),
        ({"chunk": {"slack": {"leest": 5}}}, "slack: 'leest' is not known; did you mean least"),
        ({"chunk": {"slack": {"sure": 2}}}, "mine: chunk: slack: least, stretch and brisk must be"),
        ({"chunk": {"whole": 5}}, "chunk: whole: a mapping of names"),
        ({"relegate": "hopless"}, "relegate: 'hopless' is not known; did you mean hopeless"),
        ({"defer": "without"}, "defer: 'without' is not known; did you mean without-deadline"),
        ({"preempt": "bylane"}, "preempt: 'bylane' is not known; did you mean by-lane"),
        ({"memory": "ahed"}, "memory: 'ahed' is not known; did you mean ahead"),
        ({"memory": {"ahead": {"shere": 1}}}, "ahead: 'shere' is not known; did you mean share"),
        ({"mix": "alternate", "defer": "without-deadline"}, "mine: who misses a step"),
        ({"join": "static", "chunk": {"slack": {}}}, "chunk: slack goes with join: continuous"),
        ({"join": "dynamic", "preempt": "by-lane"}, "by-lane goes with join: continuous"),
        ({"join": "static", "defer": "time-to-spare"}, "time-to-spare goes with join: continuous"),
    ],
)
def test_an_invalid_strategy_is_refused_with_its_place_in_the_file(parts, said):
    with pytest.raises(SettingError, match=said):
        strategy_from_parts("mine", parts)


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    for text, said in (
        ("- a", "a mapping"),
        ("a: [", "is not YAML"),
        ("a: {rule: 2026-02-30}", "the value is not a valid timestamp"),
        (f"a: {'[' * 3_000}{']' * 3_000}", "is not YAML: it is nested too deeply"),
        ("", "a mapping"),
        ("{}", r"^mine\.yaml has no strategies$"),
        ("static:\nstatic: {join: continuous}", r"mine\.yaml is not YAML: 'static' is there twice"),
    ):
        path.write_text(text)
        with pytest.raises(SettingError, match=said):
            read_strategies(str(path))
    with pytest.raises(
        SettingError, match=r"none\.yaml cannot be read: No such file or directory$"
    ):
        read_strategies(str(tmp_path / "none.yaml"))
