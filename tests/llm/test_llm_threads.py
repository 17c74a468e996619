"""Four threads call one LLM at once: each answer equals the answer to the request alone.

The requests are the same in every run of the test; how they meet in steps is not.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headway import LLM, HeadwayError, Options
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies

THREADS = 4
SMALL = Policies(Continuous(3), chunk=Fixed(8), step_tokens=11)  # so that most wait, or take turns
BAD = {"top_k": 2**63}


@dataclass(frozen=True)
class Asked:
    prompt: tuple[int, ...]
    options: Options
    leaves: int  # tokens after which a stream is left; 0: generate; -1: a stream to its end


options = st.builds(
    Options,
    max_tokens=st.integers(1, 8),
    min_tokens=st.integers(0, 3),
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.3]),
    top_k=st.sampled_from([0, 0, 5, 2**63 - 1]),
    top_p=st.sampled_from([1.0, 0.8]),
    min_p=st.sampled_from([0.0, 0.02]),
    seed=st.integers(0, 2**63 - 1),
    stop_tokens=st.sampled_from([frozenset(), frozenset(range(0, 4096, 9))]),
    ignore_eos=st.booleans(),
    repetition_penalty=st.sampled_from([1.0, 1.5]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    frequency_penalty=st.sampled_from([0.0, -0.5]),
    logit_bias=st.sampled_from([{}, {7: 3.0, 4095: -1e30}]),
    bad_words=st.sampled_from([(), (" the",)]),
    n=st.sampled_from([1, 1, 2]),
    logprobs=st.sampled_from([-1, 2]),
    prompt_logprobs=st.sampled_from([-1, -1, 1]),
)
prompts = st.builds(
    lambda shared, own: shared + tuple(own),
    st.sampled_from([(), tuple(range(300, 332))]),  # a prefix of two blocks that some share
    st.lists(st.integers(3, 4095), min_size=1, max_size=12),
)
wild = st.builds(Options, **{name: st.just(value) for name, value in BAD.items()})
asks = st.builds(
    Asked, prompts, st.one_of(options, options, options, wild), st.sampled_from([0, 0, -1, 1, 3])
)


def said(llm, asked):
    """The tokens of each choice, those of a stream until it was left, or a refusal's reason."""
    try:
        if not asked.leaves or asked.options.n > 1:
            answers = llm.generate([asked.prompt], asked.options, progress=False)
            assert not any(each.error for each in answers)
            return [each.tokens for each in answers]
        stream = llm.stream(asked.prompt, asked.options)
        with_tokens = (delta for delta in stream if delta.tokens)  # some have prompt_logprobs only
        deltas = list(islice(with_tokens, asked.leaves if asked.leaves > 0 else None))
    except HeadwayError as error:
        assert asked.options.top_k == 2**63, error
        return str(error)
    stream.close()  # cancels the rest
    return [tuple(token for delta in deltas for token in delta.tokens)]


@pytest.fixture(scope="module")
def llm():
    with LLM(dtype="float32", policies=SMALL, context=256) as made:
        yield made


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # it would hide a failure
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(st.lists(asks, min_size=1, max_size=4), min_size=THREADS, max_size=THREADS))
def test_each_answer_to_a_thread_equals_the_answer_given_alone(llm, threads):
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda mine: [said(llm, each) for each in mine], threads))
    for mine, answers in zip(threads, found, strict=True):
        for asked, got in zip(mine, answers, strict=True):
            alone = said(llm, asked)
            assert got == alone
    llm.generate([[5]], Options(max_tokens=1))  # comes after the cancels: these were handled
    load = llm.load
    assert (load.running, llm._rows, llm._engine._callers.open) == (0, {}, [])
