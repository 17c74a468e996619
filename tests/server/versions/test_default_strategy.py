"""Versions of a server whose file names no strategy: they hold the one that is in force."""

import pytest

from headway.server.config.config import ServerConfig
from headway.server.config.versioned import bases, versioned, with_change
from tests.server.versions.test_versions import post, served

SHORTER = {"config": {"engine": {"strategy": {"chunk": 64}}}, "reason": "shorter steps"}
SHORTEST = {"config": {"engine": {"strategy": {"chunk": 32}}}, "reason": "shorter still"}


def test_a_version_holds_the_strategy_that_lanes_with_budgets_and_a_cost_file_have():
    lanes, engine = {"chat": {"ttft": "1s"}}, {"cost": "cost.json"}
    (base,) = bases(ServerConfig(lanes=lanes, engine=engine)).values()
    strategy = versioned(base)["engine"]["strategy"]
    assert (strategy["order"], strategy["chunk"]) == ("deadline", "slack")


def test_a_change_of_one_part_keeps_the_other_parts_of_the_default_strategy():
    lanes, engine = {"chat": {"ttft": "1s"}}, {"cost": "cost.json"}
    (base,) = bases(ServerConfig(lanes=lanes, engine=engine)).values()
    changed = with_change(base, versioned(base), SHORTER["config"], "the proposal")
    assert (changed.strategy.order, changed.strategy.chunk) == ("deadline", 64)


@pytest.mark.parametrize("asked", ["promote", "start"])
def test_an_older_proposal_does_not_undo_a_change_of_the_default_strategy(tmp_path, asked):
    store = {"store": str(tmp_path / "v.db")}
    with served(ServerConfig(lanes={"chat": {}}, versions=store)) as (client, _):
        post(client, "", SHORTER)
        post(client, "", SHORTEST)
        assert post(client, "/3/promote").status_code == 200
        answer = post(client, f"/2/{asked}")
        assert answer.status_code == 409
        assert "would undo what version 3 says of engine.strategy" in answer.text
