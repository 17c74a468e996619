"""A version that is promoted by itself: better, and judged by every guardrail with traffic."""

import pytest

from tests.server.versions.test_versions import CHANGE, SHORT, complete, configured, post, served


@pytest.mark.parametrize("fewest, state", [(3, "promoted"), (99, "proposed")])
def test_a_better_version_is_promoted_if_its_guardrails_were_judged(
    tmp_path, work_clock, fewest, state
):
    """Version 2 is slow and in force, version 3 is not."""
    with served(configured(tmp_path), work_clock.slowed) as (client, front):
        post(client, "", CHANGE)
        post(client, "/2/promote")
        expects = {"figure": "ttft_p95", "lane": "chat", "change": -0.1}
        change = {"config": {"engine": {"strategy": {"chunk": 128}}}, "reason": "faster"}
        post(client, "", {**change, "expects": expects})
        plan = {**SHORT, "fewest": fewest, "longest": "10s", "seed": 5, "promote_if_better": True}
        assert post(client, "/3/start", plan).status_code == 200
        work_clock.asked(front, lambda number: complete(client))
        found = client.get("/v1/versions/3").json()
        assert found["events"][-1]["details"]["measured"]["is_better"]
        assert found["state"] == state
