"""A trial is ended by an operator although its store is away: the end is stored later."""

import asyncio

from headway.server.versions import opening
from headway.store.database import StoreError
from headway.store.versions import Versions
from tests.server.running_server import until
from tests.server.versions.test_versions import CHANGE, SHORT, configured, held, post, served, state


def away(*given):
    raise StoreError("away")


def test_a_rollback_ends_a_trial_while_the_store_is_away(tmp_path, monkeypatch):
    with served(configured(tmp_path)) as (client, front):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "600s"})
        live = front.versions.of_model("").live
        with monkeypatch.context() as patched:
            for name in ("get", "happen"):
                patched.setattr(Versions, name, away)
            answer = post(client, "/2/rollback", {"why": "callers complain"})
            assert answer.status_code == 503
            assert "the trial has ended, and its end is stored later" in answer.text
            assert live.is_over
        until(lambda: state(client, 2) == "rolled back")
        assert client.get("/v1/versions/2").json()["why"] == "callers complain"


def test_a_rollback_ends_a_trial_while_another_change_waits_for_the_store(tmp_path):
    with served(configured(tmp_path)) as (client, front):
        post(client, "", CHANGE)
        post(client, "", {"config": {"engine": {"slots": 2}}, "reason": "fewer"})
        post(client, "/2/start", {**SHORT, "longest": "600s"})
        keeper = front.versions.of_model("")
        with held(front, 1) as callers:
            rejecting = keeper.reject(3, "ops", "no")
            rejected = asyncio.run_coroutine_threadsafe(rejecting, front.model.engine.loop)
            until(lambda: front.versions.store._thread.calls.qsize() == 1)
            ended = callers.submit(post, client, "/2/rollback")
            until(lambda: keeper.live.is_over)
        assert rejected.result(60).state == "rejected"
        assert ended.result().json()["state"] == "rolled back"


def test_the_live_page_does_not_wait_for_a_store_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "PATIENCE", 0.05)
    with served(configured(tmp_path)) as (client, front), held(front, 1):
        page = client.get("/dashboard")
        assert page.status_code == 200 and 'id="versions"' not in page.text
