"""The host names and the origins of web pages by which a server without keys may be called."""

import httpx2
import pytest

from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import KeySettings, digest
from tests.server.running_server import fake, serving

ASKED = {"prompt": [5, 6], "max_tokens": 1}
KEY = {"name": "k", "sha256": digest("secret").hex()}
EVIL = {"Host": "evil.example", "Origin": "http://evil.example"}


@pytest.fixture(scope="module")
def served():
    with serving(ServerConfig(), fake) as (url, _):
        yield url


def code(answer):
    return answer.status_code, answer.json()["error"]["code"]


def post(url, **headers):
    return httpx2.post(f"{url}/v1/completions", json=ASKED, headers=headers)


def test_a_body_without_a_content_type_is_refused(served):
    answer = httpx2.post(f"{served}/v1/completions", content=b'{"prompt": [5]}')
    assert answer.status_code == 415 and "the request has none" in answer.text


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:80",
        "LOCALHOST",
        "localhost.",
        "127.0.0.1",
        "127.1.2.3:1",
        "[::1]:80",
    ],
)
def test_loopback_host_names_are_allowed(served, host):
    assert post(served, Host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", "10.0.0.1"],
)
def test_a_foreign_host_name_that_resolves_here_is_refused(served, host):
    assert code(post(served, Host=host)) == (403, "host_not_allowed")


def test_read_only_routes_are_guarded_too_but_probes_are_not(served):
    for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/lanes", "/v1/config/effective"):
        assert code(httpx2.get(f"{served}{path}", headers=EVIL)) == (403, "host_not_allowed")
    for path in ("/health", "/ready"):
        assert httpx2.get(f"{served}{path}", headers=EVIL).status_code == 200


def test_foreign_web_pages_are_refused(served):
    place = served.removeprefix("http://")
    for origin in ("http://evil.example", "null", f"http://{place}0", "http://localhost:1", ""):
        assert code(post(served, Origin=origin)) == (403, "origin_not_allowed")
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert httpx2.options(f"{served}/v1/completions", headers=asked).status_code == 403


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8000", "localhost:8000"),
        ("http://LocalHost", "localhost"),
        ("http://localhost", "localhost:80"),
        ("https://localhost", "localhost:443"),  # behind a proxy that ends TLS
        ("http://[::1]:9000", "[::1]:9000"),
    ],
)
def test_the_servers_own_pages_are_allowed(served, origin, host):
    assert post(served, Origin=origin, Host=host).status_code == 200


def test_configured_origins_are_allowed():
    config = ServerConfig(server={"cors_origins": ["https://shop.example"]})
    with serving(config, fake) as (url, _):
        answer = post(url, Origin="https://shop.example")
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        assert code(post(url, Origin="https://evil.example")) == (403, "origin_not_allowed")
    with serving(ServerConfig(server={"cors_origins": ["*"]}), fake) as (url, _):
        assert post(url, Origin="https://evil.example").status_code == 200


def test_a_page_can_read_all_headers_that_describe_the_answer():
    config = ServerConfig(
        server={"cors_origins": ["https://shop.example"]},
        models=[{"name": "one"}, {"name": "other"}],
        routes={"up": {"cascade": ["one", "other"], "accept": {"regex": "nothing like this"}}},
    )
    with serving(config, fake) as (url, _):
        asked, origin = ASKED | {"model": "up"}, {"Origin": "https://shop.example"}
        answer = httpx2.post(f"{url}/v1/completions", json=asked, headers=origin)
    shown = answer.headers["access-control-expose-headers"].split(", ")
    told = [name for name in answer.headers if name.startswith("x-")]
    assert "x-headway-route-decision" in told and set(told) <= set(shown)


def test_configured_origins_are_normalized_to_the_form_that_browsers_send():
    config = ServerConfig(
        server={
            "cors_origins": ["https://Shop.example", "https://b.example:443", "http://c.example:80"]
        },
    )
    with serving(config, fake) as (url, _):
        for origin in ("https://shop.example", "https://b.example", "http://c.example"):
            answer = post(url, Origin=origin)
            assert answer.headers["access-control-allow-origin"] == origin
    server = ServerConfig(server={"cors_origins": ["http://d.example:443"]}).server
    assert server.cors_origins == ("http://d.example:443",), "the port is not the scheme's own"


def test_configured_hosts_are_allowed_beside_loopback():
    with serving(ServerConfig(server={"hosts": ["gpu.lan", "10.1.1.1"]}), fake) as (url, _):
        for host in ("gpu.lan:8000", "10.1.1.1", "localhost"):
            assert post(url, Host=host).status_code == 200
        assert code(post(url, **EVIL)) == (403, "host_not_allowed")
    with serving(ServerConfig(server={"hosts": ["*"]}), fake) as (url, _):
        assert post(url, Host="evil.example").status_code == 200
        assert code(post(url, Origin="http://evil.example")) == (403, "origin_not_allowed")


def test_a_server_on_all_addresses_allows_ip_addresses_but_no_foreign_name():
    with serving(ServerConfig(server={"host": "0.0.0.0"}), fake) as (url, _):
        assert post(url, Host="192.0.2.7:8000").status_code == 200
        assert code(post(url, **EVIL)) == (403, "host_not_allowed")


def test_with_keys_host_and_origin_are_unchecked_unless_hosts_are_configured():
    keys = [KeySettings(**KEY)]
    with serving(ServerConfig(keys=keys), fake) as (url, _):
        assert code(post(url, **EVIL)) == (401, "invalid_api_key")
        assert post(url, Authorization="Bearer secret", **EVIL).status_code == 200
    with serving(ServerConfig(keys=keys, server={"hosts": ["gpu.lan"]}), fake) as (url, _):
        assert code(post(url, Authorization="Bearer secret", **EVIL)) == (403, "host_not_allowed")
