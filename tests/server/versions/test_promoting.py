"""Automatic promotion: the version is better, every guardrail with traffic was judged, and the
budgets are those of the promoted version."""

import pytest

from headway.server.config.config import ServerConfig
from tests.server.versions.test_versions import (
    CHANGE,
    SHORT,
    SLICES,
    complete,
    configured,
    post,
    served,
)


@pytest.mark.parametrize("fewest, state", [(3, "promoted"), (99, "proposed")])
def test_a_better_version_is_promoted_if_its_guardrails_were_judged(
    tmp_path, work_clock, fewest, state
):
    """Version 2 is slow and in force. Version 3 is not slow."""
    with served(configured(tmp_path), work_clock.slowed) as (client, front):
        post(client, "", CHANGE)
        post(client, "/2/promote")
        expects = {"figure": "ttft_p95", "lane": "chat", "change": -0.1}
        change = {"config": {"engine": {"strategy": {"chunk": 128}}}, "reason": "faster"}
        post(client, "", {**change, "expects": expects})
        plan = {**SHORT, "fewest": fewest, "longest": "4s", "seed": 5, "promote_if_better": True}
        assert post(client, "/3/start", plan).status_code == 200
        work_clock.asked(front, lambda number: complete(client))
        found = client.get("/v1/versions/3").json()
        assert found["events"][-1]["details"]["measured"]["is_better"]
        assert found["state"] == state


@pytest.mark.parametrize("before, after", [("1ms", "10s"), ("10s", "1ms")])
def test_a_changed_budget_alone_makes_a_version_neither_better_nor_worse(
    tmp_path, work_clock, before, after
):
    """Version 1 and version 3 are equally fast. Version 2, which would be slow, is never tried."""
    config = configured(tmp_path)
    lanes = ServerConfig(lanes={"chat": {"ttft": before}, "bulk": {}}).lanes
    with served(config.model_copy(update={"lanes": lanes}), work_clock.slowed) as (client, front):
        post(client, "", CHANGE)
        change = {"config": {"lanes": {"chat": {"ttft": after}}}, "reason": "another yardstick"}
        expects = {"figure": "attainment", "lane": "chat", "change": -0.1}
        post(client, "", {**change, "expects": expects})
        plan = {**SLICES, "longest": "4s", "seed": 5, "promote_if_better": True}
        assert post(client, "/3/start", plan).status_code == 200
        work_clock.asked(front, lambda number: complete(client))
        found = client.get("/v1/versions/3").json()
        assert found["state"] == "proposed" and found["why"].startswith("its time is over")
        measured = found["events"][-1]["details"]["measured"]
        assert (measured["change"], measured["is_better"]) == (0, False)
