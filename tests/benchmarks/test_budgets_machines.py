"""benchmarks.budgets on another machine than the data sheet's, simulated and live."""

import gzip
from dataclasses import replace

import pytest

from benchmarks.budgets.__main__ import parsed
from benchmarks.budgets.flood import flood
from benchmarks.budgets.kept import Kept
from benchmarks.budgets.live import Live
from benchmarks.budgets.machine import EmbeddedModel, place, work
from benchmarks.budgets.mixes import MIXES, SECOND, Place
from benchmarks.budgets.trial import Done, Job, Score, score
from benchmarks.budgets.variants import first_come
from headway.core.cost.step_cost import Rates, StepCost
from headway.core.lane import Budget, Lane
from headway.core.request import NEVER
from headway.costing.calibration import Calibration
from headway.errors import HeadwayError
from tests.commands.testbeds import fake_testbed

EMBEDDED = Calibration(
    model="headway-tiny (embedded)",
    dtype="float32",
    device="cpu",
    machine={},
    analytical=False,
    cost=StepCost(device=Rates(step=5 * 10**9, token=10**8, row=10**8)),
    kv_bytes=1,
    num_blocks=2_048,
    fit=2_048,
    block_size=16,
    context=2_048,
    slots=16,
)


def test_a_mix_on_another_machine_has_lengths_that_fit_and_as_much_work():
    mix = MIXES["bursty"]
    window = mix.windows(None, 6)[0]
    found = place(mix, window, EMBEDDED)
    assert found.scale == 4
    on = mix.on(found)
    before, after = (each.requests(window, 1.0) for each in (mix, on))
    assert len(before) == len(after) and on.slots == 16
    assert max(len(each.prompt) + each.max_tokens for each in after) <= 2_048
    tokens = [sum(len(each.prompt) for each in some) for some in (before, after)]
    assert tokens[1] == pytest.approx(tokens[0] / 4, rel=0.01)
    assert work(EMBEDDED, on.specs(window)) / found.pace == pytest.approx(
        work(mix.calibration(), mix.specs(window)), rel=0.01
    )
    assert after[-1].arrived == pytest.approx(before[-1].arrived * found.pace, rel=0.01)


def test_ttft_and_e2e_budgets_follow_the_pace_and_tpot_does_not():
    mix = MIXES["bursty"]
    chat, batch, offline = mix.on(Place(EMBEDDED, 4, 0.5)).lanes[-3:]
    assert (chat.budget.ttft, chat.budget.tpot) == (1_500_000_000, 80_000_000)
    assert (batch.budget.e2e, batch.budget.ttft) == (60_000_000_000, NEVER)
    assert offline.budget == mix.lanes[-1].budget


def test_slowed_traces_lose_no_requests(tmp_path):
    header = "arrival_s,input_tokens,output_tokens\n"
    for name, last in (("mooncake-conversation", 900), ("servegen-r1-synth", 120)):
        rows = [f"{at},{1_000 + at},10" for at in range(0, last + 1, 30)]
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt") as file:
            file.write(header + "\n".join(rows) + "\n")
    mix = MIXES["long"]
    windows = mix.windows(tmp_path, 6)
    assert [round(each.begin) for each in windows] == [0, 300, 600, 900, 1_200, 1_500]
    whole = mix.requests(replace(windows[0], seconds=10_000), 1.0)
    assert len(whole) == 31 + 5
    reasoning = [each.arrived for each in whole if each.lane == "reasoning"]
    assert reasoning == [at * 16 * 10**9 for at in range(0, 121, 30)]
    assert {each.lane for each in whole} == {lane.name for lane in mix.lanes}


def test_scores_of_another_machine_are_not_used_and_stay_in_the_file(tmp_path):
    source = MIXES["smooth"].windows(None, 6)[0]
    job = Job("smooth", source, 1.0, (first_come(4, 256),))
    kept = Kept(tmp_path / "raw.jsonl", "embedded 1")
    kept.keep(Done(job, {job.variants[0].name: Score({"chat": 3}, {"chat": 10})}))
    assert Kept(tmp_path / "raw.jsonl").scores == {}
    assert Kept(tmp_path / "raw.jsonl", "embedded 1").scores == kept.scores


def test_the_flood_ends_on_a_small_machine_and_interactive_requests_are_served(monkeypatch):
    monkeypatch.setattr("benchmarks.budgets.flood.SEARCHED", 40)
    monkeypatch.setattr("benchmarks.budgets.flood.TOLERANCE", 0.5)
    monkeypatch.setattr("benchmarks.budgets.flood.SHORT", 1.25)
    window = MIXES["smooth"].windows(None, 1)[0]
    found = place(MIXES["smooth"], window, EMBEDDED)
    figures = {each.name: each.value for each in flood(window, found, seconds=60)}
    assert figures["flood_offline_ended"] == 1
    assert figures["flood_good_with"] > figures["flood_good_first_come"]
    with pytest.raises(HeadwayError, match="longer than the interactive traffic beside it"):
        flood(window, found, seconds=1)


def test_a_live_run_counts_time_from_its_own_beginning_and_serves_all(monkeypatch):
    model = EmbeddedModel()
    monkeypatch.setitem(model.__dict__, "calibration", EMBEDDED)
    monkeypatch.setitem(model.__dict__, "testbed", fake_testbed())
    mix = MIXES["smooth"].on(Place(EMBEDDED, 4, 0.01))
    patient = Budget(ttft=600 * SECOND)  # a test takes less; a clock's time since its zero is more
    mix = replace(mix, lanes=tuple(Lane(lane.name, patient) for lane in mix.lanes))
    offered = mix.requests(replace(MIXES["smooth"].windows(None, 60)[0], seconds=10), 1.0)
    found = score(mix, offered, first_come(4, 64, timeout=0.9), Live(model).serve)
    assert sum(found.offered.values()) == len(offered) > 5
    assert found.share == 1


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["--cost", "cost.json"], "--machine embedded or --live"),
        (["--machine", "embedded", "--write"], "tables are of the h100"),
        (["--live", "--part", "flood"], "takes no --part"),
        (["--live", "--loads", "2"], "takes no --loads"),
        (["--chec"], "unrecognized arguments: --chec"),
    ],
)
def test_options_that_would_be_ignored_are_refused(said, why, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["budgets", *said])
    with pytest.raises(SystemExit):
        parsed()
    assert why in capsys.readouterr().err
