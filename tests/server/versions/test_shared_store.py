"""Two servers that share a store of versions in PostgreSQL."""

import asyncio
from contextlib import ExitStack

import pytest

from headway.server.config.config import ServerConfig
from headway.server.versions.stored import VersionStore
from headway.store.versions import PROMOTED, VersionEvent
from tests.server.versions.test_versions import CHANGE, LANES, SHORT, post, served, state

FEWER = {"config": {"engine": {"slots": 2}}, "reason": "fewer"}


@pytest.fixture
def url(new_postgres):
    return new_postgres()


@pytest.fixture
def two(url):
    engine = {"strategy": {"join": "continuous", "chunk": 256}, "slots": 4}
    config = ServerConfig(lanes=LANES, engine=engine, versions={"store": url})
    with ExitStack() as stack:
        yield [stack.enter_context(served(config))[0] for _ in range(2)]


def in_force(client):
    found = client.get("/v1/versions").json()
    return found["promoted"]


def test_a_version_beyond_the_stores_numbers_is_missing(two):
    one, _ = two
    for number in (2**31, 2**62):
        assert one.get(f"/v1/versions/{number}").status_code == 404


@pytest.mark.parametrize("asked", ["promote", "start"])
def test_a_server_does_not_undo_what_another_has_promoted(two, asked):
    one, other = two
    post(one, "", CHANGE)
    post(other, "", FEWER)
    assert post(one, "/2/promote").status_code == 200
    answer = post(other, f"/3/{asked}", SHORT if asked == "start" else {})
    assert answer.status_code == 409, answer.text
    assert "would undo what version 2 says of engine.strategy.chunk" in answer.text
    assert [state(one, number) for number in (2, 3)] == ["promoted", "proposed"]


def test_what_one_server_has_promoted_or_taken_back_can_be_done_on_the_other_too(two):
    one = two[0]
    post(one, "", CHANGE)
    for client in two:
        assert post(client, "/2/promote").status_code == 200
        assert in_force(client) == 2
    for client in two:
        answer = post(client, "/2/rollback", {"why": "no"})
        assert (answer.status_code, answer.json()["state"]) == (200, "rolled back")
        assert in_force(client) == 1
    events = one.get("/v1/versions/2").json()["events"]
    assert [each["state"] for each in events] == ["proposed", "promoted", "rolled back"]


def test_a_trial_promotes_nothing_that_would_undo_what_another_server_has_promoted(two, url):
    one, other = two
    post(one, "", CHANGE)
    post(other, "", FEWER)
    assert post(one, "/2/promote").status_code == 200
    event = VersionEvent(PROMOTED, 5, "headway", "the expected figure is better")

    async def main():
        store = VersionStore(url)
        try:
            return await store.conclude(3, event, await store.ask(store.versions.get, 1))
        finally:
            await store.close()

    made = asyncio.run(main())
    assert made.state == "proposed"
    assert made.events[-1].why.startswith("the expected figure is better, but version 3 was")
    assert [state(one, number) for number in (2, 3)] == ["promoted", "proposed"]
