"""Versions in a store: numbers, states and events, in SQLite and PostgreSQL."""

import pytest

from headway.store import versions as module
from headway.store.database import Database
from headway.store.versions import (
    ON_TRIAL,
    PROMOTED,
    PROPOSED,
    REPLACED,
    ROLLED_BACK,
    VersionConflictError,
    VersionEvent,
    Versions,
)

CONTENT = {"model": "m", "config": {"lanes": {}}, "author": "me"}


def event(state, at=5, **details):
    return VersionEvent(state, at, "me", "why", details)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path):
    where = request.getfixturevalue("new_postgres")() if request.param == "postgres" else ""
    found = Database(where or str(tmp_path / "v.db"))
    yield found
    found.close()


def test_versions_are_numbered_and_their_states_are_those_of_their_latest_events(database):
    versions = Versions(database)
    first = versions.add(CONTENT, "d1", event(PROMOTED), is_file=True)
    second = versions.add(CONTENT, "d2", event(PROPOSED, 6))
    assert (first.number, second.number, second.state) == (1, 2, PROPOSED)
    tried = versions.happen(2, event(ON_TRIAL, 7, plan={"seed": 3}), (PROPOSED,))
    assert tried.events[-1].details == {"plan": {"seed": 3}} and tried.content == CONTENT
    with pytest.raises(VersionConflictError, match="version 2 is on trial"):
        versions.happen(2, event(ON_TRIAL), (PROPOSED, ROLLED_BACK))
    versions.happen(2, event(PROMOTED, 8))
    assert [each.state for each in versions.all("m")] == [REPLACED, PROMOTED]
    assert versions.get(1).events[-1].why == "version 2 was promoted"
    assert versions.get(3) is versions.happen(3, event(PROMOTED)) is None


def test_a_version_is_taken_back_whole_or_not_at_all(database):
    versions = Versions(database)
    versions.add(CONTENT, "d1", event(PROMOTED), is_file=True)
    versions.add(CONTENT, "d2", event(PROMOTED, 6))
    versions.add(CONTENT, "d3", event(PROPOSED, 7))
    given = event(ROLLED_BACK, 8), event(PROMOTED, 8)
    with pytest.raises(VersionConflictError, match="version 3 is proposed"):
        versions.take_back(2, given[0], 3, given[1])
    assert [each.state for each in versions.all("m")] == [REPLACED, PROMOTED, PROPOSED]
    gone, put = versions.take_back(2, given[0], 1, given[1])
    assert [(each.number, each.state) for each in (gone, put)] == [(2, ROLLED_BACK), (1, PROMOTED)]
    assert [each.state for each in versions.all("m")] == [PROMOTED, ROLLED_BACK, PROPOSED]


def test_replaced_versions_are_in_the_order_of_their_replacement(database):
    versions = Versions(database)
    versions.add(CONTENT, "d1", event(PROMOTED), is_file=True)
    for digest in ("d2", "d3"):
        versions.add(CONTENT, digest, event(PROPOSED))
    for number, at in ((3, 9), (1, 9), (2, 4)):  # two at one second, then a clock set back
        versions.happen(number, event(PROMOTED, at))
    replaced = sorted(versions.all("m"), key=lambda each: each.order)
    assert [each.number for each in replaced if each.state == REPLACED] == [3, 1]


@pytest.fixture
def servers(new_postgres):
    """The versions of two servers on one store, and the URL of the store."""
    url = new_postgres()
    databases = [Database(url) for _ in range(2)]
    yield [Versions(each) for each in databases], url
    for each in databases:
        each.close()


def test_of_two_versions_promoted_at_once_one_is_replaced(servers, together):
    (one, other), url = servers
    for digest in ("d1", "d2"):
        one.add(CONTENT, digest, event(PROPOSED))
    promotions = [
        lambda: one.happen(1, event(PROMOTED), (PROPOSED,)),
        lambda: other.happen(2, event(PROMOTED), (PROPOSED,)),
    ]
    assert together(url, module, "_append", *promotions)[1]
    assert [each.state for each in one.all("m")] == [REPLACED, PROMOTED]


def test_a_promotion_waits_for_a_rollback_that_has_begun(servers, together):
    (one, other), url = servers
    for digest, state in (("d1", PROMOTED), ("d2", PROMOTED), ("d3", PROPOSED)):
        one.add(CONTENT, digest, event(state))
    changes = [
        lambda: one.take_back(2, event(ROLLED_BACK), 1, event(PROMOTED)),
        lambda: other.happen(3, event(PROMOTED), (PROPOSED,)),
    ]
    assert together(url, module, "_append", *changes)[1]
    assert [each.state for each in one.all("m")] == [REPLACED, ROLLED_BACK, PROMOTED]


def test_two_versions_added_at_once_have_different_numbers(servers, together):
    (one, other), url = servers
    adding = [
        lambda each=each: each.add(CONTENT, "d", event(PROPOSED)).number for each in (one, other)
    ]
    assert together(url, module, "_happen", *adding)[0] == [1, 2]


def test_servers_that_begin_at_once_with_the_same_file_have_one_version(servers, together):
    (one, other), url = servers
    adding = [
        lambda each=each: each.add(CONTENT, "d", event(PROMOTED), is_file=True).number
        for each in (one, other)
    ]
    assert together(url, module, "_happen", *adding)[0] == [1, 1]
    assert one.add(CONTENT, "other", event(PROMOTED), is_file=True).number == 2
