"""Pipelines in virtual time, and their agreement with live ones."""

from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import headway
from headway import Pipeline, each, stage
from headway.batching.settings import BatchSettings
from headway.core.request import NEVER, Finish
from headway.errors import SettingError
from headway.pipelines import learned
from headway.pipelines.simulated.plan import plan_of, read_plan
from headway.pipelines.simulated.simulate import simulate_pipeline
from headway.pipelines.simulated.stage import SimulatedStage
from headway.pipelines.split import Fixed, Learned, Undivided
from tests.pipelines.fake_time import FakeTime

MS = 1_000_000


def priced(name, base, per_item=0.0, **rest):
    return stage(SimulatedStage(name, base, per_item, **rest))


def poisson(rate, count, seed):
    random, at, times = Random(seed), 0.0, []
    for _ in range(count):
        at += random.expovariate(rate)
        times.append(int(at * 1e9))
    return times


def three(width=4, slow=1.0, **rest):
    first = priced("find", 0.004, 0.0005, widths=(0, width), **rest)
    return first >> each(priced("rank", 0.004, 0.0002, **rest)) >> priced("answer", 0.01 * slow)


def test_a_workflow_alone_takes_the_time_of_its_calls():
    (row,) = simulate_pipeline(three(), [7 * MS], seed=None).rows
    row.check()
    assert (row.arrived, row.finish, row.between, row.queue) == (7 * MS, Finish.COMPUTED, 0, 0)
    spent = [4_500_000, 4_800_000, 10_000_000]
    if len(row.visits) == 2:  # the first stage found nothing
        spent.pop(1)
    assert [visit.service for visit in row.visits] == spent
    assert row.nanoseconds == row.total == sum(spent)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    arrivals = poisson(300, 150, 1)
    runs = [
        simulate_pipeline(three(cv=0.2), arrivals, deadline=60 * MS, seed=seed).rows
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_a_full_stage_refuses_new_workflows_which_bounds_the_wait_inside():
    graph = priced("quick", 0.001) >> stage(SimulatedStage("slow", 0.1, 0.0, size=1), max_waiting=5)
    found = simulate_pipeline(graph, poisson(500, 200, 1), seed=None)
    assert len(found.rows) + len(found.refused) == 200
    assert max(row.total for row in found.rows) <= 6 * 101 * MS
    assert all(row.good for row in found.rows)


def test_items_of_several_workflows_share_calls():
    found = simulate_pipeline(three(width=8), [0] * 10, seed=3)
    sizes = {visit.batch_items for row in found.rows for visit in row.visits}
    assert max(sizes) > 8


def test_a_stage_that_grows_slow_gets_a_larger_share_of_the_deadline():
    slowed = SimulatedStage("b", 0.004, 0.0005, slowed=((2.0, 4.0),))
    graph = priced("a", 0.004, 0.0005) >> stage(slowed) >> priced("c", 0.004, 0.0005)
    found = simulate_pipeline(graph, poisson(120, 500, 1), deadline=300 * MS)

    def share(rows):
        given = [(row.visits[0].given, row.visits[1].given) for row in rows if row.good]
        return sum(second for _, second in given) / sum(first for first, _ in given)

    before = [row for row in found.rows if 0.3e9 < row.arrived < 2e9]
    after = [row for row in found.rows if row.arrived > 2.5e9]
    assert share(after) > 1.5 * share(before)


@pytest.mark.parametrize("split", [Fixed((1 / 3, 1 / 3, 1 / 3)), Undivided(), Learned()])
def test_every_split_serves_all_where_there_is_time(split):
    found = simulate_pipeline(three(), poisson(50, 100, 1), deadline=10_000 * MS, split=split)
    assert [row.good for row in found.rows] == [True] * 100


@st.composite
def graphs(draw, depth=2):
    parts = []
    for at in range(draw(st.integers(1, 2))):
        name = f"{depth} {at} {draw(st.integers(0, 10**9))}"
        widths = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=2)))
        work = SimulatedStage(
            name,
            draw(st.sampled_from([0.001, 0.01])),
            draw(st.sampled_from([0.0, 0.002])),
            size=draw(st.integers(1, 6)),
            window=draw(st.sampled_from([0.0, 0.01])),
            processes=draw(st.integers(1, 2)),
            cv=draw(st.sampled_from([0.0, 0.5])),
            widths=widths,
        )
        parts.append(stage(work, max_waiting=draw(st.sampled_from([3, 1_000]))))
        if depth and draw(st.booleans()):
            parts.append(each(draw(graphs(depth - 1))))
    chain = parts[0]
    for part in parts[1:]:
        chain = chain >> part
    return chain


