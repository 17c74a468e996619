"""An LLM on vLLM's workers: sampling, log-probabilities, grammars, faults and the journal."""

import json
from dataclasses import replace

import pytest

from headway import Options
from headway.core.commands import Add
from headway.core.grammar import Grammar
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Static
from headway.core.policies.policies import Policies
from headway.core.request import Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import SettingError
from headway.journal import journal
from headway.sim.replay import replay
from headway.sim.simulate import simulate
from tests.vllm.test_vllm_golden import COST, held

PROMPTS = ["The json module", "Return a list of", "A class that", "If the file does not exist,"]
GREEDY = {
    "plain": Options(max_tokens=30),
    "three choices": Options(max_tokens=12, n=3, ignore_eos=True),
    "stop string": Options(max_tokens=60, stop=(" a", "the ")),
    "stop tokens": Options(max_tokens=40, stop_tokens=frozenset(range(260, 300)), min_tokens=3),
    "penalties": Options(
        max_tokens=30, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2
    ),
    "bias": Options(max_tokens=20, logit_bias={17: 4.0, 34: -50.0}),
    "bad words": Options(max_tokens=30, bad_words=("list", "the")),
    "min tokens": Options(max_tokens=40, min_tokens=35),
    "nothing generated": Options(max_tokens=0, prompt_logprobs=1),
}


@pytest.fixture
def both(llm):
    return llm("torch"), llm("vllm")


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_answers_equal_our_executors(both, name):
    ours, theirs = (each.generate(PROMPTS, GREEDY[name]) for each in both)
    assert [each.tokens for each in theirs] == [each.tokens for each in ours]
    assert [(e.text, e.finish) for e in theirs] == [(e.text, e.finish) for e in ours]
    assert not [each.error for each in theirs if each.error]


def test_log_probabilities_equal_our_executors_within_a_thousandth(both):
    options = Options(max_tokens=20, logprobs=4, prompt_logprobs=3)
    ours, theirs = (each.generate(PROMPTS, options) for each in both)
    for mine, other in zip(ours, theirs, strict=True):
        for kind in ("logprobs", "prompt_logprobs"):
            assert len(getattr(other, kind)) == len(getattr(mine, kind)) > 0
            for a, b in zip(getattr(mine, kind), getattr(other, kind), strict=True):
                assert b.sampled == pytest.approx(a.sampled, abs=1e-3)
                assert [token for token, _ in b.top] == [token for token, _ in a.top]
                assert [x for _, x in b.top] == pytest.approx([x for _, x in a.top], abs=1e-3)


