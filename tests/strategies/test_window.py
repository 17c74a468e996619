"""Windows of an endpoint file that follow the load, and the strategies that read them."""

import pytest

from headway.core.lane import Budget, Lane
from headway.core.policies.join import Continuous, Dynamic, LengthClasses
from headway.core.request import NEVER
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.strategies.registry import find_strategy
from headway.strategies.strategy_inputs import StrategyInputs
from headway.strategies.window import Window, read_window

MS = 1_000_000
LANES = Lane("voice", Budget(ttft=20 * MS)), Lane("chat", Budget(ttft=400 * MS)), Lane("bulk")


def made(name, **stated):
    site = StrategyInputs(LANES, TokenCost(1.0, 1.0), 512, (30, 60, 90), stated)
    return find_strategy(name)(site)


def test_a_window_is_read_as_one_time_or_as_a_range():
    assert read_window(30, "chat: window") == Window(30 * MS)
    assert read_window({"between": [1.5, 30]}, "chat: window") == Window(30 * MS, 1_500_000)
    assert (Window(30 * MS).follows, Window(30 * MS, 0).follows) == (False, True)
    assert (Window(30 * MS).text, Window(30 * MS, 5 * MS).text) == ("30 ms", "5 to 30 ms")


@pytest.mark.parametrize(
    "value, said",
    [
        ({"between": [9, 3]}, "chat: a window between 9 and 3 ms: the first must not exceed"),
        ({"between": [9]}, "chat: between is two numbers of milliseconds"),
        ({"between": [-1, 3]}, "chat: between is -1; it must be 0 or more"),
        ({"betwen": [1, 3]}, "chat: 'betwen' is not known; did you mean between"),
        ("soon", "chat is 'soon', not a number"),
    ],
)
def test_an_invalid_window_is_refused_with_its_place(value, said):
    with pytest.raises(SettingError, match=said):
        read_window(value, "chat")


def test_dynamic_lanes_takes_the_window_range_of_each_endpoint():
    strategy = made("dynamic-lanes", voice=Window(9 * MS, 2 * MS))
    join = strategy.policies.join
    assert (join.windows["voice"], join.windows["chat"]) == (9 * MS, 100 * MS)
    assert join.lows == {"voice": 2 * MS}
    assert "voice 2 to 9 ms, chat 100 ms" in strategy.rule


def test_windows_of_endpoints_without_a_ttft_count_and_are_named():
    summaries = Lane("summaries", Budget(e2e=2_000 * MS))
    site = StrategyInputs((*LANES, summaries), TokenCost(1.0, 1.0), 512, (30, 60, 90), {})
    lanes = find_strategy("dynamic-lanes")(site)
    assert lanes.rule.endswith("voice 5 ms, chat 100 ms, summaries 500 ms")
    assert find_strategy("dynamic-global")(site).policies.join == Dynamic(16, 100 * MS), "of TTFTs"
    alone = StrategyInputs((summaries,), TokenCost(1.0, 1.0), 512, (30, 60, 90), {})
    assert find_strategy("dynamic-global")(alone).policies.join == Dynamic(16, 500 * MS)
    stated = made("dynamic-global", bulk=Window(300 * MS))
    assert stated.policies.join == Dynamic(16, 300 * MS), "a window of its own counts, too"


def test_dynamic_global_follows_the_load_if_the_most_patient_endpoint_does():
    strategy = made("dynamic-global", chat=Window(200 * MS, 50 * MS))
    assert strategy.policies.join == Dynamic(16, 200 * MS, lows={"": 50 * MS})
    assert "has waited 50 to 200 ms: one window" in strategy.rule
    other = made("dynamic-global", voice=Window(9 * MS, 2 * MS)).policies.join
    assert other == Dynamic(16, 100 * MS)
    tied = made("dynamic-global", voice=Window(100 * MS, 2 * MS)).policies.join
    assert tied == Dynamic(16, 100 * MS), "of equal windows the fixed one"


def test_length_classes_hold_requests_for_the_upper_end_of_a_range():
    classes = made("length-classes", chat=Window(200 * MS, 50 * MS))
    assert classes.policies.join == LengthClasses(16, (60, 90), 200 * MS)
    assert "begun after 200 ms" in classes.rule


def test_a_window_is_in_a_policy_that_has_its_whole_range():
    window = Window(9 * MS, 2 * MS)
    assert window.is_in(Dynamic(4, 0, {"chat": 9 * MS}, lows={"chat": 2 * MS}), "chat")
    assert window.is_in(Dynamic(4, 9 * MS, lows={"": 2 * MS}), "chat")
    assert not window.is_in(Dynamic(4, 0, {"chat": 9 * MS}, lows={"chat": 3 * MS}), "chat")
    assert not window.is_in(Dynamic(4, 0, {"chat": 9 * MS}), "chat")
    assert not window.is_in(Continuous(4), "chat")
    assert Window() == Window(NEVER, NEVER) and not Window().follows
