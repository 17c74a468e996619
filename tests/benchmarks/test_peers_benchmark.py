"""benchmarks.peers draws its workloads, bounds them and compares; a missing peer is a row."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers import bound
from benchmarks.peers.bound import Products
from benchmarks.peers.compared import agreement, figures, ratios, rows, unmeasured
from benchmarks.peers.contestants import Contestant, Stage
from benchmarks.peers.drivers import job
from benchmarks.peers.drivers.job import Stepped
from benchmarks.peers.environments import Kit, MissingError, environment, last_words, offline
from benchmarks.peers.model import tensor_shapes, weight_bytes
from benchmarks.peers.turns import in_turns
from benchmarks.peers.workloads import NAMES, Request, Workload, draw, from_json

MADE = {each.name: each for each in draw(0)}
SLOW = Products("slow", "16bit", {1: 0.010, 4: 0.012, 8: 0.020}, {1: 0.004, 4: 0.004, 8: 0.006})
FEW = Products("few", "16bit", {1: 0.006, 4: 0.030}, {1: 0.001, 4: 0.009})


def workload(*lengths, most=32, name="some", prompt=4):
    requests = [Request(tuple(range(10 * i, 10 * i + prompt)), n) for i, n in enumerate(lengths)]
    return Workload(name, tuple(requests), most)


def measured(engine, precision, *rates, workload="batch32", **more):
    runs = [
        {
            "about": {"version": "1.0", "computes": "bfloat16"},
            "workloads": {workload: {"seconds": 10 / rate, "tokens": 10}},
            "start": 3.0,
            "load": 1.0,
            "others": 0.25,
            **more,
        }
        for rate in rates
    ]
    return Contestant(engine, precision, runs=runs)


def test_workloads_are_drawn_by_the_seed_and_share_nothing_but_the_prefix():
    assert tuple(MADE) == NAMES
    assert draw(0) == list(MADE.values()) != draw(1)
    batch = MADE["batch32"].requests
    assert len(batch) == 32
    assert all(64 <= len(each.prompt) <= 512 and 16 <= each.answer <= 256 for each in batch)
    lengths = [(len(each.prompt), each.answer) for each in batch]
    assert lengths == [(len(each.prompt), each.answer) for each in MADE["conc8"].requests]
    begins = [each.prompt[:16] for name in ("conc8", "batch32") for each in MADE[name].requests]
    assert len(set(begins)) == 64
    assert [MADE[name].shared for name in NAMES] == [0, 0, 0, 512, 512]
    assert [MADE[name].most for name in NAMES] == [1, 8, 32, 32, 32]


def test_a_workload_survives_json_and_a_scale_shortens_every_workload():
    for each in MADE.values():
        assert from_json(each.to_json()) == each
    short = {each.name: each for each in draw(0, 0.1)}
    assert short["single"].answers == 13
    assert short["prefix32"].shared == 51
    assert short["batch32"].answers < 0.2 * MADE["batch32"].answers


def test_a_decode_step_has_a_row_for_each_request_that_still_runs():
    assert bound.decode_rows(workload(4, 2, 1)) == [2, 1, 1]
    assert bound.decode_rows(workload(3, 3, 3, most=2)) == [2, 2, 1, 1]
    rows = bound.decode_rows(MADE["conc8"])
    assert sum(rows) == MADE["conc8"].answers - 32
    assert max(rows) == 8


def test_a_shared_prefix_is_computed_once_or_not_at_all():
    assert bound.prompt_rows(MADE["prefix32"]) == 512 + 32 * 16
    assert bound.prompt_rows(MADE["prefix32_warm"]) == 32 * 16
    assert bound.prompt_rows(workload(1, 1)) == 8


def test_the_fastest_product_is_taken_at_each_size():
    best = bound.fastest([SLOW, FEW, Products("other", "int8", {1: 1e-9}, {1: 1e-9})], "16bit")
    assert best.layers == {8: 0.020, 4: 0.012, 1: 0.006}
    assert best.head == {8: 0.006, 4: 0.004, 1: 0.001}
    more_is_faster = Products("odd", "16bit", {1: 0.010, 4: 0.005}, {1: 0.001, 4: 0.001})
    assert bound.fastest([more_is_faster], "16bit").layers == {4: 0.005, 1: 0.005}


def test_sizes_between_measured_ones_are_interpolated_and_larger_ones_scaled():
    assert bound.at(SLOW.layers, 4) == 0.012
    assert bound.at(SLOW.layers, 6) == pytest.approx(0.016)
    assert bound.at(SLOW.layers, 16) == pytest.approx(0.040)


def test_bounds_come_from_products_and_that_of_one_stream_from_the_bandwidth():
    two = workload(2, 2)
    expected = 8 * 0.020 / 8 + bound.at(SLOW.layers, 2) + bound.at(SLOW.head, 2)
    assert bound.seconds(two, SLOW) == pytest.approx(expected)
    assert bound.rate(two, SLOW, 1.0, 1.0) == pytest.approx(4 / expected)
    one = workload(11, most=1)
    assert bound.rate(one, SLOW, bandwidth=200.0, weights=10.0) == pytest.approx(11 / 10 * 20)


def test_weight_bytes_follow_from_the_parameters_of_the_model():
    numbers = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for _, shape in tensor_shapes())
    assert numbers == 494_032_768  # Qwen2.5-0.5B's
    assert weight_bytes("16bit") < 2 * numbers < 1.001 * weight_bytes("16bit")
    assert 0.5 < weight_bytes("int8") / weight_bytes("16bit") < 0.51


def test_a_ratio_is_to_the_peer_with_the_highest_median_round_by_round():
    assert ratios([12, 10, 9], [[1, 1, 100], [10, 10, 6]]) == [1.2, 1.0, 1.5]
    assert ratios([12], [[]]) == ratios([], [[3]]) == ratios([], []) == []


def in_turns_at(engine, precision, *rates, read=1e9):
    turns = [{"seconds": 10 / rate, "tokens": 10, "read": read} for rate in rates]
    about = {"version": "1.0", "computes": "bfloat16"}
    run = {"about": about, "workloads": {}, "start": 3.0, "load": 1.0, "others": 0.0}
    return Contestant(engine, precision, runs=[run | {"turns": turns}])


def test_figures_are_judged_and_unmeasured_figures_are_named():
    found = figures(
        [
            measured("headway", "16bit", 30, 33),
            measured("llama-cpp", "16bit", 30, 30),
            measured("vllm", "16bit", 20, 20),
            measured("llama-cpp", "int8", 50, 50),
            Contestant("headway", "int8", missing="LLM has no quantize="),
        ],
        {("batch32", "16bit"): 40.0},
    )
    by_name = {each.name: each for each in found}
    assert by_name["batch32_16bit_vs_best"].samples == [1.0, 1.1]
    assert by_name["batch32_16bit_of_bound"].samples == [0.75, 0.825]
    assert by_name["batch32_16bit_of_bound"].falls_short
    assert by_name["start_headway_16bit"].most == 4
    assert by_name["start_vllm_16bit"].most is None
    assert by_name["others_at_work"].value == 0.25
    absent = unmeasured(found)
    assert "batch32_16bit_vs_best" not in absent
    assert {"batch32_int8_vs_best", "prefix32_vs_best", "single_16bit_of_bound"} <= set(absent)


def test_one_stream_is_compared_turn_by_turn_and_bounded_by_each_turns_bandwidth():
    bytes_each = weight_bytes("16bit")
    ours = in_turns_at("headway", "16bit", 8, 10, read=10 * bytes_each)
    ours.runs[0]["turns"][1]["read"] = 20 * bytes_each
    peers = [in_turns_at("vllm", "16bit", 12, 16), in_turns_at("llama-cpp", "16bit", 4, 4)]
    found = figures([ours, *peers], {("single", "16bit"): 100.0})
    by_name = {each.name: each for each in found}
    assert by_name["single_16bit_vs_best"].samples == pytest.approx([8 / 12, 10 / 16])
    assert by_name["single_16bit_of_bound"].samples == pytest.approx([0.72, 0.45])
    assert by_name["single_16bit_of_bound"].least == 0.9
    assert rows([ours], {})[0][5] == "9 (0.58)"


DRIVER = """
import sys
from benchmarks.peers.drivers import job

