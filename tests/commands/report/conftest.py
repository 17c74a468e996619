"""The reports that the tests of `headway report` read."""

import pytest

from tests.commands.report.reports import small_reports


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return small_reports(tmp_path_factory)
