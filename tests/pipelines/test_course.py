"""The course alone: any graph, any order of ends, errors, cancels and deadlines."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.request import NEVER, Finish
from headway.errors import DeadlineError, PromptError, RefusedError
from headway.pipelines.graph import each, stage
from headway.pipelines.split import Fixed, Learned, Undivided
from headway.pipelines.workflow import Work
from tests.pipelines.rig import Rig, f


def parts(depth=2):
    """Graphs of up to three parts a level, with lists inside lists."""
    alone = st.just(None)
    level = st.lists(alone, min_size=1, max_size=3)
    for _ in range(depth):
        level = st.lists(st.one_of(alone, level), min_size=1, max_size=3)
    return level


def built(parts):
    chain = None
    for part in parts:
        piece = stage(f) if part is None else each(built(part))
        chain = piece if chain is None else chain >> piece
    return chain


class Values:
    """Results in which every leaf names its origin."""

    def __init__(self, data):
        self.data = data

    def result(self, program, work):
        """A value inside as many lists as are split before the next stage."""
        return self.lists(splits_after(program, work.operation), (work.workflow.id, work.path))

    def lists(self, depth, leaf):
        if not depth:
            return leaf
        width = self.data.draw(st.integers(0, 3))
        return [self.lists(depth - 1, (leaf, at)) for at in range(width)]


def splits_after(program, at):
    """How many lists deep a value must be that goes on from this operation."""
    depth = most = 0
    for operation in program.operations[at:]:
        kind = type(operation).__name__
        if kind == "Call":
            break
        depth += {"Split": 1, "Join": -1}[kind]
        most = max(most, depth)
        if kind == "Join":
            break
    return most


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_workflow_ends_once_its_row_adds_up_and_lists_keep_their_order(data):
    rig = Rig(built(data.draw(parts())), data.draw(st.sampled_from([Learned(), Undivided()])))
    program, values = rig.course.program, Values(data)
    open_, faults = [], dict[str, object]()
    for _ in range(data.draw(st.integers(1, 4))):
        end_by = data.draw(st.sampled_from([NEVER, rig.now + 20, rig.now + 60]))
        first = values.lists(splits_after(program, 0), "item")
        open_.append(rig.begin(first, end_by))
    for _ in range(400):
        held = [work for port in rig.ports for work in port.held]
        if not held:
            break
        rig.now += data.draw(st.integers(0, 5))
        work = data.draw(st.sampled_from(held))
        match data.draw(st.sampled_from(["end"] * 8 + ["fail", "cancel"])):
            case "end":
                rig.end(work, values.result(program, work))
            case "fail":
                if id(work) not in rig.ports[work.stage].dropped:
                    faults.setdefault(work.workflow.id, fault := ValueError("bad"))
                    rig.end(work, error=fault)
            case "cancel":
                rig.course.cancel(work.workflow, rig.now)
                rig.answers += rig.course.take_answers()
    assert not rig.course.open and all(not workflow.open for workflow in open_)
    assert sorted(each.id for each in rig.answers) == [each.id for each in open_]
    assert len({row.id for row in rig.rows}) == len(rig.rows) == len(rig.answers) == len(open_)
    assert all(place.pace.inside == place.pace.coming == 0 for place in rig.course.places)
    for row, workflow in [(row, open_[int(row.id) - 1]) for row in rig.rows]:
        row.check()
        event(f"{row.finish}")
        assert row.finish is workflow.finish
        if row.finish is Finish.ERROR:
            assert workflow.error is faults[row.id]
        if row.finish is Finish.EXPIRED:
            assert isinstance(workflow.error, DeadlineError) and row.finished >= row.end_by
        if row.finish is Finish.COMPUTED:
            assert row.good


def test_the_elements_of_lists_meet_in_their_order_whichever_ends_first():
    rig = Rig(stage(f) >> each(stage(f)) >> f)
    rig.begin("query")
    rig.end(rig.ports[0].held[0], ["a", "b", "c"])
    for at in (2, 0, 1):
        work = next(work for work in rig.ports[1].held if work.path == (at,))
        rig.now += 10
        rig.end(work, work.value.upper())
    (last,) = rig.ports[2].held
    assert last.value == ["A", "B", "C"]
    rig.end(last, "done")
    assert rig.answers[0].value == "done"
    (row,) = rig.rows
    assert [visit[:4] for visit in row.visits] == [
        ("s0", 0, 0, 0),
        ("s1", 0, 0, 30),
        ("s2", 0, 0, 0),
    ]
    assert (row.total, row.items, row.nanoseconds) == (30, 5, 60)


def test_an_empty_list_skips_the_stages_of_its_each():
    rig = Rig(stage(f) >> each(stage(f) >> each(stage(f))) >> f)
    rig.begin(0)
    rig.end(rig.ports[0].held[0], [])
    assert [work.value for work in rig.ports[3].held] == [[]]
    assert [place.pace.coming for place in rig.course.places] == [0, 0, 0, 0]


def test_a_list_of_lists_may_have_empty_ones():
    rig = Rig(stage(f) >> each(each(stage(f))))
    rig.begin(0)
    rig.end(rig.ports[0].held[0], [[], [1, 2], []])
    for work in list(rig.ports[1].held):
        rig.end(work, work.value * 10)
    assert rig.answers[0].value == [[], [10, 20], []]


def test_a_result_that_is_no_list_fails_its_workflow_and_names_its_stage():
    rig = Rig(stage(f) >> each(stage(f)))
    rig.begin(0)
    rig.end(rig.ports[0].held[0], "text")
    assert str(rig.answers[0].error) == "each() runs over a list, and stage 's0' gave a str"
    assert isinstance(rig.answers[0].error, PromptError)
    rig = Rig(each(stage(f)))
    rig.begin(3)
    assert str(rig.answers[0].error) == "each() runs over a list, and the pipeline got a int"


def test_an_item_that_fails_ends_its_workflow_at_once_and_drops_the_others():
    rig = Rig(stage(f) >> each(stage(f)))
    one, two = rig.begin(0), rig.begin(0)
    for work in list(rig.ports[0].held):
        rig.end(work, ["a", "b", "c"])
    bad = rig.ports[1].held[1]
    rig.end(bad, error=ValueError("bad"))
    assert rig.answers == [one] and not rig.rows, "its row waits for what is still in the stage"
    left = [work for work in rig.ports[1].held if work.workflow is one]
    assert {id(work) for work in left} == rig.ports[1].dropped
    for work in left:
        rig.end(work)
    assert [row.id for row in rig.rows] == ["1"] and not two.finish


def test_a_stage_that_refuses_an_item_ends_its_workflow_and_no_other():
    rig = Rig(stage(f) >> f)
    rig.begin(0), rig.begin(1)
    rig.ports[1].fails = RefusedError("full", 7)
    rig.end(rig.ports[0].held[0], 0)
    assert rig.answers[0].finish is Finish.REFUSED and rig.answers[0].error.retry_at == 7
    rig.ports[1].fails = None
    rig.end(rig.ports[0].held[0], 1)
    assert [work.value for work in rig.ports[1].held] == [1]


def test_a_deadline_that_is_over_when_a_result_comes_ends_the_workflow():
    rig = Rig(stage(f) >> f)
    rig.begin(0, end_by=10)
    rig.now = 10
    rig.end(rig.ports[0].held[0], 0)
    assert str(rig.answers[0].error) == "the workflow's deadline was over in stage 's0'"
    assert not rig.ports[1].held and rig.rows[0].finish is Finish.EXPIRED


def test_admission_counts_items_on_their_way_and_names_the_full_stage():
    rig = Rig(stage(f) >> each(stage(f)), max_waiting=8)
    for _ in range(4):
        rig.begin(0)
    for work in list(rig.ports[0].held[:3]):
        rig.end(work, [1] * 3)
    rig.course.places[1].pace.width = 3.0
    assert rig.course.places[1].pace.expected == 9 + 3
    rig.ports[1].rate = 4.0  # items a second
    refused = rig.course.refuse(1_000)
    assert refused.retry_at == 1_000 + 3_000_000_000
    assert "'s1' is full: 12 items" in refused.reason and "try again in 3 s" in refused.reason
    for work in list(rig.ports[1].held):
        rig.end(work, 0)
    assert rig.course.refuse(0) is None


def test_one_workflow_may_bring_more_items_than_a_line_holds():
    rig = Rig(stage(f) >> each(stage(f)), max_waiting=2)
    rig.course.places[1].pace.width = 50.0
    assert rig.course.refuse(0) is None
    rig.begin(0)
    assert rig.course.refuse(0) is not None


def test_admission_learns_the_share_of_workflows_that_bring_a_stage_nothing():
    rig = Rig(stage(f) >> each(stage(f)) >> f >> each(stage(f)), max_waiting=100)
    lists, rank, _, last = [place.pace for place in rig.course.places]
    rank.width = 50.0
    for _ in range(100):
        rig.begin(0)
        rig.end(rig.ports[0].held[0], [])
        rig.end(rig.ports[2].held[0], [])
    assert rank.width == 50 and rank.share == last.share < 0.05
    assert lists.share == 1
    for _ in range(10):
        assert rig.course.refuse(0) is None
        rig.begin(0)
    for work in list(rig.ports[0].held):
        rig.course.cancel(work.workflow, 0)
        rig.end(work, [])
    assert rank.share == last.share, "nobody knows what they would have brought"
    for _ in range(100):
        rig.begin(0)
        rig.end(rig.ports[0].held[0], [1])
        rig.end(rig.ports[1].held[0], 1)
        rig.end(rig.ports[2].held[0], [])
    assert rank.share > 0.95 and last.share < 0.05


def test_the_row_of_a_cancelled_workflow_shows_the_stages_that_it_reached():
    rig = Rig(stage(f) >> f)
    workflow = rig.begin(0)
    rig.now = 5
    rig.end(rig.ports[0].held[0], 0, begun=2)
    rig.now = 9
    rig.course.cancel(workflow, rig.now)
    rig.course.cancel(workflow, 11)
    rig.now = 30
    rig.end(rig.ports[1].held[0], begun=7)
    (row,) = rig.rows
    assert row.finish is Finish.CANCELLED and row.total == 9
    assert [visit[:4] for visit in row.visits] == [("s0", 0, 2, 3), ("s1", 0, 2, 2)]
    assert not row.good and row.queue + row.service == 9 and row.between == 0


def test_due_times_by_a_fixed_split_count_from_the_arrival():
    rig = Rig(stage(f) >> f, split=Fixed((0.25, 0.75)))
    rig.begin(0, end_by=1_000)
    assert rig.ports[0].held[0].due == 250
    rig.now = 600
    rig.end(rig.ports[0].held[0], 0)
    assert rig.ports[1].held[0].due == 1_000


@pytest.mark.parametrize("split", [Fixed((0.5, 0.5)), Learned(), Undivided()])
def test_without_a_deadline_a_stage_has_no_due_time(split):
    rig = Rig(stage(f) >> f, split=split)
    rig.begin(0)
    assert rig.ports[0].held[0].due == NEVER
    assert isinstance(rig.ports[0].held[0], Work)
