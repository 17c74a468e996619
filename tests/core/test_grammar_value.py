"""A grammar is checked before anything compiles it."""

import pickle
import re

import pytest

from headway.core.commands import Add
from headway.core.grammar import MOST_TEXT, Grammar
from headway.core.sampling import Sampling
from headway.journal import codec
from tests.traces import ask, make, spy

ENDS = frozenset({2})
WORD = Grammar("regex", "[a-z]+")


@pytest.mark.parametrize(
    "grammar, words",
    [
        (Grammar(), ""),
        (WORD, ""),
        (Grammar("json_object"), ""),
        (Grammar("lark", "x" * MOST_TEXT), ""),
        (Grammar("", "a"), "a grammar's text has no kind"),
        (Grammar("gbnf", "a"), "a grammar must be one of json_object, .*, lark, not 'gbnf'"),
        (Grammar("regex"), "the grammar regex has no text"),
        (Grammar("json_object", "{}"), "the grammar json_object takes no text"),
        (Grammar("lark", "x" * 65_537), "a grammar may have 65536 characters, and this has 65537"),
    ],
)
def test_an_invalid_grammar_is_refused_with_its_problem(grammar, words):
    said = Sampling(stop_tokens=ENDS, grammar=grammar).problem()
    assert said == grammar.problem()
    assert re.fullmatch(words, said)


def test_a_grammar_needs_a_stop_token():
    assert "there is none" in Sampling(grammar=WORD).problem()
    request = ask("a", 3, 4, sampling=Sampling(grammar=WORD))
    (event,) = make(8).apply([Add(request)], 0)
    assert "there is none" in event.error


def test_the_executor_gets_the_known_tokens_for_a_grammar():
    asked = Sampling(stop_tokens=ENDS, grammar=WORD)
    assert asked.reads_tokens and not asked.weighs_tokens
    assert Sampling(presence_penalty=1.0).weighs_tokens
    scheduler, executor = make(8), spy(8)
    scheduler.apply([Add(ask("a", 3, 4, sampling=asked))], 0)
    batch = scheduler.schedule(0)
    executor.submit(batch)
    assert batch.begun[0].tokens == (0, 1, 2)


def test_a_grammar_is_pickled_and_restored_from_a_journal():
    asked = Sampling(stop_tokens=ENDS, grammar=WORD)
    assert pickle.loads(pickle.dumps(asked)) == asked
    assert codec.decode(codec.encode(asked), 1) == asked