class Engine(job.Stepped):
    about = {"version": "1", "computes": "nothing"}

    def __init__(self, told):
        kind = open(told.model).read()
        if kind == "refuses":
            raise SystemExit("ValueError: no such model")
        # the first token, the warm-up, one stream that is not timed, two turns
        self.steps = 1 + 8 + 1 + 2 if kind == "tires" else 1_000
        self.asked = []

    def add(self, number, request):
        self.asked.append((number, request.answer))

    def step(self):
        if not self.steps:
            raise SystemExit("ValueError: tired")
        self.steps -= 1
        number, answer = self.asked.pop()
        return {number: [7] * answer}

job.REST, job.READ = 0.0, 1 << 20
job.drive(Engine)
"""


class ScriptedStage(Stage):
    def start(self, each, out, **streams):
        told = [str(out.with_suffix(".job")), str(out)]
        command = [sys.executable, str(self.root / "driver.py"), *told]
        environment = {**os.environ, **offline()}
        return subprocess.Popen(
            command, env=environment, start_new_session=True, text=True, **streams
        )


def test_engines_take_turns_and_one_that_fails_keeps_its_measured_turns(tmp_path, capsys):
    (tmp_path / "driver.py").write_text(DRIVER)
    contestants = []
    for kind in ("answers", "tires", "refuses"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "model").write_text(kind)
        contestants.append(Contestant(kind, "16bit", model=tmp_path / kind / "model"))
    contestants.append(Contestant("absent", "16bit", missing="not made"))
    in_turns(ScriptedStage(tmp_path, 1, 60.0, tmp_path), contestants, workload(3, most=1), 4)
    answers, tires, refuses, absent = contestants
    assert len(answers.rates("single")) == 4
    assert answers.runs[0]["answer"] == [7, 7, 7]
    assert answers.runs[0]["ended"] == ""
    assert refuses.missing == "ValueError: no such model" and not refuses.runs
    assert absent.missing == "not made"
    assert len(tires.turns) == 2 and tires.runs[0]["ended"] == "ValueError: tired"
    assert "is not measured: not made" in capsys.readouterr().out


def test_an_engine_that_never_loads_is_given_up(tmp_path):
    (tmp_path / "driver.py").write_text("import sys\nsys.stdin.read()\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").touch()
    stuck = Contestant("stuck", "16bit", model=tmp_path / "model" / "file")
    in_turns(ScriptedStage(tmp_path, 1, 1.0, tmp_path), [stuck], workload(3, most=1), 2)
    assert stuck.missing == "it took more than 1 s"


def test_the_speed_of_reading_memory_is_measured(monkeypatch):
    monkeypatch.setattr(job, "READ", 1 << 20)
    assert job.bytes_read(2) > 1 << 20


def test_a_missing_or_cut_short_engine_has_a_row_that_says_so():
    table = rows(
        [
            Contestant("vllm", "16bit", missing="make vllm"),
            measured("llama-cpp", "int8", 20, 40, ended="it took more than 900 s"),
        ],
        {("batch32", "int8"): 60.0},
    )
    assert table[0][:3] == ["vllm", "16bit", "make vllm"]
    assert table[1][2] == "1.0: bfloat16; it took more than 900 s"
    assert table[1][3:] == ["3.0", "1.0", "-", "-", "30 (0.50)", "-", "-"]
    assert len(table[0]) == len(table[1])


def test_a_peer_that_is_not_available_has_the_reason(tmp_path):
    stage = Stage(tmp_path, 1, 1.0, tmp_path / "nowhere")
    (tmp_path / "models" / "checkpoint").mkdir(parents=True)
    (tmp_path / "models" / "checkpoint" / "model.safetensors").touch()
    found = {each.name: each.missing for each in stage.contestants(["headway", "vllm"])}
    assert found["headway 16bit"] == ""
    assert "make vllm" in found["vllm 16bit"]
    assert "format" in found["vllm int8"]


def test_an_environment_that_cannot_be_made_says_why(tmp_path):
    kit = Kit([[f"--no-index={tmp_path}", "nothing"]])
    with pytest.raises(MissingError, match="no-index"):
        environment(tmp_path, "some", kit)
    assert not Path(tmp_path, "some", "ready").exists()
    assert last_words("Traceback\nValueError: the cause\nadvice\n") == "ValueError: the cause"
    assert last_words("") == "it said nothing"


def test_answers_are_compared_from_their_beginning():
    found = agreement(
        [
            measured("headway", "16bit", 1, answer=[1, 2, 3]),
            measured("vllm", "16bit", 1, answer=[1, 2, 4]),
            measured("openvino", "16bit", 1, answer=[1, 2, 3]),
        ]
    )
    assert found == ["vllm 16bit 2 of 3", "openvino 16bit 3 of 3"]


class Counting(Stepped):
    """Each step ends the request that was added first."""

    def __init__(self):
        self.running, self.most = [], 0

    def add(self, number, request):
        self.running.append(number)
        self.most = max(self.most, len(self.running))

    def step(self):
        return {self.running.pop(0): [7]}


def test_no_more_requests_are_outstanding_than_the_workload_allows():
    engine = Counting()
    assert engine.run(workload(1, 1, 1, 1, 1, most=2)) == {number: [7] for number in range(5)}
    assert engine.most == 2