@settings(max_examples=120, deadline=None)
@given(
    graphs(),
    st.lists(st.integers(0, 100), min_size=1, max_size=15).map(sorted),
    st.sampled_from([NEVER, 15 * MS, 40 * MS]),
    st.sampled_from([Learned(), Undivided()]),
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 15)), max_size=4),
)
def test_no_workflow_is_lost_or_ends_twice_and_its_row_adds_up(
    graph, arrivals, deadline, split, cancels
):
    times = [at * MS for at in arrivals]
    cancelling = sorted((at * MS, str(id)) for at, id in cancels)
    found = simulate_pipeline(graph, times, deadline=deadline, split=split, cancels=cancelling)
    assert len(found.rows) + len(found.refused) == len(times)
    assert len({row.id for row in found.rows}) == len(found.rows)
    for row in found.rows:
        row.check()
        event(row.finish.value)
        assert row.finish in (Finish.COMPUTED, Finish.EXPIRED, Finish.CANCELLED)
        if row.finish is Finish.EXPIRED:
            assert row.finished >= row.end_by
        if row.finish is Finish.COMPUTED:
            assert row.finished < row.end_by
        if row.finish is Finish.CANCELLED:
            assert (row.finished, row.id) in cancelling
    assert all(pace.inside == pace.coming == 0 for pace in found.paces)


def test_a_live_pipeline_and_a_simulated_one_have_the_same_rows(monkeypatch):
    """One workflow runs at a time, on a clock that only the functions of the stages move. Both have
    the same stage deadlines, calls and workflows in time, to the nanosecond."""
    widths, gap, deadline = (1, 3, 8, 20), 500 * MS, 60 * MS
    plan = (
        priced("find", 0.004, 0.001, widths=widths)
        >> each(priced("rank", 0.02, 0.002))
        >> priced("answer", 0.01, 0.003)
    )
    arrivals = [gap * (at + 1) for at in range(40)]
    simulated = simulate_pipeline(plan, arrivals, deadline=deadline, seed=5).rows
    attained = sum(row.good for row in simulated)
    assert 5 < attained < 35, "some are in time and some are not"
    clock = FakeTime(monkeypatch)

    def found(id):
        return [0] * Random(f"5 find {id} ()").choice(widths)

    graph = (
        stage(clock.taking("find", 4 * MS, MS, found), name="find")
        >> each(stage(clock.taking("rank", 20 * MS, 2 * MS, lambda item: item), name="rank"))
        >> stage(clock.taking("answer", 10 * MS, 3 * MS, len), name="answer")
    )
    live = []
    with Pipeline(graph, deadline=deadline / 1e9, rows=live.append) as made:
        for id, arrival in enumerate(arrivals, 1):
            clock.shown = arrival
            made.submit(id).exception(30)
            assert clock.shown < arrival + gap
        learned = made.learned()
    assert [told(row) for row in live] == [told(row) for row in simulated]
    assert sum(row.good for row in live) == attained
    assert [work.name for work in learned.stages] == ["find", "rank", "answer"]


def told(row):
    visits = [(*visit[:4], visit.given) for visit in row.visits]
    return row.id, row.finish, row.arrived, row.total, row.items, visits


def test_what_a_live_pipeline_has_learned_can_be_simulated(monkeypatch):
    clock = FakeTime(monkeypatch)
    find = clock.taking("find", 4 * MS, MS, lambda item: [item] * 5)
    rank = clock.taking("rank", 0, 2 * MS, lambda item: item)
    with Pipeline(stage(find, size=7) >> each(stage(rank, size=9)), deadline=0.5) as made:
        with pytest.raises(SettingError, match="stage 'find' has not been called yet"):
            made.learned()
        for _ in range(200):
            made.call(1)
        plan = made.learned()
    assert (
        plan_of(plan.plain, "itself") == plan or plan_of(plan.plain, "itself").plain == plan.plain
    )
    find_stage, rank_stage = plan.stages
    assert find_stage.widths == (5,) and find_stage.size == 7 and rank_stage.size == 9
    assert find_stage.base + find_stage.per_item == pytest.approx(0.005, rel=0.01)
    assert rank_stage.base + 5 * rank_stage.per_item == pytest.approx(0.01, rel=0.01)
    (row,) = simulate_pipeline(plan.graph, [0], seed=None).rows
    assert row.total == pytest.approx(15 * MS, rel=0.02)


