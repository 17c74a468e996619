"""A cost file is written whole or not at all, and nothing else is touched."""

import os
import resource
import signal
import threading
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("torch")

from headway.commands.calibrate.calibrate import CalibrateOptions, run_calibrate
from headway.costing.calibration import check_writable, read_cost_file, write_cost_file
from headway.errors import SettingError
from tests.commands.small_cost_model import CALIBRATION


def test_writers_of_files_with_one_stem_do_not_mix_or_touch_a_users_part_file(tmp_path):
    (tmp_path / "m-3.part").write_text("mine")
    paths, wrong = [tmp_path / "m-3.1", tmp_path / "m-3.2"], []

    def write(path, slots):
        for _ in range(50):
            try:
                write_cost_file(replace(CALIBRATION, slots=slots), path)
                if read_cost_file(path).slots != slots:
                    wrong.append("mixed")
            except (OSError, SettingError) as error:
                wrong.append(str(error))

    threads = [
        threading.Thread(target=write, args=each) for each in zip(paths, (16, 17), strict=True)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert sorted(os.listdir(tmp_path)) == ["m-3.1", "m-3.2", "m-3.part"]
    assert (tmp_path / "m-3.part").read_text() == "mine"


def test_two_writers_of_one_file_leave_it_whole(tmp_path):
    path, failed = tmp_path / "cost.json", []

    def write(slots):
        for _ in range(50):
            try:
                write_cost_file(replace(CALIBRATION, slots=slots), path)
            except (OSError, SettingError) as error:
                failed.append(error)

    threads = [threading.Thread(target=write, args=(slots,)) for slots in (16, 17)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed and os.listdir(tmp_path) == ["cost.json"]
    assert read_cost_file(path).slots in (16, 17)


def test_a_link_stays_and_the_file_that_it_leads_to_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    for _ in range(2):
        write_cost_file(CALIBRATION, link)
        assert link.is_symlink() and read_cost_file(real) == CALIBRATION


def test_a_target_that_is_no_regular_file_is_refused_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for each in (pipe, tmp_path, tmp_path / "none" / "cost.json"):
        with pytest.raises(SettingError, match="cannot be written as a file; choose one"):
            write_cost_file(CALIBRATION, each)
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "cost.json"
    write_cost_file(CALIBRATION, path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(SettingError, match=r"cost\.json cannot be written: File too large"):
            write_cost_file(replace(CALIBRATION, slots=2), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, heard)
    assert os.listdir(tmp_path) == ["cost.json"] and read_cost_file(path) == CALIBRATION


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    long = tmp_path / ("n" * 300 + ".json")
    for path in (Path("/proc/cost.json"), long):
        with pytest.raises(SettingError, match="cannot be written: "):
            run_calibrate(CalibrateOptions(out=path), Console(file=StringIO()))
    check_writable(tmp_path / "cost.json")
    assert os.listdir(tmp_path) == []


def test_calibrate_replaces_no_input_and_no_file_but_a_cost_file(tmp_path):
    sheets, notes, cost = (tmp_path / name for name in ("mine.yaml", "notes.txt", "cost.json"))
    sheets.write_text("my-card: {memory: 24, bandwidth: 1008, products: 165}\n")
    notes.write_text("mine")
    cost.write_text('{\n  "headway_cost": 1}')
    asked = CalibrateOptions("qwen2.5-0.5b", accelerator="my-card", accelerators=sheets)
    for out, said in ((sheets, "would replace the input"), (notes, "and not a cost file")):
        before = out.read_text()
        with pytest.raises(SettingError, match=said):
            run_calibrate(replace(asked, out=out), Console(file=StringIO()))
        assert out.read_text() == before
    assert run_calibrate(replace(asked, out=cost), Console(file=StringIO())) == 0
    assert read_cost_file(cost).device == "my-card", "an older cost file is replaced"
    curve = CalibrateOptions(out=tmp_path / "cost.png", profile=True)
    with pytest.raises(SettingError, match="--profile draws its curve into"):
        run_calibrate(curve, Console(file=StringIO()))
