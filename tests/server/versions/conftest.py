"""The clock of the tests that plant a slow version."""

import pytest

from tests.server.versions.work_clock import WorkClock


@pytest.fixture
def work_clock(monkeypatch):
    made = WorkClock()
    made.rules(monkeypatch)
    return made
