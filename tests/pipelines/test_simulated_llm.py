"""An LLM as a stage of a simulated pipeline: the engine of a live one, in the same virtual time."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from headway import LLM, Options, Pipeline, each, stage
from headway.core.cost.step_cost import StepCost
from headway.core.request import Finish
from headway.costing.calibration import write_cost_file
from headway.errors import SettingError
from headway.executor.fake import FakeExecutor
from headway.models import EMBEDDED
from headway.pipelines.simulated.llm_stage import SimulatedLLM
from headway.pipelines.simulated.plan import plan_of, read_plan
from headway.pipelines.simulated.simulate import simulate_pipeline
from headway.pipelines.simulated.stage import SimulatedStage
from headway.sim.executor import PricedExecutor
from tests.commands.small_cost_model import CALIBRATION
from tests.pipelines.fake_time import FakeTime
from tests.pipelines.test_simulated import poisson, told

MS = 1_000_000
COST = StepCost.of(2 * MS, per_token=MS // 10)
PROMPT, ANSWER = 12, 7


def model(**rest):
    return SimulatedLLM("generate", COST, **{"prompts": (PROMPT,), "answers": (ANSWER,), **rest})


def searched(last, widths=(1, 3, 8)):
    first = stage(SimulatedStage("retrieve", 0.004, 0.001, widths=widths))
    return first >> each(stage(SimulatedStage("rerank", 0.01, 0.002))) >> stage(last)


def test_a_request_alone_takes_the_steps_of_its_prompt_and_its_answer():
    (row,) = simulate_pipeline(searched(model(), widths=(3,)), [0], seed=None).rows
    row.check()
    assert [visit.service for visit in row.visits] == [
        5 * MS,
        16 * MS,
        2 * MS + 12 * MS // 10 + (ANSWER - 1) * (2 * MS + MS // 10),
    ]
    assert row.good and row.nanoseconds == row.total


def test_requests_join_and_leave_a_running_batch():
    found = simulate_pipeline(searched(model(slots=8)), poisson(150, 60, 1), seed=2)
    assert all(row.good for row in found.rows)
    assert sum(row.nanoseconds for row in found.rows) < sum(row.service for row in found.rows)
    assert len({row.visits[-1].service for row in found.rows}) > 3, "each met others"


def test_lengths_follow_the_seed_and_less_kv_memory_makes_longer_queues():
    several = model(prompts=(4, 40), answers=(2, 20), slots=4, kv_tokens=64)
    arrivals = poisson(40, 40, 3)
    first, again = (simulate_pipeline(searched(several), arrivals, seed=4) for _ in range(2))
    assert first.rows == again.rows and all(row.good for row in first.rows)
    roomy = model(prompts=(4, 40), answers=(2, 20), slots=4)
    other = simulate_pipeline(searched(roomy), arrivals, seed=4)
    assert sum(r.queue for r in other.rows) < sum(r.queue for r in first.rows)


def test_an_expired_workflow_leaves_its_batch():
    graph = searched(model(slots=1), widths=(1,))
    found = simulate_pipeline(graph, [0, MS, 2 * MS], deadline=45 * MS, seed=None)
    assert [row.finish for row in found.rows].count(Finish.EXPIRED) == 2
    assert all(pace.inside == pace.coming == 0 for pace in found.paces)


def test_a_live_pipeline_with_an_llm_has_the_rows_of_the_simulated_one(monkeypatch):
    """One workflow runs at a time, on a clock that only calls and steps move. The executor is the
    fake one with priced steps. Both have the same scheduler, stage deadlines and workflows in time,
    to the nanosecond."""
    widths, gap, deadline = (1, 3, 8, 20), 500 * MS, 60 * MS
    arrivals = [gap * (at + 1) for at in range(40)]
    simulated = simulate_pipeline(
        searched(model(), widths), arrivals, deadline=deadline, seed=5
    ).rows
    attained = sum(row.good for row in simulated)
    assert 5 < attained < 35, "some are in time and some are not"
    clock = FakeTime(monkeypatch)
    plan = SimpleNamespace(num_blocks=200, block_size=16, context=512)
    loaded = SimpleNamespace(
        executor=PricedExecutor(COST, clock, FakeExecutor(200, 16)),
        plan=plan,
        folder=EMBEDDED,
        dtype="none",
        device="cpu",
        vocab=4_096,
        eos=frozenset(),
    )
    monkeypatch.setattr("headway.llm.llm.load", lambda *_: loaded)

    def found(id):
        return [id] * Random(f"5 retrieve {id} ()").choice(widths)

    live = []
    options = Options(max_tokens=ANSWER, ignore_eos=True)
    with LLM() as llm:
        prepare = llm.prepare
        llm.prepare = lambda ids, options: prepare([5] * PROMPT, options)
        graph = (
            stage(clock.taking("retrieve", 4 * MS, MS, found), name="retrieve")
            >> each(stage(clock.taking("rerank", 10 * MS, 2 * MS, lambda id: id), name="rerank"))
            >> stage(llm, options=options)
        )
        with Pipeline(graph, deadline=deadline / 1e9, rows=live.append) as made:
            for id, arrival in enumerate(arrivals, 1):
                clock.shown = arrival
                made.submit(id).exception(30)
                assert clock.shown < arrival + gap
    assert [told(row) for row in live] == [told(row) for row in simulated]
    assert sum(row.good for row in live) == attained


def cost_file(folder):
    write_cost_file(replace(CALIBRATION, cost=COST), folder / "cost.json")
    return folder / "cost.json"


PLAN = """deadline: 0.2
stages:
- {name: retrieve, base: 0.004, per_item: 0.001, width: [1, 3, 8]}
- each:
  - {name: rerank, base: 0.004, per_item: 0.0005, size: 16}
