"""A cost file names the executor and the device that computed its steps, and the machine."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from headway.costing.calibration import read_cost_file, write_cost_file
from headway.costing.machine import cores, processor
from headway.errors import SettingError
from headway.models import display_name
from headway.server.config.config import ServerConfig
from headway.server.config.validate import check_files
from headway.server.engine.cost_file import cost_warnings, step_cost
from tests.commands.small_cost_model import CALIBRATION

VLLM = replace(CALIBRATION, executor="vllm")
WHY = "this cost file is of the executor vllm, not of torch: run headway calibrate --executor torch"


def test_a_cost_file_of_another_executor_is_refused():
    VLLM.check_model(VLLM.model, VLLM.dtype, "vllm")
    VLLM.check_model(VLLM.model, VLLM.dtype)
    with pytest.raises(SettingError, match=WHY):
        VLLM.check_model(VLLM.model, VLLM.dtype, "torch")
    replace(VLLM, analytical=True).check_model(VLLM.model, VLLM.dtype, "torch")


def test_a_server_refuses_another_executors_cost_file_before_loading_anything(tmp_path):
    path = tmp_path / "cost.json"
    write_cost_file(replace(VLLM, model=display_name(None)), path)
    config = ServerConfig(engine={"cost": str(path)})
    with pytest.raises(SettingError, match=WHY):
        check_files(config)
    check_files(ServerConfig(engine={"cost": str(path), "executor": "vllm"}))


def test_a_cost_file_that_names_no_executor_is_of_torch(tmp_path):
    path = tmp_path / "cost.json"
    write_cost_file(VLLM, path)
    assert read_cost_file(path) == VLLM
    plain = json.loads(path.read_text())
    del plain["executor"]
    path.write_text(json.dumps(plain))
    assert read_cost_file(path).executor == "torch"
    path.write_text(json.dumps(plain | {"executor": 3}))
    with pytest.raises(SettingError, match="executor are names"):
        read_cost_file(path)


def test_a_cost_file_of_another_kind_of_device_is_refused(tmp_path):
    here = SimpleNamespace(dtype=CALIBRATION.dtype, device="cpu")
    assert step_cost(CALIBRATION, CALIBRATION.model, here) == CALIBRATION.cost
    gpu, why = replace(CALIBRATION, device="cuda:0"), "is of a model on cuda:0, and this one runs"
    with pytest.raises(SettingError, match=f"{why} on cpu: run headway calibrate"):
        step_cost(gpu, gpu.model, here)
    gpu.check_device("cuda:1")
    sheet = replace(gpu, device="H100", analytical=True)
    assert step_cost(sheet, gpu.model, here) == gpu.cost
    path = tmp_path / "cost.json"
    write_cost_file(replace(gpu, model=display_name(None)), path)
    config = ServerConfig(engine={"cost": str(path)}, models=[{"device": "cpu"}])
    with pytest.raises(SettingError, match=why):
        check_files(config)


def test_a_server_warns_of_a_cost_file_of_another_machine_or_a_data_sheet():
    mine = {"processor": processor(), "cores": cores()}
    here = replace(CALIBRATION, machine=mine, threads=1)
    assert cost_warnings(None) == cost_warnings(here, "cpu", 1) == ()
    assert cost_warnings(replace(here, machine={}), "cuda:0", 9) == ()
    (said,) = cost_warnings(replace(here, machine={"cores": 96}, threads=2), "cpu", 1)
    assert f": cores 96 (here {cores()}), threads 2 (here 1); run headway" in said
    assert cost_warnings(here, "cpu", 1, here.slots) == ()
    (said,) = cost_warnings(here, "cpu", 1, 2 * here.slots)
    assert said.endswith(f"run headway calibrate --slots {2 * here.slots}")
    (said,) = cost_warnings(replace(here, device="H100", analytical=True), "cpu", 2)
    assert said == "the cost file was computed from the data sheet of H100, not measured"
