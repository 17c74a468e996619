"""The kernels are built once, in a folder private to the user, completely or not at all."""

import os
import shutil
import stat
import subprocess
import sys

import pytest

from headway.executor.torch.config.processor import cpu_flags
from headway.executor.torch.cpu import build
from headway.executor.torch.cpu.build import NEEDED, NoKernelsError, compiled

pytestmark = pytest.mark.skipif(not cpu_flags() >= NEEDED, reason="an x86 processor with AVX2")

FAKE = """#!/bin/sh
echo run >> "{log}"
[ "$1" = --version ] && echo "fake 1" && exit 0
{body}
"""
WRITES = 'while [ "$1" != -o ]; do shift; done; sleep 0.2; echo built > "$2"'


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "headway" / "kernels"


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """A function: the body of a shell script -> the log of a compiler that runs it."""

    def make(body):
        path = tmp_path / "compiler"
        path.unlink(missing_ok=True)  # one that still runs cannot be overwritten
        path.write_text(FAKE.format(log=tmp_path / "log", body=body))
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        return tmp_path / "log"

    return make


def test_the_library_is_built_once_and_the_build_is_announced(home, compiler):
    compiler(WRITES)
    told = []
    file = compiled(told.append)
    assert file.parent == home and file.read_bytes().startswith(b"built\n") and len(told) == 1
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert compiled(told.append) == file and len(told) == 1
    assert sorted(path.name for path in home.iterdir()) == sorted([file.name, "lock"])


@pytest.mark.parametrize("harm", [lambda whole: b"", lambda whole: whole[:-9], lambda whole: b"b"])
def test_a_damaged_library_is_built_again(home, compiler, harm):
    compiler(WRITES)
    file, told = compiled(str), []
    whole = file.read_bytes()
    file.write_bytes(harm(whole))
    assert compiled(told.append).read_bytes() == whole and len(told) == 1


def test_a_changed_source_is_built_as_another_library(home, compiler, monkeypatch, tmp_path):
    compiler(WRITES)
    first = compiled(str)
    changed = tmp_path / "native"
    shutil.copytree(build.SOURCES, changed)
    monkeypatch.setattr(build, "SOURCES", changed)
    assert compiled(str) == first
    header = changed / "vectors.h"
    header.write_text(header.read_text() + "\n")
    assert compiled(str) != first


def test_processes_that_start_together_build_the_library_once(home, compiler):
    log = compiler(WRITES)
    asked = "from headway.executor.torch.cpu.build import compiled; print(compiled())"
    command = [sys.executable, "-c", asked]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [process.communicate(timeout=60) for process in started]
    assert len({out for out, _ in said}) == 1 and sum("Building" in err for _, err in said) == 1
    sources = len(list(build.SOURCES.glob("*.cpp")))
    assert log.read_text().count("run") == 3 + sources + 1, "a version each; parts; one library"


def test_a_later_build_removes_what_a_killed_one_left(home, compiler):
    compiler("kill -9 $PPID")
    asked = "from headway.executor.torch.cpu.build import compiled; compiled()"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True).returncode == -9
    assert len(list(home.glob("build-*"))) == 1
    compiler(WRITES)
    file = compiled(str)
    assert sorted(path.name for path in home.iterdir()) == sorted([file.name, "lock"])


def test_a_failed_build_reports_the_compilers_error_and_leaves_no_file(home, compiler):
    compiler('echo "products.cpp:1: no" >&2; exit 1')
    with pytest.raises(NoKernelsError, match=r"failed: products\.cpp:1: no"):
        compiled(str)
    assert [path.name for path in home.iterdir()] == ["lock"]


def test_a_cache_folder_that_others_can_write_to_is_refused(home, compiler):
    compiler(WRITES)
    home.mkdir(parents=True)
    home.chmod(0o777)
    with pytest.raises(NoKernelsError, match="must be yours alone"):
        compiled(str)


@pytest.mark.skipif(os.getuid() == 0 and not os.path.exists("/dev/full"), reason="no such device")
def test_a_cache_folder_that_cannot_be_written_is_reported(monkeypatch, compiler):
    compiler(WRITES)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.raises(NoKernelsError, match="cache"):
        compiled(str)
