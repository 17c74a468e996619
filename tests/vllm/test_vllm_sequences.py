"""What vLLM is told of a request that begins again after a preemption."""

from headway.core.batch import Begun, Row, Want
from headway.core.sampling import Sampling
from headway.executor.vllm.sequences import Sequences


def test_tokens_generated_before_count_towards_min_tokens():
    held = Sequences(None, 100)  # no request has a grammar
    for number, tokens in enumerate([(1, 2, 3, 4), (1, 2, 3, 4, 5)]):
        held.begin(Begun(number, 2, Sampling(min_tokens=3), tokens))
    first, second = (held.of(Row(number, 0, (1,), (), Want.LAST)) for number in (0, 1))
    assert first.params.min_tokens == 3, "vLLM counts them all again, once it knows them"
    assert second.params.min_tokens == 0