def graphs(worker) -> int:
    """How many functions the worker's process has compiled."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


def test_no_step_compiles_a_function(llm, embedded):
    """All requests would wait for it. Without a C++ compiler, those of the step would fail."""
    options = Options(max_tokens=3, logprobs=2, prompt_logprobs=1)
    assert llm("vllm").generate(PROMPTS[:1], options)[0].error is None
    core = embedded["vllm"].executor.executor._core
    assert core.model_executor.collective_rpc(graphs) == [0]


def test_a_prompt_in_chunks_has_all_its_scores(llm):
    text = " ".join(PROMPTS * 4)
    options = Options(max_tokens=2, prompt_logprobs=1)
    whole = llm("torch").generate(text, options)[0].prompt_logprobs
    small = Policies(Continuous(4), chunk=Fixed(7), step_tokens=11)
    parts = llm("vllm", policies=small).generate(text, options)[0].prompt_logprobs
    assert [each.sampled for each in parts] == pytest.approx([e.sampled for e in whole], abs=1e-3)


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "size": {"enum": [1, 2]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
GRAMMARS = {
    "schema": (Grammar("json_schema", json.dumps(SCHEMA)), lambda text: json.loads(text)["size"]),
    "regex": (Grammar("regex", "[0-9]{3,5}"), lambda text: text.isdigit() and 3 <= len(text) <= 5),
    "choice": (Grammar("choice", '["yes", "no"]'), lambda text: text in ("yes", "no")),
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", GRAMMARS)
def test_answers_obey_their_grammars(both, kind, temperature):
    grammar, valid = GRAMMARS[kind]
    options = Options(max_tokens=60, grammar=grammar, temperature=temperature, seed=5)
    free = Options(max_tokens=60)
    chosen = [options, free, options, free]
    ours, theirs = (each.generate(PROMPTS, chosen) for each in both)
    for answer, asked in zip(theirs, chosen, strict=True):
        assert answer.error is None
        assert asked is free or (answer.finish is Finish.STOP and valid(answer.text))
    if not temperature:
        assert [each.tokens for each in theirs] == [each.tokens for each in ours]


@pytest.mark.parametrize("more", [{"min_tokens": 8}, {"bad_words": ("no", "n", "o")}])
def test_options_that_ban_every_token_of_a_grammar_fail_that_request_alone(llm, more):
    stuck = Options(max_tokens=9, grammar=Grammar("choice", '["no"]'), **more)
    answers = llm("vllm").generate(PROMPTS[:2], [stuck, Options(max_tokens=9)])
    assert "ban them all" in str(answers[0].error) and answers[1].error is None


@pytest.mark.parametrize("least, generated", [(5, 0), (0, 1)])
def test_options_that_ban_every_token_without_a_grammar_fail_alone(both, least, generated):
    every = frozenset(range(4096))
    stuck = Options(max_tokens=9, min_tokens=least, stop_tokens=every)
    for made in both:
        first, other = made.generate(PROMPTS[:2], [stuck, Options(max_tokens=9)])
        assert ("ban them all" in str(first.error)) is (least > 0)
        assert (len(first.tokens), other.error) == (generated, None)


SAMPLED = Options(max_tokens=24, temperature=0.9, top_p=0.95, top_k=50, seed=7, ignore_eos=True)


def test_the_same_seed_gives_the_same_text_in_any_batch_and_any_chunks(llm):
    whole = llm("vllm")
    alone = whole.generate(PROMPTS[3], SAMPLED)[0].tokens
    others = [Options(max_tokens=9 + i, temperature=1.3, seed=i) for i in range(3)]
    asked = [*PROMPTS[:3], PROMPTS[3]], [*others, SAMPLED]
    assert whole.generate(*asked)[-1].tokens == alone
    assert whole.generate(PROMPTS[3], replace(SAMPLED, seed=8))[0].tokens != alone
    choices = [each.tokens for each in whole.generate(PROMPTS[3], replace(SAMPLED, n=3))]
    assert choices[0] == alone and len(set(choices)) == 3
    small = llm("vllm", policies=Policies(Continuous(4), chunk=Fixed(3), step_tokens=7))
    assert small.generate(*asked)[-1].tokens == alone


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"min_p": 1.0}, {"top_p": 1e-6}])
def test_filters_that_leave_one_token_are_greedy(llm, narrow):
    made = llm("vllm")
    greedy = made.generate(PROMPTS, Options(max_tokens=12))
    filtered = made.generate(PROMPTS, Options(max_tokens=12, temperature=1.5, seed=1, **narrow))
    assert [each.tokens for each in filtered] == [each.tokens for each in greedy]


def runs(llm, executor, blocks, options):
    """The tokens of PROMPTS on an engine with this many blocks, and its preemptions."""
    made = llm(executor)
    executor = made._executor
    executor.hand_over()
    policies = Policies(Continuous(4), chunk=Fixed(16), step_tokens=20)
    depth = executor.traits.steps_in_flight
    scheduler = Scheduler(Settings(blocks, 32, policies=policies, context=512, depth=depth))
    asked = []
    for prompt in PROMPTS:
        ids = made.tokenizer.encode(prompt)
        asked += made._builder.build(ids, options, 512, 0)
    said = {request.id: [] for request in asked}
    for event in simulate(scheduler, [(0, Add(each)) for each in asked], COST, executor):
        assert not event.error
        said[event.id] += event.tokens
    return list(said.values()), scheduler.roster.preemptions


@pytest.mark.parametrize(
    "options",
    [
        Options(max_tokens=60, temperature=0.9, seed=3, ignore_eos=True),
        Options(max_tokens=60, presence_penalty=1.0, frequency_penalty=0.5, ignore_eos=True),
        Options(max_tokens=60, min_tokens=50),
        Options(max_tokens=60, temperature=1.0, seed=3, repetition_penalty=1.2, ignore_eos=True),
    ],
)
def test_a_preempted_request_generates_the_same_tokens(llm, options):
    roomy, none = runs(llm, "vllm", 40, options)
    tight, some = runs(llm, "vllm", 5, options)
    assert (none, tight) == (0, roomy) and some > 0
    if not options.temperature:
        assert runs(llm, "torch", 40, options)[0] == roomy


def test_temperatures_that_vllm_would_change_or_refuse_are_refused(llm):
    cold = Options(max_tokens=4, temperature=0.005)
    made = llm("vllm")
    with pytest.raises(SettingError, match=r"at a temperature of 0 or from 0\.01 on"):
        made.generate(PROMPTS[:1], cold)
    with pytest.raises(SettingError, match=r"at a temperature of 2\.0 at most, not at 2\.5"):
        made.generate(PROMPTS[:1], replace(cold, temperature=2.5))


def test_a_policy_with_groups_is_refused(llm):
    with pytest.raises(SettingError, match="vLLM computes no padding"):
        llm("vllm", policies=Policies(Static(4)))


def test_a_failed_step_ends_its_own_requests_and_leaves_no_state(llm, embedded, monkeypatch):
    made = llm("vllm")
    executor, options = embedded["vllm"].executor.executor, Options(max_tokens=8, ignore_eos=True)
    wanted = [each.tokens for each in made.generate(PROMPTS, options)]
    build, steps = executor._builder.build, []

    def broken(batch, finished):
        step = build(batch, finished)
        steps.append(batch.step)
        if len(steps) == 3:
            step.notes.scored["nobody"] = (0, 1)  # what the worker looks up, and does not find
        return step

    with monkeypatch.context() as patched:
        patched.setattr(executor._builder, "build", broken)
        answers = made.generate(PROMPTS, options)
    assert all("the step failed" in str(each.error) for each in answers), "all were in that step"
    assert [each.tokens for each in made.generate(PROMPTS, options)] == wanted
    made.generate(PROMPTS[0], Options(max_tokens=1))
    assert held(embedded["vllm"]) <= 1


def test_leaving_a_stream_cancels_its_request(llm, embedded):
    made = llm("vllm")
    stream = made.stream(PROMPTS[0], Options(max_tokens=200, ignore_eos=True))
    assert next(stream).tokens
    stream.close()
    long = Options(max_tokens=20, ignore_eos=True)
    assert len(made.generate(PROMPTS[1], long)[0].tokens) == 20
    made.generate(PROMPTS[0], Options(max_tokens=1))
    assert held(embedded["vllm"]) <= 1


def test_the_journal_of_a_live_run_replays_row_for_row(llm, tmp_path):
    made = llm("vllm", journal=tmp_path / "j", slots=3)
    steps, requests = [], []
    keep = made._keep_rows

    def keep_all(new, ended):
        steps.extend(new)
        requests.extend(ended)
        keep(new, ended)

    made._engine._rows = keep_all
    mixed = [Options(max_tokens=20), SAMPLED, Options(max_tokens=9, n=2), GREEDY["stop string"]]
    answers = made.generate(PROMPTS, mixed)
    made.close()
    assert not [each.error for each in answers if each.error]
    again, _ = replay(*journal.read((tmp_path / "j").read_text().splitlines()))
    assert again.ledger.requests == requests and len(requests) == 5
    assert again.ledger.steps == steps and len(steps) > 20
