"""A request that asks for what the executor cannot do is a 400 with the executor's name."""

import httpx2
import pytest

from headway.executor.traits import Traits
from headway.server.config.config import ServerConfig
from tests.server.running_server import fake, serving


@pytest.mark.parametrize(
    "lacking, more, cause",
    [
        ({"logprobs": False}, {"logprobs": 1}, "gives no log-probabilities"),
        (
            {"grammars": False},
            {"response_format": {"type": "json_object"}},
            "obeys no grammars",
        ),
        (
            {"least_temperature": 0.01},
            {"temperature": 0.005},
            "samples at a temperature of 0 or from 0.01 on, not at 0.005",
        ),
        (
            {"most_temperature": 1.5},
            {"temperature": 2.0},
            "samples at a temperature of 1.5 at most, not at 2.0",
        ),
    ],
)
def test_options_that_the_executor_lacks_are_refused_with_its_name(lacking, more, cause):
    asked = {"prompt": "x", "max_tokens": 2, "temperature": 0}
    with serving(ServerConfig(), fake) as (url, front):
        front.model.ready(
            front.model.tokenizer, frozenset({2}), Traits("a small executor", **lacking)
        )
        plain = httpx2.post(f"{url}/v1/completions", json=asked, timeout=60)
        answer = httpx2.post(f"{url}/v1/completions", json=asked | more, timeout=60)
    assert plain.status_code == 200
    assert answer.status_code == 400
    said = answer.json()["error"]
    assert (said["message"], said["code"]) == (f"a small executor {cause}", "not_supported")