- {name: generate, cost: cost.json, prompt: 12, answer: [4, 10], slots: 2, largest: 16}
"""


def test_a_plan_names_a_cost_file_beside_it(tmp_path):
    cost_file(tmp_path)
    (tmp_path / "stages.yaml").write_text(PLAN)
    plan = read_plan(tmp_path / "stages.yaml")
    llm = plan.stages[2]
    assert (llm.prompts, llm.answers, llm.slots, llm.most) == ((12,), (4, 10), 2, 16)
    assert llm.cost == COST and plan_of(plan.plain, "again").plain == plan.plain
    assert plan.items == (1.0, 4.0, 1.0)


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"answer": 3}, "needs `prompt`, in tokens"),
        ({"prompt": 3, "answer": []}, "answer is empty"),
        ({"prompt": 3, "answer": 0}, "it must be 1 or more"),
        ({"prompt": 3, "answer": 3, "size": 4}, "'size' is not known"),
        ({"prompt": 3, "answer": 3, "slots": 4, "largest": 2}, "largest is 2, and slots 4"),
        ({"prompt": 30, "answer": 3, "kv_tokens": 32}, "a request of 33 tokens never fits"),
        ({"prompt": 3, "answer": 3, "cost": 1.5}, "cost is the name of a file"),
        ({"prompt": 3, "answer": 3, "cost": "no.json"}, "no.json cannot be read"),
    ],
)
def test_an_invalid_llm_of_a_plan_is_refused_with_the_reason(tmp_path, fields, said):
    given = {"name": "generate", "cost": str(cost_file(tmp_path)), **fields}
    with pytest.raises(SettingError, match=said):
        plan_of({"stages": [given]}, "a.yaml", tmp_path)


@pytest.mark.parametrize("wrong", [{"cost": StepCost()}, {"prompts": (0,)}, {"slots": 0}])
def test_an_llm_that_cannot_be_simulated_is_refused(wrong):
    with pytest.raises(SettingError, match="generate"):
        SimulatedLLM(**{"name": "generate", "cost": COST, "prompts": (1,), "answers": (1,)} | wrong)
