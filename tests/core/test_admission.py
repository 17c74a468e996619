"""The door decides from the published snapshot alone."""

from dataclasses import replace

import pytest

from headway.core.admission import Accept, Refuse, admit
from headway.core.batch import Add, Close, Output
from headway.core.lane import Lane
from headway.core.plan import Policies
from headway.core.request import NEVER
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from tests.traces import ask


def loaded():
    """Two wait in a lane of two; a step of 4 tokens took 40 ns."""
    lanes = (Lane("default", max_waiting=2), Lane("bulk", max_waiting_tokens=9))
    scheduler = Scheduler(Settings(4, 4, lanes, Policies(step_tokens=4), context=15))
    scheduler.apply([Add(ask("run", 4, 5))], 0)
    scheduler.commit(scheduler.schedule(0), Output(((9,),)), 40)
    for i in range(2):
        scheduler.apply([Add(ask(f"w{i}", 3, 2))], 50)
    return scheduler


def test_accepts_with_an_eta_at_the_last_steps_pace():
    load = loaded().load(50)
    assert (load.pace, load.lanes["default"].tokens, load.capacity) == (10, 6, 15)
    assert admit(ask("a", 4, 4, lane="bulk"), load, 60) == Accept(60 + 10 * (6 + 4))


@pytest.mark.parametrize(
    "request_, reason, retry_at",
    [
        (ask("a", 4, 4), "2 requests wait in 'default' already", 60 + 10 * 6),
        (ask("a", 10, 1, lane="bulk"), "0 tokens wait in 'bulk' already", 60),
        (
            ask("a", 10, 7, lane="bulk"),
            "10 prompt tokens and 7 to generate cannot fit: a request may hold 15",
            NEVER,
        ),
        (ask("a", 0, 1), "the prompt is empty", NEVER),
        (ask("a", 1, -1), "max_tokens must be 0 or more, not -1", NEVER),
        (ask("a", 1, 1, sampling=Sampling(top_p=0)), "top_p must be in (0, 1], not 0", NEVER),
        (ask("a", 1, 1, lane="x"), "there is no lane 'x'; there are ['bulk', 'default']", NEVER),
    ],
)
def test_refuses_with_a_reason_and_a_time_to_come_back(request_, reason, retry_at):
    load = loaded().load(50)
    assert admit(request_, load, 60) == Refuse(reason, retry_at)
    assert load == loaded().load(50), "a snapshot is a value"


def test_a_line_that_has_drained_before_says_when_it_will_have_drained_again():
    load = loaded().load(50)
    drained = replace(load.lanes["default"], drain=3e9)
    load = replace(load, lanes={**load.lanes, "default": drained})
    assert admit(ask("a", 4, 4), load, 60) == Refuse("2 requests wait in 'default' already", 62)


def test_refuses_when_closing():
    scheduler = loaded()
    scheduler.apply([Close()], 50)
    answer = admit(ask("a", 1, 1, lane="bulk"), scheduler.load(50), 60)
    assert answer == Refuse("the engine is closing")


@pytest.mark.parametrize(
    "sampling, words",
    [
        (Sampling(temperature=-0.1), "temperature must be 0 or more and finite"),
        (Sampling(temperature=float("inf")), "temperature must be 0 or more and finite"),
        (Sampling(temperature=float("nan")), "temperature must be 0 or more and finite"),
        (Sampling(top_k=-1), "top_k must be 0"),
        (Sampling(top_p=0.0), "top_p must be in"),
        (Sampling(top_p=1.1), "top_p must be in"),
        (Sampling(min_p=-0.1), "min_p must be in"),
        (Sampling(seed=-1), "seed must be in"),
        (Sampling(min_tokens=-1), "min_tokens must be"),
        (Sampling(choice=-1), "choice must be 0 or more"),
        (Sampling(repetition_penalty=0.0), "repetition_penalty must be above 0"),
        (Sampling(presence_penalty=2.5), "presence_penalty must be in"),
        (Sampling(frequency_penalty=-2.5), "frequency_penalty must be in"),
        (Sampling(prompt_logprobs=-2), "prompt_logprobs must be from"),
        (Sampling(logit_bias=((-1, 0.5),)), "logit_bias must be of tokens"),
        (Sampling(logit_bias=((1, float("nan")),)), "logit_bias must be of tokens"),
        (Sampling(bad_words=((1,), ())), "a bad word is empty"),
        (Sampling(logit_bias=((1, -100.0), (2, 0.5)), bad_words=((1, 2),)), ""),
        (Sampling(logprobs=21), "logprobs must be from 0 to 20"),
        (Sampling(temperature=1.0, top_k=1, top_p=1.0, min_p=1.0, seed=2**63 - 1), ""),
    ],
)
def test_sampling_that_cannot_be_obeyed(sampling, words):
    assert sampling.problem().startswith(words) and bool(sampling.problem()) == bool(words)