def test_calls_that_max_cost_bounds_are_no_larger_in_what_was_learned(monkeypatch):
    clock = FakeTime(monkeypatch)
    rank = clock.taking("rank", 0, 2 * MS, lambda item: item)
    with Pipeline(stage(rank, size=9, cost=lambda item: 5, max_cost=20), deadline=0.5) as made:
        for _ in range(200):
            made.call(1)
        assert made.learned().stages[0].size == 4


@pytest.mark.parametrize(
    "max_cost, processes, size", [(0, 0, 9), (100, 0, 9), (20, 0, 4), (20, 2, 2), (3, 2, 1)]
)
def test_the_size_that_max_cost_leaves_is_of_each_processs_share(max_cost, processes, size):
    given = BatchSettings(9, cost=len, max_cost=max_cost, processes=processes)
    assert learned._size(given, 5.0) == size


GOOD = {
    "deadline": 0.2,
    "stages": [
        {"name": "find", "base": 0.004, "per_item": 0.001, "size": 16, "width": [4, 8]},
        {"each": [{"name": "rank", "base": 0.006, "per_item": 0.0005, "processes": 2}]},
        {"name": "answer", "base": 0.02, "per_item": 0.002, "window": 0.01, "cv": 0.1},
    ],
}


def test_a_plan_is_read_and_written():
    plan = plan_of(GOOD, "a.yaml")
    assert [work.name for work in plan.stages] == ["find", "rank", "answer"]
    assert plan_of(plan.plain, "again").plain == plan.plain
    assert plan.stages[1].processes == 2 and plan.stages[0].widths == (4, 8)


def changed(**changes):
    first = {**GOOD["stages"][0], **changes}
    return {**GOOD, "stages": [first, *GOOD["stages"][1:]]}


@pytest.mark.parametrize(
    "given, said",
    [
        ({"stagse": []}, "a.yaml: 'stagse' is not known; did you mean stages?"),
        ({}, "`stages` is missing"),
        ({"stages": []}, "a list of stages is wanted"),
        ({"stages": [3]}, "a mapping"),
        (changed(sise=3), "'sise' is not known; did you mean size"),
        (changed(name=""), "a stage needs a name"),
        ({"stages": [{"name": "a", "base": 1}]}, "'a' needs `per_item`, in seconds"),
        (changed(base=-1), "it must be 0 or more"),
        (changed(size=0), "it must be 1 or more"),
        (changed(width=[]), "width is empty"),
        (changed(name="rank"), "distinct names"),
        (changed(base=0, per_item=0), "cannot be so"),
        ({**GOOD, "deadline": "soon"}, "not a number"),
    ],
)
def test_an_invalid_plan_is_refused_with_the_reason(given, said):
    with pytest.raises(SettingError, match=said):
        plan_of(given, "a.yaml")


def test_an_unreadable_plan_is_refused(tmp_path):
    with pytest.raises(SettingError, match="cannot be read"):
        read_plan(tmp_path / "no.yaml")


@pytest.mark.parametrize(
    "made, said",
    [
        (lambda: simulate_pipeline(each(priced("a", 1)), [0]), "begins with a stage"),
        (lambda: simulate_pipeline(stage(len), [0]), "has no price"),
        (lambda: simulate_pipeline(priced("a", 1), [0], split=Fixed((0.5, 0.5))), "do not fit"),
        (lambda: SimulatedStage("a", 1, 1, processes=0), "processes from 1"),
        (lambda: SimulatedStage("a", 1, 1, slowed=((1.0, 0.0),)), "0 times so long"),
        (lambda: Pipeline(priced("a", 1)), "SimulatedStage is no stage of a live pipeline"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_reason(made, said):
    with pytest.raises(SettingError, match=said):
        made()


def test_no_plan_can_be_learned_from_a_pipeline_with_an_llm():
    said = pytest.raises(SettingError, match="stage 'generate' is an LLM")
    with headway.LLM(context=256, slots=4) as llm, Pipeline(stage(llm)) as made, said:
        made.learned()
