"""Messages between the server and the engine process are unpickled as they were."""

import pickle

from hypothesis import event, given
from hypothesis import strategies as st

from headway.core.batch import Event, Logprob
from headway.core.load import Load
from headway.core.request import Finish
from headway.executor.logprobs import LogprobColumns
from headway.server.engine.messages import Step, columns

SCORES = st.floats(-9, 0).map(Logprob)


@st.composite
def events(draw):
    """Events of a step: all have tokens, and any set of the other fields is used too."""
    fields = {
        "tokens": st.lists(st.integers(0, 9), max_size=3).map(tuple),
        "finish": st.sampled_from(Finish),
        "error": st.text(max_size=3),
        "logprobs": st.lists(SCORES, max_size=2).map(tuple),
        "prompt_logprobs": st.lists(SCORES, max_size=2).map(tuple),
        "relegated": st.booleans(),
        "promise": st.sampled_from([(), (5, 8)]),
    }
    used = {name: of for name, of in fields.items() if name == "tokens" or draw(st.booleans())}
    one = st.fixed_dictionaries({"id": st.text(min_size=1, max_size=4), **used})
    return [Event(**values) for values in draw(st.lists(one, max_size=6))]


@given(events())
def test_a_step_is_unpickled_with_the_events_that_it_had(some):
    packed = columns(some)
    event(f"{len([each for each in packed if each])} fields used")
    step = Step(some, [], [], Load(step=3), 7, "disk full")
    again = pickle.loads(pickle.dumps(step))
    assert again == step and type(again) is Step
    assert all(type(each) is Event and type(each.finish) is Finish for each in again.events)


def test_fields_that_no_event_uses_are_not_pickled():
    plain = [Event("a", (1,)), Event("b", (2,))]
    ids, tokens, *others = columns(plain)
    assert (ids, tokens) == (("a", "b"), ((1,), (2,))) and not any(others)
    ended = columns([*plain, Event("c", (3,), Finish.LENGTH)])
    assert ended[2] == (Finish.NOT_YET, Finish.NOT_YET, Finish.LENGTH) and ended[3] == ()


def test_logprobs_in_columns_are_unpickled_as_columns():
    scores = LogprobColumns()
    scores.extend([Logprob(-0.5, ((3, -0.5),))])
    plain = Event("a", (1,))
    step = Step([plain, Event("b", prompt_logprobs=scores)], [], [], Load(), 0)
    first, second = pickle.loads(pickle.dumps(step)).events
    assert first == plain
    assert isinstance(second.prompt_logprobs, LogprobColumns)
    assert list(second.prompt_logprobs) == list(scores)
