"""The examples of the pipelines' page run, and its keys are those of a plan."""

import re
from pathlib import Path

import pytest

from headway.pipelines.simulated.plan import KEYS, LLM_KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
MODELS, PLAN = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_retrieve_rerank_and_generate_with_a_model(capsys):
    exec(MODELS, {"__name__": "page"})
    assert len(capsys.readouterr().out) > 10


def test_a_plan_is_simulated(capsys):
    exec(PLAN, {"__name__": "page"})
    assert re.fullmatch(r"\d+ of 100 in time\n", capsys.readouterr().out)


@pytest.mark.parametrize("key", sorted({*KEYS, *LLM_KEYS}))
def test_each_key_is_said(key):
    assert f"`{key}`" in PAGE
