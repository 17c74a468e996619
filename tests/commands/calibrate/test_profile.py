"""What bounds a step: the rules, and the printed profile of the embedded model."""

import json
from io import StringIO

import pytest
from rich.console import Console

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from headway.commands.calibrate.profile import (
    ProfiledStep,
    bound,
    bytes_of,
    flops_of,
    knee,
    run_profile,
)
from headway.core.cost.features import row_features
from headway.core.cost.step_cost import StepCost
from headway.costing.calibration import Calibration, read_cost_file
from headway.costing.datasheet import model_work, read_shape
from headway.runs.live_testbed import kv_bytes_per_token, load_model, make_corpus_testbed


def step(rows, milliseconds):
    return ProfiledStep(f"{rows}", rows, False, milliseconds * 10**6, 0.0, 0.0, "memory", {})


def test_the_nearer_ceiling_bounds_a_step_or_neither_if_both_are_far():
    assert bound(0.7, 0.3) == "memory" and bound(0.3, 0.7) == "compute"
    assert bound(0.2, 0.1) == "neither"


def test_the_knee_is_the_last_doubling_that_pays():
    curve = [step(1, 10), step(2, 11), step(4, 13), step(8, 20), step(16, 39)]
    assert knee(curve).rows == 4
    assert knee(curve[:3]).rows == 4, "the last size if every doubling pays"


def test_a_step_reads_its_weights_once_and_the_keys_of_every_row():
    work, one = model_work(read_shape("qwen2.5-0.5b")), row_features(999, 1, logits=1)
    both = one + one
    assert bytes_of(work, both) - bytes_of(work, one) == 1_000 * 12_288
    assert flops_of(work, both) == 2 * flops_of(work, one)
    assert flops_of(work, one) == pytest.approx(2 * 494e6, rel=0.1), "two FLOP per parameter"


def test_the_embedded_model_is_profiled(tmp_path):
    loaded = load_model(None, 2)
    testbed, out = make_corpus_testbed(loaded, None), tmp_path / "cost.json"
    cost = StepCost.of(1_000_000)
    found = Calibration(
        *("m", "bfloat16", "cpu", {}, False, cost, kv_bytes_per_token(loaded), 64, 64, 16, 256, 2)
    )
    console = Console(width=80, record=True, file=StringIO())
    run_profile(loaded, testbed, found, out, console)
    said, profile = console.export_text(), read_cost_file(out).about["profile"]
    assert [step["rows"] for step in profile["steps"]] == [1, 2, 4, 8, 0]
    assert all(step["nanoseconds"] > 0 and step["operators"] for step in profile["steps"])
    assert "8 next tokens" in said and "GFLOP/s" in said and "Knee" in said
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(out.read_text())["about"]["profile"]["ceilings"]["read"] > 1e8
