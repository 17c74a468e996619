"""One name holds the dtype and the quantisation, such as bfloat16+int8, in settings and files."""

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from headway.cli.app import app
from headway.commands.calibrate.calibrate import CalibrateOptions, run_calibrate
from headway.commands.tune.candidate import Candidate
from headway.commands.tune.site import Site
from headway.core.lane import Lane
from headway.costing.calibration import read_cost_file, write_cost_file
from headway.errors import SettingError
from headway.executor.load import check_executor
from headway.executor.precision import Precision, read_precision, with_quantize
from headway.server.config.config import ServerConfig
from headway.server.config.engine_options import engine_options
from tests.commands.small_cost_model import CALIBRATION


@pytest.mark.parametrize(
    ("dtype", "quantize", "name"),
    [
        ("", "", ""),
        ("bfloat16", "", "bfloat16"),
        ("", "int8", "+int8"),
        ("float32", "int8", "float32+int8"),
        ("float32+int8", "", "float32+int8"),
        ("float32+int8", "int8", "float32+int8"),
    ],
)
def test_dtype_and_quantize_combine_into_one_name(dtype, quantize, name):
    assert with_quantize(dtype, quantize) == name
    assert str(read_precision(name)) == name


def test_a_precision_name_is_parsed_and_an_unknown_quantisation_refused():
    assert read_precision("bfloat16+int8") == Precision("bfloat16", "int8")
    assert read_precision("bfloat16+int8").itemsize == 2, "of what is computed in"
    for wrong in (lambda: read_precision("bfloat16+int4"), lambda: with_quantize("", "int4")):
        with pytest.raises(SettingError, match="quantize must be int8, not int4"):
            wrong()


def test_only_the_torch_executor_accepts_int8():
    check_executor("torch", {}, dtype="+int8")
    with pytest.raises(SettingError, match="quantize int8 needs the executor torch"):
        check_executor("vllm", {}, dtype="bfloat16+int8")


def test_the_server_config_sets_quantize_for_each_model():
    config = ServerConfig(models=[{"dtype": "bfloat16", "quantize": "int8"}])
    assert engine_options(config)["dtype"] == "bfloat16+int8"
    assert engine_options(ServerConfig(models=[{"quantize": "int8"}]))["dtype"] == "+int8"
    with pytest.raises(ValidationError, match="quantize must be int8, not int4"):
        ServerConfig(models=[{"quantize": "int4"}])
    with pytest.raises(ValidationError, match="needs the executor torch"):
        ServerConfig(models=[{"quantize": "int8"}], engine={"executor": "vllm"})


def test_a_cost_file_measured_at_another_precision_is_refused(tmp_path):
    path = tmp_path / "cost.json"
    write_cost_file(replace(CALIBRATION, dtype="bfloat16+int8"), path)
    found = read_cost_file(path)
    found.check_model(found.model, "bfloat16+int8")
    for other in ("bfloat16", "float32+int8"):
        with pytest.raises(SettingError, match=r"in bfloat16\+int8, not of"):
            found.check_model(found.model, other)


def test_the_check_command_counts_int8_weights_as_smaller():
    def said(*options):
        done = CliRunner().invoke(app, ["check", "--json", "--dtype", "bfloat16", *options])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    plain, small = said(), said("--quantize", "int8")
    assert small["shape"]["dtype"] == "bfloat16+int8"
    assert small["shape"]["weights"] < 0.6 * plain["shape"]["weights"]
    assert small["room"]["second_head"] == 0


@pytest.mark.parametrize("option", [{"profile": True}, {"accelerator": "l4", "model": "x"}])
def test_calibrate_refuses_int8_with_profile_or_accelerator(option):
    with pytest.raises(SettingError, match="knows no weights in 8 bits"):
        run_calibrate(CalibrateOptions(dtype="+int8", **option), console=None)


def test_a_tuned_config_names_dtype_and_quantize_separately():
    site = Site((Lane(),), {}, (64,), 2_048, 16, "cost.json", "", dtype="bfloat16+int8")
    candidate = Candidate("priority", 8)
    assert site.plain(candidate)["models"] == [{"dtype": "bfloat16", "quantize": "int8"}]
