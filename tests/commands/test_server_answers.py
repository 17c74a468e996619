"""Commands that ask a server say what it answered, and how they are given a key."""

from hashlib import sha256

import pytest

from headway.commands.diagnose.sources.server_look import look_at
from headway.commands.explain.explain import from_server
from headway.commands.versions.client import VersionsError, ask
from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from tests.server.running_server import fake, serving
from tests.server.versions.test_versions import configured, fast

SECRETS = {name: f"hw-{name}" for name in ("prometheus", "app")}
KEYS = [{"name": name, "sha256": sha256(key.encode()).hexdigest()} for name, key in SECRETS.items()]


@pytest.fixture(scope="module")
def url():
    config = ServerConfig(keys=KEYS, metrics={"key": "prometheus"})
    with serving(config, fake) as (url, _):
        yield url


def test_a_command_without_a_key_names_the_variable_that_gives_it_one(url, monkeypatch):
    monkeypatch.delenv("HEADWAY_API_KEY", raising=False)
    with pytest.raises(SettingError, match=r"no API key.*its key from \$HEADWAY_API_KEY"):
        from_server("chatcmpl-1", url)
    with pytest.raises(SettingError, match=r"no API key.*its key from --key or \$HEADWAY_API_KEY"):
        look_at(url, "")


def test_a_command_with_another_key_says_what_that_key_may_not(url):
    with pytest.raises(SettingError, match=r"this key may not read /metrics; .* --key or"):
        look_at(url, SECRETS["app"])


@pytest.mark.parametrize("ask", [from_server, lambda id, url: look_at(url, "")])
def test_a_server_that_is_not_there_is_told_in_the_systems_own_words(ask):
    with pytest.raises(SettingError, match="refused") as said:
        ask("x", "http://127.0.0.1:9")
    assert "urlopen" not in str(said.value)


def test_the_commands_about_versions_name_the_variable_of_the_admins_key(tmp_path):
    with serving(configured(tmp_path), fast) as (url, _):
        with pytest.raises(VersionsError, match=r"no API key.*its key from \$HEADWAY_ADMIN_KEY"):
            ask(url, "")
        with pytest.raises(VersionsError, match=r"not one of this server's; .*_ADMIN_KEY"):
            ask(url, "another")


def test_a_server_without_versions_is_told_to_be_started_with_a_store(url):
    with pytest.raises(VersionsError, match="start it with --versions STORE"):
        ask(url, SECRETS["app"])
