"""The description of the machine, and the cores that other processes use."""

import os
import platform
from types import SimpleNamespace

import pytest

from headway.costing import machine
from headway.costing.machine import Neighbours, own_seconds, processor

STAT = "cpu  9 9 9 9 9 9 9 9 0 0\n{}intr 12 3\n"


def stat(work, rest):
    cores = sorted(machine._cores())
    # user nice system idle iowait irq softirq steal guest guest_nice
    lines = [f"cpu{core} {work} 0 0 {rest} 77 0 0 0 0 0\n" for core in cores]
    return STAT.format("".join(lines) + "cpu99999 8888888 0 0 0 0 0 0 0 0 0\n")


def test_a_machine_is_described_by_its_processor_without_a_host_name(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor : 0\nmodel name\t: A B: C\n\nprocessor : 1\nmodel name\t: A B: C\n")
    assert processor(path) == "A B: C"
    assert processor(tmp_path / "none")
    about = machine.describe_machine()
    assert about["cores"] >= 1 and platform.node() not in about.values()


def test_neighbours_use_the_core_time_that_this_process_does_not(tmp_path, monkeypatch):
    none = {"children_user": 0.0, "children_system": 0.0}
    times = (SimpleNamespace(user=u, system=s, **none) for u, s in ((1.0, 2.0), (4.0, 3.0)))
    monkeypatch.setattr(machine.os, "times", lambda: next(times))
    monkeypatch.setattr(machine.os, "sysconf", lambda name: 100)
    path = tmp_path / "stat"
    path.write_text(stat(1_000, 5_000))
    others = Neighbours(path, tmp_path)
    path.write_text(stat(1_900, 5_100))  # each core worked 9 s of 10; 4 s of the sum were ours
    assert others.cores() == pytest.approx((9 * machine.cores() - 4) / 10)


def test_without_system_figures_no_neighbours_are_reported(tmp_path):
    assert Neighbours(tmp_path / "none").cores() == 0
    assert Neighbours().cores() == 0, "nor before any time has passed"


def test_child_processes_count_as_this_process_and_not_as_neighbours(tmp_path):
    """A worker of vLLM is a child of this process, and has a child of its own here."""
    ticks = os.sysconf("SC_CLK_TCK")
    rows = {41: (os.getpid(), 3), 42: (41, 2), 43: (1, 50), os.getpid(): (1, 70)}
    for pid, (parent, seconds) in rows.items():
        (tmp_path / str(pid)).mkdir()
        fields = ["S", str(parent), *["0"] * 9, str(seconds * ticks), str(ticks), "0"]
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (b) c) {' '.join(fields)}\n")
    (tmp_path / "44").mkdir()  # ended meanwhile: its file is gone
    alone = sum(os.times()[:4])
    assert 0 <= own_seconds(tmp_path) - alone - (3 + 1) - (2 + 1) < 1
