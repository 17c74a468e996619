"""The examples of docs/routing.md run, and say what the page says."""

import re
from pathlib import Path

import pytest

from headway import routing

PAGE = (Path(__file__).parents[2] / "docs" / "routing.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SAID = [  # what each block prints
    r"(small|large) .*\n(.*\n)*saved -?\d.* device seconds, (unknown|measured)",
    r"-0\.\d+ 0\.9\d* \(0\.9\d*, 0\.9\d*\) .* escalated\ntoo little data: the large target",
    r"\[\(2, 'table'\), \(5, 'model'\), \(3, 'model'\)\]",
    r"\[1\.3, 1\.3, 1\.3, 1\.3, 1\.3, 0\.3,",
]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_example_prints_what_is_expected(number, capsys):
    exec(BLOCKS[number], {"__name__": "routing_page"})
    assert re.match(SAID[number], capsys.readouterr().out)


def test_the_names_on_the_page_are_exported_and_every_export_exists():
    for name in ("Confident", "Valid", "matches", "follows_schema", "Agreed", "Majority", "Best"):
        assert name in PAGE and name in routing.__all__
    for name in routing.__all__:
        assert getattr(routing, name) is not None
