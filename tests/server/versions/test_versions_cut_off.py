"""Changes of versions whose caller leaves: the store and the engines stay on one version."""

import asyncio
import threading

import pytest

from headway.server.versions.bodies import StartBody
from headway.store.versions import ON_TRIAL, VersionEvent, Versions
from tests.server.running_server import until
from tests.server.versions.test_versions import CHANGE, SHORT, configured, post, served, state


class Cut:
    """Holds the store's changes after their commit, while their callers leave."""

    def __init__(self, front):
        self.front, self.keeper = front, front.versions.of_model("")
        self.committed, self.go = threading.Event(), threading.Event()

    def waits(self, change):
        def changed(*given):
            found = change(*given)
            self.committed.set()
            assert self.go.wait(60)
            return found

        return changed

    def off(self, change):
        """Ask for a change, as a handler does, and leave as soon as it is in the store."""
        loop = self.front.model.engine.loop
        asked = asyncio.run_coroutine_threadsafe(change, loop)
        assert self.committed.wait(60)
        asked.cancel()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(60)
        self.go.set()


@pytest.mark.parametrize(
    "before, change, store, expected",
    [
        ([], lambda keeper: keeper.promote(2, "ops", ""), "happen", (2, None)),
        (["/2/promote"], lambda keeper: keeper.roll_back(2, "ops", ""), "take_back", (1, None)),
        (
            [],
            lambda keeper: keeper.start(2, StartBody(**SHORT, longest="60s"), "ops"),
            "happen",
            (1, 2),
        ),
    ],
    ids=["promote", "rollback", "start"],
)
def test_a_change_is_completed_although_its_caller_leaves(
    tmp_path, monkeypatch, before, change, store, expected
):
    with served(configured(tmp_path)) as (client, front):
        post(client, "", CHANGE)
        for path in before:
            assert post(client, path).status_code == 200
        cut = Cut(front)
        with monkeypatch.context() as patched:
            patched.setattr(Versions, store, cut.waits(getattr(Versions, store)))
            cut.off(change(cut.keeper))
        until(lambda: front.versions.store._thread.calls.empty())

        def told():
            found = client.get("/v1/versions").json()
            return found["promoted"], (found["trial"] or {}).get("version")

        assert told() == expected
        assert state(client, expected[0]) == "promoted"
        if expected[0] == 2:
            until(lambda: front.model.engine.load.version == 2)
        if expected[1]:
            assert post(client, "/2/rollback").json()["state"] == "rolled back"


@pytest.mark.parametrize("decided, expected", [("rollback", "rolled back"), ("reject", "rejected")])
def test_a_trial_that_no_server_runs_can_be_rolled_back_or_rejected(tmp_path, decided, expected):
    with served(configured(tmp_path)) as (client, front):
        post(client, "", CHANGE)
        elsewhere = front.versions.store.versions.happen, 2, VersionEvent(ON_TRIAL, 5, "me", "")
        asyncio.run_coroutine_threadsafe(
            front.versions.store.ask(*elsewhere), front.model.engine.loop
        ).result(60)
        assert state(client, 2) == "on trial"
        assert post(client, "/3/reject").status_code == 404
        ended = post(client, f"/2/{decided}", {"why": "no server has it"}).json()
        assert (ended["state"], ended["why"]) == (expected, "no server has it")


def test_a_version_on_trial_cannot_be_rejected(tmp_path):
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "60s"})
        said = post(client, "/2/reject")
        assert said.status_code == 409 and "is on trial" in said.json()["error"]["message"]
        post(client, "/2/rollback")
