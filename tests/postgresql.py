"""PostgreSQL for tests: Debian's package, with its data in a folder of its own. The server listens
on a Unix socket, because a port that was found free may be taken before the server has it."""

import atexit
import os
import pwd
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

USER = "postgres"  # the server refuses to run as root


def _programs():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else Path(shutil.which("initdb") or "/nowhere/initdb").parent


@contextmanager
def postgresql(folder=None):
    """Gives the URL of an empty database; skips where PostgreSQL is not installed. Its data go to
    folder/data, which other users must be able to reach."""
    programs = _programs()
    if not (programs / "initdb").exists():
        pytest.skip("PostgreSQL is not installed")
    with ExitStack() as stack:
        if folder is None:  # pytest closes its own folder to other users at each start
            folder = stack.enter_context(TemporaryDirectory(prefix="headway-postgres-"))
            Path(folder).chmod(0o711)
        yield stack.enter_context(_running(programs, Path(folder) / "data"))


@contextmanager
def _running(programs, data):
    subprocess.run(["cp", "-a", _made(programs), data], check=True)
    run = _as_user(data)
    options = f"-h '' -k {data} -F"
    control = [programs / "pg_ctl", "-D", data, "-o", options, "-l", data / "log", "-w"]
    subprocess.run([*control, "start"], **run)
    try:
        yield f"postgresql://{USER}@/postgres?host={data}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **run)


@cache
def _made(programs):
    """The data of an empty database, kept until this process ends: each server has a copy, because
    `initdb` takes a second."""
    kept = TemporaryDirectory(prefix="headway-postgres-")
    atexit.register(kept.cleanup)
    Path(kept.name).chmod(0o711)
    data = Path(kept.name) / "data"
    data.mkdir()
    run = _as_user(data)
    if "user" in run:
        os.chown(data, run["user"], run["group"])
    subprocess.run([programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "--no-sync"], **run)
    return data


def _as_user(data):
    """How PostgreSQL's programs are run: in the folder of its data, and never as root."""
    run = {"check": True, "stdout": subprocess.DEVNULL, "cwd": data}
    if os.getuid() == 0:
        who = pwd.getpwnam(USER)
        run |= {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
    return run
