"""The examples of docs/pipelines.md run, and the page names every key of a plan."""

import re
from pathlib import Path

import pytest

from headway.pipelines.simulated.plan import KEYS, LLM_KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
MODELS, PLAN = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_of_retrieve_rerank_and_generate_runs(capsys):
    exec(MODELS, {"__name__": "page"})
    assert len(capsys.readouterr().out) > 10


def test_the_example_of_a_simulated_plan_runs(capsys):
    exec(PLAN, {"__name__": "page"})
    assert re.fullmatch(r"\d+ of 100 in time\n", capsys.readouterr().out)


@pytest.mark.parametrize("key", sorted({*KEYS, *LLM_KEYS}))
def test_the_page_names_each_key_of_a_plan(key):
    assert f"`{key}`" in PAGE
