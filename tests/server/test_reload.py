"""Keys are read again while serving; a wrong file changes nothing."""

import asyncio
import threading

import pytest

from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.config.tenant import Tenant
from headway.server.intake.limits.concurrency import permit
from headway.server.reload import ModelKeys, Reload, Reloading
from tests.server.running_server import fake, service_of


class Said:
    """A log that keeps what is said."""

    def __init__(self):
        self.lines = []

    def __getattr__(self, level):
        return lambda text, **values: self.lines.append((level, text, values))


def reloading(load, service, log):
    return Reloading(load, service.config, ModelKeys(service).use, log)


def key(name, **more):
    return {"name": name, "sha256": digest(f"hw-{name}").hex(), "tenant": "acme", **more}


def config(*keys, **more):
    return ServerConfig(keys=list(keys), **more)


def reloaded(before, after):
    """The service and what was said. after: a configuration, or the error instead of it."""

    async def go():
        service, log = service_of(before, engine := fake(before)), Said()

        def load():
            if isinstance(after, Exception):
                raise after
            return after

        reloading(load, service, log).reload()
        await asyncio.to_thread(engine.live.close)
        service.close()
        return service, log.lines

    return asyncio.run(go())


def asks(service, name):
    found = service.keys.authenticate(f"Bearer hw-{name}")
    return found.key if isinstance(found, Tenant) else ""


def test_keys_come_and_go_and_what_else_has_changed_is_named():
    after = config(key("a"), key("c", admin=True), prices={"per_hour": 2})
    service, said = reloaded(config(key("a"), key("b")), after)
    assert [asks(service, name) for name in "abc"] == ["a", "", "c"]
    assert service.keys.authenticate("Bearer hw-c").is_admin
    assert [line[:2] for line in said] == [
        ("info", "keys reloaded"),
        ("warning", "prices has changed too, and is not reloaded: restart"),
    ]


def test_what_is_not_in_force_is_named_at_each_reload_until_it_is_taken_back():
    before, told = config(key("a")), []
    dear = config(key("a"), prices={"per_hour": 2})

    async def go():
        found = iter([dear, dear, before])
        service, log = service_of(before, engine := fake(before)), Said()
        again = reloading(lambda: next(found), service, log)
        for _ in range(3):
            log.lines.clear()
            again.reload()
            told.append([text for level, text, _ in log.lines if level == "warning"])
        await asyncio.to_thread(engine.live.close)
        service.close()

    asyncio.run(go())
    prices = "prices has changed too, and is not reloaded: restart"
    assert told == [[prices], [prices], []]


@pytest.mark.parametrize(
    "after, why",
    [
        (SettingError("headway.yaml is not YAML"), "is not YAML"),
        (OSError("File name too long"), "File name too long"),
        (config(), "the last key went"),
        (config({**key("a"), "tenant": "other"}, key("b")), "tenant other is new: that needs a re"),
        (config(key("a"), lanes={"chat": {}}), "lanes neither come nor go"),
    ],
)
def test_what_cannot_be_reloaded_changes_nothing(after, why):
    service, said = reloaded(config(key("a"), key("b")), after)
    assert [asks(service, name) for name in "ab"] == ["a", "b"]
    ((level, text, values),) = said
    assert level == "error" and "all stays as it was" in text and why in values["cause"]


def own(name, **more):
    """A key with a tenant of its own."""
    return key(name, **{"tenant": "", **more})


UNFAIR = {"engine": {"strategy": {"fair": False}}}
OWN_FAIR = {"models": [{"name": "m", "engine": {"strategy": {"fair": True}}}], **UNFAIR}


@pytest.mark.parametrize("more", [{}, OWN_FAIR])
def test_a_key_with_a_tenant_of_its_own_can_be_revoked(more):
    service, said = reloaded(config(own("a"), own("b"), **more), config(own("a"), **more))
    assert [asks(service, name) for name in "ab"] == ["a", ""]
    assert [line[:2] for line in said] == [("info", "keys reloaded")]


@pytest.mark.parametrize("more", [{}, OWN_FAIR])
@pytest.mark.parametrize(
    "keys, why",
    [
        ([own("a"), own("c")], "tenant c is new"),
        ([own("a", weight=2), own("b")], "the weight of tenant a has changed"),
        ([own("a", weight=2)], "the weight of tenant a has changed"),
    ],
)
def test_engines_that_share_by_tenant_learn_no_tenant_and_no_weight(more, keys, why):
    service, ((level, _, values),) = reloaded(
        config(own("a"), own("b"), **more), config(*keys, **more)
    )
    assert [asks(service, name) for name in "ab"] == ["a", "b"]
    assert level == "error" and f"{why}: that needs a restart" in values["cause"]


def test_a_tenant_that_went_can_come_back_and_no_other():
    """The engines know it still."""
    both, alone = config(own("a"), own("b")), config(own("a"))

    async def go():
        service = service_of(both, engine := fake(both))
        files = [alone, config(own("c")), both]
        again, found = reloading(lambda: files.pop(0), service, Said()), []
        for _ in range(3):
            again.reload()
            found.append("".join(asks(service, name) for name in "abc"))
        await asyncio.to_thread(engine.live.close)
        service.close()
        return found

    assert asyncio.run(go()) == ["a", "a", "ab"]


