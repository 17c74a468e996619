"""An answer has the same text whether it is decoded at its end or read as its tokens come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.batch import Event, Logprob
from headway.core.request import Finish, Request
from headway.core.sampling import Sampling
from headway.errors import EngineError
from headway.llm.answer import Answer, row_without_times
from headway.llm.options import Options

STOP, REQUEST = 0, Request("one", (1,), 99, 0, sampling=Sampling(stop_tokens=frozenset({0})))


class Bytes:
    """A tokenizer of single bytes."""

    def decode(self, ids):
        return bytes(ids).decode(errors="replace")


def answer(stop=()):
    return Answer(REQUEST, Options(stop=stop), Bytes())


@given(
    st.lists(st.text("aé\U0001f600", min_size=1, max_size=3), min_size=1, max_size=9),
    st.booleans(),
    st.data(),
)
def test_an_answer_is_the_same_read_as_it_comes_or_decoded_at_its_end(texts, stopped, data):
    ids = b"".join(text.encode() for text in texts)
    events = [Event("one", (id,), logprobs=(Logprob(-id / 256),)) for id in ids]
    last = Event("one", (STOP,), Finish.STOP, logprobs=(Logprob(0.0),))
    events.append(last if stopped else Event("one", (), Finish.LENGTH))
    read, kept = answer(), answer()
    pieces = [read.take(event).text for event in events]
    for event in events[:-1]:
        (kept.take if data.draw(st.booleans(), "read at once") else kept.keep)(event)
    kept.take(events[-1])
    row = row_without_times(REQUEST, events[-1].finish)
    assert kept.completion(row) == read.completion(row)
    assert kept.completion(row).text == "".join(pieces) == "".join(texts)
    assert kept.completion(row).tokens == (*ids, STOP)[: len(ids) + stopped]


def test_a_failed_answer_has_the_text_so_far():
    failing = answer()
    failing.keep(Event("one", tuple("né".encode()[:2])))
    with pytest.raises(EngineError, match="no room"):
        failing.take(Event("one", (), Finish.ERROR, "no room"))
    row = row_without_times(REQUEST, Finish.ERROR)
    assert failing.completion(row).text == "n", "the other byte is half a character"


def test_a_stop_string_that_only_the_end_completes_is_the_finish_reason():
    cut = answer("x\ufffd")
    events = [Event("one", (97,)), Event("one", (120,)), Event("one", (0xE2,), Finish.LENGTH)]
    assert [cut.take(each).text for each in events] == ["a", "", ""]
    done = cut.completion(None)
    assert (done.text, done.finish, len(done.tokens)) == ("a", Finish.STOP, 3)
