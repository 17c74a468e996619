"""The files of deploy/ are accepted by their programs, if installed, and agree with headway."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headway.server.config.config import ServerConfig
from headway.server.config.durations import SECOND
from headway.server.config.sections.connections import ConnectionSettings

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = (DEPLOY / "systemd" / "headway.service").read_text()
NGINX = (DEPLOY / "nginx" / "headway.conf").read_text()
CADDY = (DEPLOY / "caddy" / "Caddyfile").read_text()
DOCKER = (DEPLOY / "docker" / "Dockerfile").read_text()


def checked(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr + done.stdout


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"there is no {program} here")


@needs("systemd-analyze")
def test_the_systemd_unit_is_valid(tmp_path):
    unit = tmp_path / "headway.service"
    unit.write_text(UNIT.replace("/opt/headway/bin/headway", shutil.which("true")))
    checked("systemd-analyze", "verify", str(unit))


@needs("nginx")
@needs("openssl")
def test_nginx_accepts_its_configuration(tmp_path):
    subject = ["-subj", "/CN=llm.example.com", "-days", "1"]
    files = ["-keyout", f"{tmp_path}/privkey.pem", "-out", f"{tmp_path}/fullchain.pem"]
    checked("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files)
    site = tmp_path / "headway.conf"
    site.write_text(NGINX.replace("/etc/ssl/headway", str(tmp_path)))
    whole = tmp_path / "nginx.conf"
    http = f"events {{}} http {{ access_log off; include {site}; }}"
    whole.write_text(f"pid {tmp_path}/pid; error_log {tmp_path}/errors; {http}")
    checked("nginx", "-t", "-c", str(whole))


@needs("caddy")
def test_caddy_accepts_its_configuration():
    path = str(DEPLOY / "caddy" / "Caddyfile")
    checked("caddy", "validate", "--adapter", "caddyfile", "--config", path)


def test_the_timeouts_and_body_limits_agree_with_headways_settings():
    server = ServerConfig().server
    drain, most = server.drain_timeout // SECOND, server.limits.body_bytes >> 20
    assert int(re.search(r"TimeoutStopSec=(\d+)", UNIT)[1]) > drain
    assert int(re.search(r"--stop-timeout (\d+)", DOCKER)[1]) > drain
    assert (
        "Type=notify" in UNIT
        and "RestartPreventExitStatus=2" in UNIT
        and "ExecReload=/bin/kill -HUP $MAINPID" in UNIT
    )
    idle = ConnectionSettings().idle_time / SECOND
    assert int(re.search(r"keepalive_timeout (\d+)s", NGINX)[1]) < idle
    assert int(re.search(r"keepalive (\d+)s", CADDY)[1]) < idle
    assert f"client_max_body_size {most}m;" in NGINX
    assert re.search(
        rf"@others not path /v1/files\s+request_body @others {{\s+max_size {most}MiB", CADDY
    )
    whole = (ServerConfig().jobs.file_bytes >> 20) + 1  # the form is larger than its file
    assert re.search(rf"location = /v1/files {{\s+client_max_body_size {whole}m;", NGINX)
    assert re.search(rf"request_body @files {{\s+max_size {whole}MiB", CADDY)
    for file in (UNIT, DOCKER):
        names = set(re.findall(r"HEADWAY_[A-Z_]+", file))
        assert names <= {"HEADWAY_SERVER__HOST", "HEADWAY_LOGS__FORMAT"}
