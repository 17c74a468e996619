"""A version that was proposed before another was promoted or taken back undoes neither."""

import pytest

from tests.server.versions.test_versions import CHANGE, SHORT, configured, post, served, state

FEWER = {"config": {"engine": {"slots": 2}}, "reason": "fewer"}
LONGER = {"config": {"engine": {"strategy": {"chunk": 128}}}, "reason": "longer steps"}


@pytest.mark.parametrize("asked", ["promote", "start"])
@pytest.mark.parametrize(
    "promoted, undone", [(FEWER, "engine.slots"), (LONGER, "engine.strategy.chunk")]
)
def test_an_older_proposal_does_not_undo_a_promotion(tmp_path, asked, promoted, undone):
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        post(client, "", promoted)
        assert post(client, "/3/promote").status_code == 200
        answer = post(client, f"/2/{asked}", SHORT if asked == "start" else {})
        assert answer.status_code == 409
        assert answer.json()["error"]["message"] == (
            "version 2 was proposed as a change of version 1, and would undo what version 3 says "
            f"of {undone}: propose the change again"
        )
        assert [state(client, number) for number in (2, 3)] == ["proposed", "promoted"]
        assert client.get("/v1/versions").json()["promoted"] == 3


def test_a_proposal_does_not_bring_back_a_rolled_back_change(tmp_path):
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        post(client, "/2/promote")
        post(client, "", FEWER)
        post(client, "/2/rollback")
        answer = post(client, "/3/promote")
        assert answer.status_code == 409
        assert "would undo what version 1 says" in answer.json()["error"]["message"]


def test_a_version_that_undoes_nothing_may_be_promoted(tmp_path):
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        post(client, "", FEWER)
        post(client, "/3/promote")
        assert post(client, "/1/promote").status_code == 200, "it was promoted before"
        assert post(client, "/2/promote").status_code == 200, "version 1 is promoted again"
        post(client, "", FEWER)
        assert post(client, "/4/promote").status_code == 200
        assert client.get("/v1/config/effective").json()["engine"]["slots"] == 2
