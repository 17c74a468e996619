"""What vLLM is told of a request that begins again after a preemption."""

from headway.core.batch import Begun, Row, Want
from headway.core.sampling import Sampling
from headway.executor.vllm.sequences import Held, Sequences


def test_tokens_generated_before_count_towards_min_tokens():
    held = Sequences(None, 100)  # no request has a grammar
    for number, tokens in enumerate([(1, 2, 3, 4), (1, 2, 3, 4, 5)]):
        held.begin(Begun(number, 2, Sampling(min_tokens=3), tokens))
    first, second = (held.of(Row(number, 0, (1,), (), Want.LAST)) for number in (0, 1))
    assert first.params.min_tokens == 3, "vLLM counts them all again, once it knows them"
    assert second.params.min_tokens == 0


class Matching:
    """Stands for a grammar's matcher."""

    def extend(self, start, tokens):
        pass


def test_bad_words_beside_a_grammar_follow_the_generated_tokens():
    sampling = Sampling(bad_words=((9,), (5, 6, 7)), stop_tokens=frozenset({2}), min_tokens=2)
    begun = Begun(0, 2, sampling, (5, 6, 5))
    held = Held("0", begun, None, matcher=Matching(), known=3, answer=[5])
    held.extend(Row(0, 0, (5, 6), (), Want.NOTHING))
    held.extend(Row(0, 2, (5,), (), Want.LAST))
    assert (held.generated, list(held.banned())) == (1, [2, 9]), "5, 6 of the prompt do not count"
    held.extend(Row(0, 3, (6,), (), Want.LAST))
    assert (held.generated, list(held.banned())) == (2, [9, 7])


def test_bad_words_that_may_ban_every_token_are_checked_without_a_grammar():
    held = Sequences(None, 4)
    asked = Sampling(bad_words=((0,), (1,), (2,), (3, 3)))
    held.begin(Begun(0, 1, asked, (3,)))
    held.begin(Begun(1, 1, Sampling(bad_words=((0,),)), (3,)))
    one, few = (held.of(Row(number, 0, (3,), (), Want.LAST)) for number in (0, 1))
    assert (one.checked, few.checked) == (True, False)
    one.extend(Row(0, 0, (3,), (), Want.LAST))
    assert not one.bans_all(4), "the prompt does not count"
    one.extend(Row(0, 1, (3,), (), Want.LAST))
    assert one.bans_all(4)