CAP = {"caps": {"money_per_day": 1}}
PAID = {"prices": {"per_million_prompt": 1}, "ledger": {"url": "ledger.db"}}
TWO = {"models": [{"name": "headway-tiny"}, {"name": "other"}]}
SCRAPER = {"metrics": {"key": "a"}}
RENAMED = {"metrics": {"key": "b"}}


@pytest.mark.parametrize(
    "before, after, why",
    [
        (config(key("a")), config(key("a", **CAP), **PAID), "a cap on money needs ledger.url"),
        (
            config(key("a"), ledger=PAID["ledger"]),
            config(key("a", **CAP), **PAID),
            "a cap on money needs prices of tokens",
        ),
        (config(key("a"), **SCRAPER), config(key("b"), **RENAMED), "there is no key 'a'"),
        (config(key("a")), config(key("a", models=["other"]), **TWO), "there is no model 'other'"),
    ],
)
def test_keys_are_judged_beside_the_settings_in_force(before, after, why):
    """Those of the file need a restart."""
    service, ((level, _, values),) = reloaded(before, after)
    assert [asks(service, name) for name in "ab"] == ["a", ""]
    assert service.config.keys == before.keys
    assert level == "error" and why in values["cause"] and "restart" in values["cause"]


def test_the_default_lane_of_the_server_stays():
    default = {"default_lane": "offline"}
    service, said = reloaded(config(key("a")), config(key("a"), key("b"), server=default))
    for name in "ab":
        assert service.keys.authenticate(f"Bearer hw-{name}").default_lane == "standard"
    assert said[1][1] == "server has changed too, and is not reloaded: restart"


@pytest.mark.parametrize(
    "store, how", [("", "restart"), ("versions.db", "propose a version, or restart")]
)
def test_a_changed_lane_needs_a_version_only_where_versions_are_kept(store, how):
    """A function has no versions either."""
    versions = {"versions": {"store": store}} if store else {}
    slower = {"lanes": {name: {} for name in config().lanes}}
    _, said = reloaded(config(key("a"), **versions), config(key("a"), **slower, **versions))
    assert said[1][1] == f"lanes has changed too, and is not reloaded: {how}"


def test_what_a_key_has_used_does_not_come_back():
    """Else a reload would be a way around its limits."""
    limited = key("a", requests_per_minute=1, concurrent=1)
    before = config(limited, key("b"))

    async def go():
        service = service_of(before, engine := fake(before))
        tenant = service.keys.authenticate("Bearer hw-a")
        assert service.keys.ask(tenant, 1) == 0 and service.keys.begin(tenant)
        more = config({**limited, "tokens_per_minute": 5}, key("b"))
        faster = config({**limited, "requests_per_minute": 5}, key("b"))
        for after in (before, more, faster):
            reloading(lambda after=after: after, service, Said()).reload()
            assert not service.keys.begin(tenant), "one runs still"
            assert service.keys.ask(tenant, 2) > 0
        service.keys.end(tenant)
        assert service.keys.begin(tenant)
        await asyncio.to_thread(engine.live.close)
        service.close()

    asyncio.run(go())


def test_a_key_that_goes_and_comes_back_knows_of_its_requests():
    """Those that ran meanwhile, too."""
    limited = key("a", concurrent=1)
    with_it, without = config(limited, key("b")), config(key("b"))

    async def go():
        service = service_of(with_it, engine := fake(with_it))

        def reload(after):
            reloading(lambda: after, service, Said()).reload()

        tenant = service.keys.authenticate("Bearer hw-a")
        permits = [permit(service.keys, tenant)]
        reload(without)
        assert asks(service, "a") == ""
        reload(with_it)
        assert not service.keys.begin(tenant), "one runs still"
        permits.pop().release()
        assert service.keys.begin(tenant)
        service.keys.end(tenant)
        reload(without)
        permits.append(permit(service.keys, tenant))  # of a job that was taken up before
        reload(with_it)
        assert not service.keys.begin(tenant)
        permits.pop().release()
        assert service.keys.begin(tenant)
        await asyncio.to_thread(engine.live.close)
        service.close()

    asyncio.run(go())


@pytest.mark.parametrize("early", [False, True])
def test_the_file_is_watched(tmp_path, monkeypatch, early):
    """early: it is written after the configuration was loaded, and before the server is ready."""
    monkeypatch.setattr("headway.server.reload.LOOK", 0.01)
    file = tmp_path / "headway.yaml"
    file.write_text("one")

    async def go():
        before = config(key("a"))
        service, seen = service_of(before, engine := fake(before)), asyncio.Event()

        def load():
            seen.set()
            return before

        reload = Reload.of(load, file, threading.Event())
        if not early:
            task = reload.begin(before, ModelKeys(service).use, Said())
            await asyncio.sleep(0)
        file.write_text("another one")
        if early:
            task = reload.begin(before, ModelKeys(service).use, Said())
        await asyncio.wait_for(seen.wait(), 30)
        task.cancel()
        await asyncio.to_thread(engine.live.close)
        service.close()

    asyncio.run(go())
