"""Benchmarks fall short where something was not measured, not answered, or answered wrongly."""

import json
from math import inf, nan

import pytest

from benchmarks.report import Figure, finish


def finished(figures, capsys):
    """The exit status with --check, and the figures of the JSON line."""
    status = finish("some", "What?", 0, figures)
    lines = capsys.readouterr().out.splitlines()
    return status, json.loads(lines[-1], parse_constant=pytest.fail)["figures"] if lines else {}


@pytest.fixture(autouse=True)
def check(monkeypatch):
    monkeypatch.setattr("sys.argv", ["some", "--check"])


@pytest.mark.parametrize("samples", [[nan], [1.0, nan, 0.5], [inf]])
@pytest.mark.parametrize("aim", [{"most": 2.0}, {"least": 0.1}])
def test_what_is_no_finite_number_falls_short_of_any_aim(samples, aim, capsys):
    figures = [Figure("a", samples, **aim), Figure("b", [1.0], **aim)]
    assert finished(figures, capsys) == (1, {"a": None, "b": 1.0})
    assert finished(figures[1:], capsys) == (0, {"b": 1.0})
    assert finished([Figure("a", samples)], capsys) == (0, {"a": None}), "it has no aim"


def test_a_run_without_figures_has_failed(capsys):
    assert finished([], capsys) == (1, {})
