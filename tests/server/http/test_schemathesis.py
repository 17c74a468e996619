"""Random requests from our own /openapi.json: never a 5xx, and only documented answers.

Hypothesis drives the operations directly: schemathesis' own plugin is made for pytest 8.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headway.executor.fake import FakeExecutor
from headway.server.config.config import ServerConfig
from tests.server.running_server import BLOCK, Local, scheduler, serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = 32
# Indices of all operations but those that cancel, delete or read.
WITH_BODY = (0, 1, 3, 4, 5, 6, 7, 8, 18, 19, 25)


def of_short_answers(config):
    """An engine whose context ends an answer that asks for many tokens, or says not how many."""
    return Local(scheduler(config, context=64), FakeExecutor(512, BLOCK))


@pytest.fixture(scope="module")
def operations(tmp_path_factory):
    store = str(tmp_path_factory.mktemp("jobs") / "jobs.db")
    config = ServerConfig(jobs={"store": store}, ledger={"url": store})
    with serving(config, of_short_answers) as (url, _):
        document = schemathesis.openapi.from_url(f"{url}/openapi.json")
        yield [each.ok() for each in document.get_all_operations()]


def test_every_route_is_in_openapi_json(operations):
    assert len(operations) == OPERATIONS


@pytest.mark.parametrize(
    "mode, index",
    [(GenerationMode.POSITIVE, index) for index in range(OPERATIONS)]
    + [
        (GenerationMode.NEGATIVE, index) for index in WITH_BODY
    ],  # the others have no invalid requests
)
def test_answers_conform_to_openapi_json(operations, mode, index):
    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operations[index].as_strategy(generation_mode=mode))
    def one(case):
        case.call_and_validate(checks=CHECKS, timeout=30)

    one()
