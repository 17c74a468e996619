"""Every value that crosses a seam pickles to an equal one and holds no Sequence."""

import pickle
from dataclasses import fields, is_dataclass

import pytest

from headway.core.batch import Batch, Begun, Event, Logprob, Output, Row, Want
from headway.core.commands import Add, Cancel, Close, Enough, Refuse, Stop
from headway.core.cost.features import batch_features, row_features
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.load import LaneLoad, Load
from headway.core.policies.join import Dynamic
from headway.core.policies.policies import Policies
from headway.core.request import Finish, Request
from headway.core.sampling import Sampling
from headway.core.sequences.sequence import Sequence
from headway.core.settings import Settings
from tests.traces import ask

ROW = Row(3, 8, (1, 2), (5,), Want.LAST)
CELLS = Row(4, 0, range(3, 9), (5,), Want.NOTHING)
VALUES = [
    Add(ask("a", 3, 2, sampling=Sampling(stop_tokens=frozenset({1})))),
    Add(Request("a", range(3, 9), 0, 1)),
    Refuse(ask("a", 3, 2)),
    Cancel("a"),
    Stop("a", 2),
    Close(),
    Enough(),
    ROW,
    CELLS,
    Batch(7, (ROW,), (Begun(3, 5, Sampling(seed=1)),), (2,), held=1, width=4),
    Output(((1,), ()), {0: (Logprob(-0.5, ((1, -0.5),)),)}, {1: "why"}),
    Event("a", (1,), Finish.STOP),
    Load(1, 2, {"default": LaneLoad(Lane(), 1, 2)}),
    Settings(9, policies=Policies(join=Dynamic(2, 5, {"default": 1}))),
]


def reach(value):
    yield value
    if is_dataclass(value):
        for each in fields(value):
            yield from reach(getattr(value, each.name))
    elif isinstance(value, dict | tuple | list | frozenset):
        for each in value.values() if isinstance(value, dict) else value:
            yield from reach(each)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_at_a_seam_is_pickled_and_holds_no_sequence(value):
    copy = pickle.loads(pickle.dumps(value))
    assert copy == value and type(copy) is type(value)
    assert not any(isinstance(each, Sequence) for each in reach(value))


def test_cost_is_additive_in_the_rows_and_counts_waste():
    cost = StepCost.of(100, per_token=10, per_pair=1)
    batch = Batch(1, (ROW, ROW), width=3, held=1)
    assert batch.waste == 5
    assert batch_features(batch).tokens == 4 + 5
    assert row_features(8, 2).pairs == row_features(8, 1).pairs + row_features(9, 1).pairs
    assert cost.predict(row_features(8, 2)) == 100 + 20 + 9 + 10


def test_another_choice_shares_the_prompt_without_repeating_its_scores():
    first = ask("a", 3, 2, sampling=Sampling(0.5, seed=4, prompt_logprobs=2))
    other = first.sibling("b", 3)
    assert other.sampling == Sampling(0.5, seed=4, choice=3, prompt_logprobs=-1)
    assert (other.id, other.follows) == ("b", "a")
    assert (other.prompt, other.max_tokens, other.arrived) == (first.prompt, 2, first.arrived)
