"""`--vllm NAME=VALUE`: vLLM's arguments from the command line."""

import pytest

from headway.cli.executor_options import read_vllm
from headway.errors import SettingError


def test_values_are_read_as_yaml_and_names_as_vllm_spells_them():
    given = ["tensor-parallel-size=2", "enforce_eager=true", "quantization=awq", "a={b: [1]}", "c="]
    assert read_vllm(given) == {
        "tensor_parallel_size": 2,
        "enforce_eager": True,
        "quantization": "awq",
        "a": {"b": [1]},
        "c": None,
    }
    assert read_vllm(None) == {}


@pytest.mark.parametrize("given", ["enforce_eager", "=1"])
def test_an_argument_without_a_name_or_a_value_is_refused(given):
    with pytest.raises(SettingError, match=f"--vllm must be NAME=VALUE, not '{given}'"):
        read_vllm([given])


def test_a_value_that_is_not_yaml_is_refused():
    with pytest.raises(SettingError, match=r"--vllm a: '\[1' is not a value"):
        read_vllm(["a=[1"])
