"""PostgreSQL for tests: Debian's package, with its data in a folder of its own. The server listens
on a Unix socket, because a port that was found free may be taken before the server has it."""

import os
import pwd
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
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
    data.mkdir()
    as_user = {"cwd": data}
    if os.getuid() == 0:
        who = pwd.getpwnam(USER)
        os.chown(data, who.pw_uid, who.pw_gid)
        as_user |= {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
    run = {"check": True, "stdout": subprocess.DEVNULL, **as_user}
    subprocess.run([programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "--no-sync"], **run)
    options = f"-h '' -k {data} -F"
    control = [programs / "pg_ctl", "-D", data, "-o", options, "-l", data / "log", "-w"]
    subprocess.run([*control, "start"], **run)
    try:
        yield f"postgresql://{USER}@/postgres?host={data}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **run)
