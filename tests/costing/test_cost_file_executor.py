"""A cost file names the executor that computed its steps."""

import json
from dataclasses import replace

import pytest

from headway.costing.calibration import read_cost_file, write_cost_file
from headway.errors import SettingError
from headway.models import display_name
from headway.server.config.config import ServerConfig
from headway.server.config.validate import check_files
from tests.commands.small_cost_model import CALIBRATION

VLLM = replace(CALIBRATION, executor="vllm")
WHY = "this cost file is of the executor vllm, not of torch: run headway calibrate --executor torch"


def test_a_cost_file_of_another_executor_is_refused():
    VLLM.check_model(VLLM.model, VLLM.dtype, "vllm")
    VLLM.check_model(VLLM.model, VLLM.dtype)
    with pytest.raises(SettingError, match=WHY):
        VLLM.check_model(VLLM.model, VLLM.dtype, "torch")
    replace(VLLM, analytical=True).check_model(VLLM.model, VLLM.dtype, "torch")


def test_a_server_refuses_it_before_anything_is_loaded(tmp_path):
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
