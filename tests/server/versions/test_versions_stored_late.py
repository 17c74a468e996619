"""The end of a trial while the store is away: the verdict is stored once it is back."""

from types import SimpleNamespace

import pytest

from headway.store.database import StoreError
from headway.store.versions import ON_TRIAL, Versions
from tests.server.running_server import until
from tests.server.versions.test_versions import CHANGE, SHORT, configured, post, served, state


class Away:
    """A store that refuses every event except the start of a trial, until it is back."""

    def __init__(self, monkeypatch):
        self.refused, self.is_back = 0, False
        happen = Versions.happen

        def changed(versions, number, event, before=()):
            if event.state != ON_TRIAL and not self.is_back:
                self.refused += 1
                raise StoreError("away")
            return happen(versions, number, event, before)

        monkeypatch.setattr(Versions, "happen", changed)


@pytest.fixture
def away(monkeypatch):
    return Away(monkeypatch)


def verdict(client):
    return client.get("/v1/versions/2").json()["events"][-1]["details"]["verdict"]["outcome"]


def test_a_verdict_is_stored_once_the_store_is_back(tmp_path, away):
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "200ms"})
        until(lambda: away.refused)
        assert state(client, 2) == "on trial"
        away.is_back = True
        until(lambda: client.get("/v1/versions").json()["trial"] is None)
        assert (state(client, 2), verdict(client)) == ("proposed", "ended")
        assert 'outcome="ended"} 1.0' in client.get("/metrics").text, "counted once"


def test_a_verdict_that_is_not_stored_is_in_the_log(tmp_path, away):
    said = []
    log = SimpleNamespace(**dict.fromkeys(("debug", "info", "warning"), lambda *it, **values: None))
    log.error = lambda what, **values: said.append((what, values))
    with served(configured(tmp_path)) as (client, front):
        front.versions.of_model("")._log = log
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "200ms"})
        until(lambda: said)
        away.is_back = True
    what, values = said[0]
    assert what == "the end of the trial is not stored"
    assert (values["version"], values["state"], values["why"]) == (2, "proposed", "away")
    assert values["verdict"].startswith("its time is over")


def test_a_rollback_concludes_a_trial_whose_end_is_not_stored(tmp_path, away):
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "200ms"})
        until(lambda: away.refused)
        assert post(client, "/2/rollback").status_code == 503
        away.is_back = True
        post(client, "/2/rollback")
        until(lambda: state(client, 2) != "on trial")
        last = client.get("/v1/versions/2").json()["events"][-1]
        assert (last["state"], last["author"]) == ("rolled back", "ops")
        assert post(client, "/2/start", {**SHORT, "longest": "60s"}).status_code == 200
        away.is_back = False
        assert post(client, "/2/rollback").status_code == 503, "it says that it is not stored"
        away.is_back = True
