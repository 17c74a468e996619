"""PostgreSQL for tests: Debian's package, started on loopback in a folder of its own."""

import os
import pwd
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "postgres"  # the server refuses to run as root


def _programs():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else Path(shutil.which("initdb") or "/nowhere/initdb").parent


@contextmanager
def postgresql(folder):
    """Gives the URL of an empty database; skips where PostgreSQL is not installed."""
    programs, data = _programs(), Path(folder) / "data"
    if not (programs / "initdb").exists():
        pytest.skip("PostgreSQL is not installed")
    as_user = {}
    if os.getuid() == 0:
        who = pwd.getpwnam(USER)
        data.mkdir()
        os.chown(data, who.pw_uid, who.pw_gid)
        for parent in (data.parent, *data.parent.parents):
            if parent.stat().st_uid == 0 and parent != Path("/") and parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o011)
        as_user = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": [], "cwd": data}
    run = {"check": True, "stdout": subprocess.DEVNULL, **as_user}
    subprocess.run([programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "--no-sync"], **run)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"-p {port} -h 127.0.0.1 -k {data} -F"
    start = [programs / "pg_ctl", "-D", data, "-o", options, "-l", data / "log", "-w"]
    subprocess.run([*start, "start"], **run)
    try:
        yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*start, "-m", "immediate", "stop"], **run)
