"""`headway versions` against a server."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from headway.cli.app import app
from headway.commands.versions.client import VersionsError
from tests.server.running_server import serving
from tests.server.versions.test_split import configured as replicated
from tests.server.versions.test_versions import ADMIN, configured, fast

CHANGE = """
config: {engine: {strategy: {chunk: 64}}}
reason: shorter steps
expects: {figure: ttft_p95, lane: chat, change: -0.1}
"""


def test_a_version_is_proposed_shown_promoted_and_rolled_back(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWAY_ADMIN_KEY", ADMIN)
    file = tmp_path / "change.yaml"
    file.write_text(CHANGE)
    with serving(configured(tmp_path), fast) as (url, _):

        def say(*words):
            done = CliRunner().invoke(app, ["versions", *words, "--url", url])
            assert done.exit_code == 0, done.output
            assert max(map(len, done.output.splitlines())) <= 80 or "--json" in words
            return done.output

        assert "Version 2: proposed" in say("propose", str(file))
        assert say("diff", "1", "2") == "engine.strategy.chunk: 256 -> 64\n"
        assert "expects: ttft_p95 of lane chat -10.0%" in say("show", "2")
        assert json.loads(say("start", "2", "--json"))["state"] == "on trial"
        assert "Version 2 is on trial against 1" in say("list")
        listed = ["versions", "list", "--url", f"{url}/v1"]  # as the server prints its URL
        assert CliRunner().invoke(app, listed).exit_code == 0
        assert "only looking" in say("rollback", "2", "--why", "only looking")
        assert "95 % at any time" in say("show", "2")
        started = json.loads(say("start", "2", "--alpha", "0.2", "--settle", "90s", "--json"))
        assert started["events"][-1]["details"]["plan"]["settle"] == 90 * 10**9
        assert "80 % at any time" in say("rollback", "2")
        assert "Version 2: promoted" in say("promote", "2")
        assert "Version 2: rolled back" in say("rollback", "2")
        file.write_text(CHANGE.replace("64", "32"))
        say("propose", str(file))
        assert "Version 3: rejected" in say("reject", "3")
        with pytest.raises(VersionsError, match="version 3 is rejected"):
            CliRunner().invoke(
                app, ["versions", "start", "3", "--url", url], catch_exceptions=False
            )


def test_a_server_that_does_not_answer_or_has_no_http_url_is_refused(tmp_path):
    for url, why in (("http://127.0.0.1:9", "does not answer"), ("ftp://x", "write http://")):
        with pytest.raises(VersionsError, match=why):
            CliRunner().invoke(app, ["versions", "list", "--url", url], catch_exceptions=False)


@pytest.mark.parametrize(
    "answer, why",
    [
        (b"", "does not answer: Remote end closed"),
        (b"hello\r\n", "does not answer: hello"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "does not answer: IncompleteRead"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\n{", "status 500"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "does not answer as a server of headway"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "does not answer as a server of headway"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "does not answer as a server of headway"),
    ],
)
def test_a_server_that_answers_oddly_is_one_line(answer, why):
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:

        def serve():
            with listening.accept()[0] as asked:
                asked.recv(65_536)
                asked.sendall(answer)

        served = pool.submit(serve)
        words = ["versions", "list", "--url", f"http://127.0.0.1:{listening.getsockname()[1]}"]
        with pytest.raises(VersionsError, match=why):
            CliRunner().invoke(app, words, catch_exceptions=False)
        served.result(60)


@pytest.mark.parametrize(
    "url, key, why",
    [
        ("http://127.0.0.1:x", "", "nonnumeric port"),
        ("http://127.0.0.1:9", "k\u4e16", "a character that cannot be sent"),
    ],
)
def test_what_cannot_be_asked_is_one_line(monkeypatch, url, key, why):
    monkeypatch.setenv("HEADWAY_ADMIN_KEY", key)
    with pytest.raises(VersionsError, match=why):
        CliRunner().invoke(app, ["versions", "list", "--url", url], catch_exceptions=False)


def test_a_proposal_that_is_no_json_is_one_line(tmp_path):
    file = tmp_path / "change.yaml"
    file.write_text("reason: 2026-11-28\nconfig: {}\n")
    with pytest.raises(VersionsError, match=r"the proposal is not JSON: .* date"):
        words = ["versions", "propose", str(file), "--url", "http://127.0.0.1:9"]
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_a_trial_on_a_model_with_replicas_takes_a_share_of_the_traffic(tmp_path):
    file = tmp_path / "change.yaml"
    file.write_text(CHANGE)
    with serving(replicated(tmp_path), fast) as (url, _):

        def say(*words):
            done = CliRunner().invoke(app, ["versions", *words, "--url", url])
            assert done.exit_code == 0, done.output
            return done.output

        assert json.loads(say("propose", str(file), "--model", "writer", "--json"))["number"] == 2
        started = say("start", "2", "--share", "0.5", "--sticky", "tenant", "--json")
        details = json.loads(started)["events"][-1]["details"]
        assert (details["share"], details["sticky"]) == (0.5, "tenant")
        assert "writer#1: version" in say("list", "--model", "writer")
        with pytest.raises(VersionsError, match="did you mean writer"):
            words = ["versions", "list", "--model", "writr", "--url", url]
            CliRunner().invoke(app, words, catch_exceptions=False)
