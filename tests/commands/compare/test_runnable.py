"""Strategies that the executor cannot run: left out with a message, or refused if named."""

from io import StringIO

import pytest
from rich.console import Console

from headway.commands.compare.cost_source import runnable
from headway.errors import SettingError
from headway.executor.traits import EVERYTHING
from headway.executor.vllm.traits import VLLM_TRAITS
from headway.strategies.from_yaml import read_strategies

MAKES = read_strategies("static,continuous-mixed,dynamic-lanes,priority")


def test_unnamed_group_strategies_are_left_out_on_vllm_with_a_message():
    said = Console(file=StringIO(), width=200)
    assert list(runnable(MAKES, VLLM_TRAITS, False, said)) == ["continuous-mixed", "priority"]
    assert said.file.getvalue() == "Without static, dynamic-lanes: vLLM computes no padding.\n"


def test_a_named_group_strategy_is_refused_on_vllm():
    said = Console(file=StringIO())
    with pytest.raises(SettingError, match="the strategy static: vLLM computes no padding"):
        runnable(MAKES, VLLM_TRAITS, True, said)
    assert list(runnable(MAKES, EVERYTHING, True, said)) == list(MAKES)
    assert said.file.getvalue() == ""
