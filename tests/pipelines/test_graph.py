"""Chains of stages, and the line of operations that they become."""

import pytest

import headway
from headway import Batcher, Pipeline, each, stage
from headway.errors import SettingError
from headway.pipelines.graph import Call, Join, Program, Split


def f(items):
    return items


def g(items):
    return items


def test_a_chain_becomes_a_line_of_operations():
    program = Program.of(stage(f) >> each(stage(g) >> f) >> g)
    assert program.operations == (Call(0), Split(4), Call(1), Call(2), Join(), Call(3))
    assert [part.work for part in program.stages] == [f, g, f, g]
    assert [program.lists_after(at) for at in range(4)] == [1, 0, 0, 0]


def test_lists_of_lists_are_split_one_inside_the_other():
    program = Program.of(stage(f) >> each(each(g)))
    assert program.operations == (Call(0), Split(5), Split(4), Call(1), Join(), Join())
    assert program.lists_after(0) == 2


@pytest.mark.parametrize(
    "made", [lambda: f >> each(g), lambda: stage(f) >> g, lambda: f >> (stage(g) >> f)]
)
def test_a_plain_function_may_stand_on_either_side_of_a_chain(made):
    assert [part.work for part in Program.of(made()).stages][:2] == [f, g]


def test_batchers_and_batched_functions_are_stages():
    batched = headway.batch(f)
    with Batcher(g) as batcher:
        assert [p.work for p in Program.of(batched >> batcher).stages] == [batched, batcher]


@pytest.mark.parametrize(
    "made, said",
    [
        (lambda: stage(f) >> 3, "a int is no stage"),
        (lambda: stage(stage(f)), "not of a stage"),
        (lambda: stage(f, max_waiting=0), "max_waiting must be 1 or more"),
        (lambda: each(), "each\\(\\) needs a stage"),
        (lambda: Pipeline(stage(f, name="a") >> stage(g, name="a")), "distinct names"),
        (lambda: Pipeline(stage(f, sise=3) >> g), "there is no setting 'sise'"),
        (lambda: Pipeline(stage(f, lanes={"a": 1})), "one lane"),
        (lambda: Pipeline(stage(f, lane="fast")), "one lane"),
        (lambda: Pipeline(stage(headway.batch(f), size=3)), "size cannot be set here"),
        (lambda: Pipeline(stage(headway.batch(f), lane="fast")), "no lane 'fast'; there are def"),
        (lambda: Pipeline(stage(f), deadline=-1), "a deadline of -1 seconds"),
    ],
)
def test_an_invalid_pipeline_is_refused(made, said):
    with pytest.raises(SettingError, match=said):
        made()
