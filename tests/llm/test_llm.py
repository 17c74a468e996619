"""The Python API on the embedded model, as a user calls it."""

import asyncio
import pickle
import threading

import numpy as np
import pytest

from headway import LLM, HeadwayError, Options
from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.core.grammar import Grammar
from headway.core.policies.join import Dynamic, Static
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.engine import Executor
from headway.errors import (
    EngineDownError,
    EngineError,
    PromptError,
    RefusedError,
    SettingError,
    UnansweredError,
)
from headway.journal import journal
from headway.llm.llm import EMBEDDED
from headway.sim.replay import replay
from headway.text.tokenizer import Tokenizer

FAST = StepCost.of(1)
PROMPTS = ["The json module", "Return a list of", "class", "If the file does not exist,"]


@pytest.fixture(scope="module")
def llm():
    with LLM(dtype="float32", slots=4) as made:
        yield made


def test_generate_answers_in_the_order_of_the_prompts(llm):
    together = llm.generate(PROMPTS, Options(max_tokens=24))
    alone = [llm.generate(prompt, Options(max_tokens=24))[0] for prompt in PROMPTS]
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    assert [each.text for each in together] == [each.text for each in alone]
    assert all(each.finish in (Finish.LENGTH, Finish.STOP) for each in together)
    assert [each.prompt for each in together] == [llm.tokenizer.encode(p) for p in PROMPTS]
    assert llm._rows == {}, "rows given to the caller are not kept"


def test_each_of_more_prompts_than_slots_has_its_own_options(llm):
    options = [Options(max_tokens=n) for n in range(1, 13)]
    answers = llm.generate([[5, 6, n] for n in range(12)], options)
    assert [len(answer.tokens) for answer in answers] == list(range(1, 13))
    assert all(answer.row.generated == len(answer.tokens) for answer in answers)


def test_the_same_seed_gives_the_same_text_in_any_batch(llm):
    asked = Options(max_tokens=20, temperature=0.9, top_p=0.95, seed=7, ignore_eos=True)
    alone = llm.generate(PROMPTS[0], asked)[0]
    others = [Options(max_tokens=9 + i, temperature=1.3, seed=i) for i in range(3)]
    company = llm.generate([*PROMPTS[1:], PROMPTS[0]], [*others, asked])[-1]
    assert company.tokens == alone.tokens
    other = llm.generate(PROMPTS[0], Options(max_tokens=20, temperature=0.9, top_p=0.95, seed=8))
    assert other[0].tokens != alone.tokens


def test_requests_without_a_seed_draw_from_the_llms_seed():
    def twice():
        with LLM(dtype="float32", slots=2, seed=3) as llm:
            return [a.tokens for a in llm.generate(PROMPTS[:1] * 2, Options(8, temperature=1.0))]

    first, second = twice(), twice()
    assert first == second and first[0] != first[1]


def test_a_stop_string_ends_the_text_before_it_and_the_generation(llm):
    whole = llm.generate(PROMPTS[0], Options(max_tokens=40, ignore_eos=True))[0]
    stop = whole.text[10:14]
    cut = llm.generate(PROMPTS[0], Options(max_tokens=40, ignore_eos=True, stop=stop))[0]
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish is Finish.STOP
    assert cut.tokens == whole.tokens[: len(cut.tokens)] and len(cut.tokens) < 40
    assert cut.row.generated == len(cut.tokens)
    streamed = list(llm.stream(PROMPTS[0], Options(max_tokens=40, ignore_eos=True, stop=stop)))
    assert "".join(delta.text for delta in streamed) == cut.text
    assert streamed[-1].finish is Finish.STOP


def test_stop_tokens_end_the_answer_and_are_not_in_its_text(llm):
    whole = llm.generate(PROMPTS[0], Options(max_tokens=12, ignore_eos=True))[0]
    last = whole.tokens[5]
    at = whole.tokens.index(last)
    cut = llm.generate(PROMPTS[0], Options(12, ignore_eos=True, stop_tokens=frozenset({last})))[0]
    assert cut.tokens == whole.tokens[: at + 1] and cut.finish is Finish.STOP
    assert cut.text == llm.tokenizer.decode(whole.tokens[:at])


def test_stream_gives_the_text_of_generate(llm):
    deltas = list(llm.stream(PROMPTS[1], Options(max_tokens=24)))
    whole = llm.generate(PROMPTS[1], Options(max_tokens=24))[0]
    assert "".join(delta.text for delta in deltas) == whole.text
    assert tuple(token for delta in deltas for token in delta.tokens) == whole.tokens
    assert [delta.finish for delta in deltas][:-1] == [""] * (len(deltas) - 1)


def test_leaving_a_stream_cancels_it_and_many_stream_at_once(llm):
    stream = llm.stream(PROMPTS[0], Options(max_tokens=1_000, ignore_eos=True))
    next(stream)
    stream.close()

    async def one(prompt):
        return "".join([delta.text async for delta in llm.astream(prompt, Options(max_tokens=16))])

    async def all_of_them():
        return await asyncio.gather(*map(one, PROMPTS))

    whole = llm.generate(PROMPTS, Options(max_tokens=16))
    assert asyncio.run(all_of_them()) == [answer.text for answer in whole]
    assert llm._engine.load.running == 0 and llm._engine.load.free_blocks == llm.memory.num_blocks


def test_chat_uses_the_chat_template(llm):
    asked = [{"role": "user", "content": "What does json.dumps do?"}]
    answer = llm.chat(asked, Options(max_tokens=12))
    assert answer.prompt == llm.tokenizer.chat(asked)
    assert "".join(delta.text for delta in llm.stream(asked, Options(max_tokens=12))) == answer.text


def test_there_is_one_logprob_per_token(llm):
    answer = llm.generate(PROMPTS[0], Options(max_tokens=6, logprobs=3, ignore_eos=True))[0]
    assert len(answer.logprobs) == len(answer.tokens) == 6
    for token, said in zip(answer.tokens, answer.logprobs, strict=True):
        assert said.top[0] == (token, said.sampled), "greedy takes the likeliest"
        assert len(said.top) == 3 and said.top[0][1] >= said.top[1][1] >= said.top[2][1]


def test_dynamic_batching_gives_the_same_answers(llm):
    dynamic = Policies(join=Dynamic(3, 5_000_000), mix=PrefillFirst())
    expected = [answer.tokens for answer in llm.generate(PROMPTS, Options(max_tokens=16))]
    with LLM(dtype="float32", slots=3, policies=dynamic) as grouped:
        answers = grouped.generate(PROMPTS, Options(max_tokens=16))
        assert [answer.tokens for answer in answers] == expected


def test_static_batching_starts_its_last_group_even_if_it_is_not_full(llm, tmp_path):
    expected = [answer.tokens for answer in llm.generate(PROMPTS, Options(max_tokens=9))]
    static = Policies(join=Static(3), mix=PrefillFirst())
    with LLM(dtype="float32", slots=3, policies=static, journal=tmp_path / "j") as grouped:
        for _ in range(2):
            answers = grouped.generate(PROMPTS, Options(max_tokens=9))
            assert [answer.tokens for answer in answers] == expected
        begun = [answer.row.first_scheduled for answer in answers]
        assert len(set(begun[:3])) == 1 and begun[3] >= max(a.row.finished for a in answers[:3])
        assert grouped.chat([{"role": "user", "content": "x"}], Options(max_tokens=2)).tokens
        for stream in (grouped.stream("x"), grouped.astream("x")):
            with pytest.raises(SettingError, match=r"Static waits .*: use Dynamic\(size, window\)"):
                next(stream) if hasattr(stream, "send") else asyncio.run(anext(stream))
    settings, records = journal.read((tmp_path / "j").read_text().splitlines())
    again, _ = replay(settings, records)
    again.check()
    assert len(again.ledger.requests) == 9, "the same, from its journal"


LONG = [5] * 3_000


def test_refused_prompts_do_not_change_the_answers_to_the_others(llm):
    expected = [answer.tokens for answer in llm.generate(PROMPTS, Options(max_tokens=9))]
    odd = [{"x": 1}], "a\udcffb"
    prompts = [PROMPTS[0], LONG, PROMPTS[1], [1, 99_999], PROMPTS[2], [], PROMPTS[3], *odd]
    answers = llm.generate(prompts, Options(max_tokens=9, n=2))
    assert [answer.tokens for answer in answers[0:16:4]] == expected
    assert [answer.choice for answer in answers] == [0, 1] * 9
    assert all(answer.error is None for at in range(0, 16, 4) for answer in answers[at : at + 2])
    for at, kind, words in (
        (2, RefusedError, "3000 prompt tokens and 9 to generate cannot fit"),
        (6, PromptError, "the prompt has token 99999"),
        (10, RefusedError, "the prompt is empty"),
        (14, PromptError, "the content of message 0 is not text"),
        (16, PromptError, "a text cannot be encoded"),
    ):
        for failed in answers[at : at + 2]:
            assert type(failed.error) is kind and words in str(failed.error)
            assert (failed.text, failed.tokens, failed.finish) == ("", (), Finish.REFUSED)
            assert failed.row.finish is Finish.REFUSED and failed.row.generated == 0
    assert len({answer.row.id for answer in answers}) == 18
    assert llm._rows == {} and llm._engine.load.running == 0
    assert [type(each.error) for each in pickle.loads(pickle.dumps(answers))[2:4]] == [
        RefusedError
    ] * 2


def test_errors_raise_raises_once_all_requests_have_ended(llm):
    asked = Options(max_tokens=9)
    with pytest.raises(UnansweredError, match="1 of 5 requests failed; the first: 3000 p") as found:
        llm.generate([LONG, *PROMPTS], asked, errors="raise")
    answers = found.value.answers
    assert answers[0].error is found.value.__cause__ and type(answers[0].error) is RefusedError
    assert [each.tokens for each in answers[1:]] == [a.tokens for a in llm.generate(PROMPTS, asked)]
    assert len(llm.generate(PROMPTS, asked, errors="raise")) == 4
    with pytest.raises(SettingError, match='errors must be "return" or "raise"'):
        llm.generate(PROMPTS, asked, errors="ignore")


def test_impossible_options_of_one_request_fail_it_alone_and_those_of_the_call_raise(llm):
    fine = Options(max_tokens=3)
    cases = [
        (Options(temperature=-1), SettingError, "temperature must be"),
        (Options(stop=""), PromptError, "a stop string is empty"),
        (Options(logit_bias={99_999: 1.0}), PromptError, "the model has no token 99999"),
        (Options(grammar=Grammar("regex", "[0-9")), SettingError, "the regex cannot be compiled"),
    ]
    answers = llm.generate(["x"] * 5, [fine, *[options for options, _, _ in cases]])
    assert answers[0].error is None and len(answers[0].tokens) == 3
    for answer, (options, kind, words) in zip(answers[1:], cases, strict=True):
        assert type(answer.error) is kind and words in str(answer.error)
        with pytest.raises(kind, match=words):  # the same options for the whole call
            llm.generate(["x", "y"], options)
    assert llm._rows == {} and llm._engine._callers.open == []


class Faulty(Executor):
    """An executor that fails the steps of its choice."""

    def __init__(self, executor, fails):
        self.executor, self.fails, self.steps = executor, fails, 0

    def submit(self, batch):
        ticket = self.executor.submit(batch)
        self.steps += batch.step > 0
        if self.fails(batch):
            self.executor.collect(ticket)
            raise MemoryError("no room on the device")
        return ticket

    def collect(self, ticket):
        return self.executor.collect(ticket)


@pytest.fixture
def faulty():
    """An LLM, and its executor, which fails when told to."""
    with LLM(dtype="float32", slots=2) as llm:
        guarded = llm._engine._engine.executor
        executor = guarded.executor = Faulty(guarded.executor, lambda batch: False)
        yield llm, executor


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_step_fails_its_requests_and_raises_in_stream_and_chat(faulty):
    llm, executor = faulty
    asked = Options(max_tokens=4, ignore_eos=True)
    expected = [answer.tokens for answer in llm.generate(PROMPTS, asked)]
    executor.steps, executor.fails = 0, lambda batch: executor.steps == 3
    answers = llm.generate(PROMPTS, asked)  # two at a time
    assert [each.finish for each in answers] == [Finish.ERROR] * 2 + [Finish.LENGTH] * 2
    for failed, whole in zip(answers[:2], expected, strict=False):
        assert type(failed.error) is EngineError
        assert str(failed.error) == "the step failed: no room on the device"
        assert failed.tokens == whole[:2] and failed.text, "it keeps the text so far"
        assert failed.row.finish is Finish.ERROR and failed.row.generated == 2
    assert [each.tokens for each in answers[2:]] == expected[2:]
    executor.steps = 0
    with pytest.raises(EngineError, match="no room on the device"):
        list(llm.stream(PROMPTS[0], asked))
    executor.steps = 0
    with pytest.raises(EngineError, match="no room on the device"):
        llm.chat([{"role": "user", "content": "x"}], asked)
    assert llm._rows == {}


def test_options_that_no_token_can_satisfy_are_a_setting_error(llm):
    impossible = Options(max_tokens=9, grammar=Grammar("regex", "a"), bad_words="a")
    failed, whole = llm.generate(PROMPTS[:2], [impossible, Options(max_tokens=2)])
    assert type(failed.error) is SettingError and "no token can be sampled" in str(failed.error)
    assert (failed.finish, whole.error) == (Finish.UNSATISFIABLE, None)
    with pytest.raises(SettingError, match="no token can be sampled"):
        list(llm.stream(PROMPTS[0], impossible))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_finished_answers_survive_an_engine_that_goes_down(faulty):
    llm, executor = faulty
    lengths = [Options(max_tokens=2), Options(max_tokens=900, ignore_eos=True)]
    executor.fails = lambda batch: executor.steps > 8
    answers = llm.generate([*PROMPTS[:2], *PROMPTS], [*lengths, *[lengths[1]] * 4])
    assert answers[0].error is None and len(answers[0].tokens) == 2
    assert all(isinstance(each.error, EngineError) for each in answers[1:])
    assert type(answers[-1].error) is EngineDownError and answers[-1].finish is Finish.ERROR
    assert answers[-1].row.finish is Finish.ERROR and answers[-1].row.prompt > 0
    assert llm._rows == {}
    with pytest.raises(EngineDownError, match="no room on the device"):
        llm.generate(PROMPTS)


def test_no_bias_bans_what_a_grammar_requires(llm):
    (word,) = llm.tokenizer.encode("a")
    asked = Options(max_tokens=3, grammar=Grammar("choice", '["a"]'), logit_bias={word: -1e30})
    (answer,) = llm.generate("x", asked)
    assert (answer.text, answer.error) == ("a", None)
    with pytest.raises(SettingError, match="logit_bias must be of tokens and from"):
        llm.generate("x", Options(logit_bias={word: -1e300}))


@pytest.mark.parametrize(
    "prompts, options, words",
    [
        ([], None, ""),
        ([[1, 99_999]], None, "the prompt has token 99999; the model has 0 to"),
        ([[1, "x"]], None, "the prompt has token 'x'"),
        ([[]], None, "the prompt is empty"),
        ([[5] * 3_000], None, "cannot fit: a request may hold 2048"),
        ("x", Options(max_tokens=9_000), "9000 to generate cannot fit"),
        ("x", Options(temperature=-1), "temperature must be"),
        (["x", "y"], [Options()], "2 prompts came with 1 options"),
        ("x", Options(stop=""), "a stop string is empty"),
    ],
)
def test_an_impossible_request_is_refused_in_one_line(llm, prompts, options, words):
    if not words:
        assert llm.generate(prompts) == []
        return
    with pytest.raises(HeadwayError, match=words) as caught:
        llm.generate(prompts, options or Options(), errors="raise")
    assert "\n" not in str(caught.value)
    assert llm._rows == {}


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(llm, monkeypatch):
    text = "x" * (llm.tokenizer.longest * llm.load.capacity)
    long, part = Options(max_tokens=1), Options(max_tokens=1, truncate=5)
    assert llm.generate(text + "x", part)[0].error is None, "its end fits"
    (refused,) = llm.generate(text, long)
    assert "prompt tokens and 1 to generate cannot fit" in str(refused.error)
    monkeypatch.delattr(Tokenizer, "encode")
    (refused,) = llm.generate(text + "x", long)
    assert type(refused.error) is RefusedError and refused.error.retry_at == NEVER
    assert "characters cannot fit: a request may hold 2048 tokens" in str(refused.error)


def test_an_async_call_tokenizes_outside_the_event_loop(llm, monkeypatch):
    begun, goes_on, encode = threading.Event(), threading.Event(), llm.tokenizer.encode

    def slow(text, most=0):
        begun.set()
        assert goes_on.wait(30), "the event loop stands still"
        return encode(text, most)

    async def main():
        asked = asyncio.create_task(llm.agenerate(PROMPTS[0], Options(max_tokens=3)))
        await asyncio.to_thread(begun.wait, 30)
        goes_on.set()
        return await asked

    monkeypatch.setattr(llm.tokenizer, "encode", slow)
    assert len(asyncio.run(main()).tokens) == 3


def test_prompts_come_in_any_iterable_and_a_chat_is_one_prompt(llm):
    short = Options(max_tokens=3)
    chat = [{"role": "user", "content": "hi"}]
    ids = llm.tokenizer.encode("class")
    want = [each.tokens for each in llm.generate(["class", chat], short)]
    assert [each.tokens for each in llm.generate(chat, short)] == want[1:]
    for prompts in (
        (each for each in ["class", iter(chat)]),
        [iter(ids), tuple(chat)],
        [np.array(ids), chat],
        [list(np.array(ids)), chat],
    ):
        assert [each.tokens for each in llm.generate(prompts, short)] == want
    for one in (np.array(ids), list(np.array(ids)), iter(ids), {"class"}, np.array(["class"])):
        assert [each.tokens for each in llm.generate(one, short)] == want[:1]
    assert llm.chat(iter(chat), short).tokens == want[1]
    assert llm.embed(each for each in ["a", "b"]).shape == llm.embed([[5], [6]]).shape


@pytest.mark.parametrize("odd", [None, 5, b"class", bytearray(b"class"), {"role": "user"}])
def test_a_value_that_is_no_prompt_is_named_and_fails_alone(llm, odd):
    kind = type(odd).__name__
    for verb in (llm.generate, llm.embed):
        with pytest.raises(PromptError, match=f"a prompt is a text, .* messages, not {kind}"):
            verb(odd)
    message = {"role": "user", "content": "x"}
    first, second, last = llm.generate(["class", odd, [message, odd]], Options(max_tokens=2))
    assert first.error is None and type(second.error) is type(last.error) is PromptError
    assert "of message 1" in str(last.error) or "message 1 must have a role" in str(last.error)
    with pytest.raises(PromptError):
        llm.chat(odd)


def test_a_chat_that_is_no_list_of_messages_is_refused(llm):
    with pytest.raises(PromptError, match="message 0 must have a role and a content, and is a str"):
        llm.chat("hi")
    with pytest.raises(PromptError, match="a chat needs at least one message"):
        llm.chat(())


@pytest.mark.parametrize("odd", [None, {"max_tokens": 2}, "x", [{"max_tokens": 2}]])
def test_options_of_another_type_are_refused(llm, odd):
    with pytest.raises(SettingError, match=r"options must be Options, not (dict|str|NoneType)"):
        llm.generate(["class"], odd)
    with pytest.raises(SettingError, match="options must be Options"):
        next(llm.stream("class", odd))


def test_an_unknown_setting_is_refused():
    with pytest.raises(TypeError, match="max_new_tokens"):
        Options(max_new_tokens=3)
    with pytest.raises(TypeError, match="max_batch"):
        LLM(max_batch=3)
    with pytest.raises(HeadwayError, match="context 9999 is longer than the 2048"):
        LLM(context=9_999)
    with pytest.raises(HeadwayError, match="dtype must be one of"):
        LLM(dtype="int3")
    for device in ("meta", "mps", "xpu"):
        with pytest.raises(SettingError, match=f"device {device} does not compute here"):
            LLM(device=device)


def test_n_answers_share_the_prompt_and_differ(llm):
    prompt = llm.tokenizer.encode("The json module reads and writes JSON. " * 6)
    asked = Options(max_tokens=12, temperature=1.0, seed=5, n=3, ignore_eos=True)
    answers = llm.generate([prompt, prompt], asked)
    assert [answer.choice for answer in answers] == [0, 1, 2, 0, 1, 2]
    assert len({answer.tokens for answer in answers[:3]}) == 3
    assert [a.tokens for a in answers[:3]] == [a.tokens for a in answers[3:]]
    assert all(answer.row.cached >= len(prompt) - 17 for answer in answers[1:3])
    one = llm.generate([prompt], Options(max_tokens=12, temperature=1.0, seed=5, ignore_eos=True))
    assert one[0].tokens == answers[0].tokens, "the first choice is what n = 1 gives"


def test_requests_carry_expected_tokens_up_to_max_tokens(llm, monkeypatch):
    sent, offer = [], llm._engine.offer

    def heard(requests, *more):
        sent.extend(requests)
        offer(requests, *more)

    monkeypatch.setattr(llm._engine, "offer", heard)
    llm.generate("x", Options(max_tokens=4, expected_tokens=3, n=2))
    llm.generate("x", Options(max_tokens=4, expected_tokens=9))
    llm.generate("x", Options(max_tokens=4))
    assert [each.expected for each in sent] == [3, 3, 4, 0]


def test_a_text_can_be_scored_without_an_answer(llm):
    text = "The json module reads and writes JSON."
    (scored,) = llm.generate(text, Options(max_tokens=0, echo=True, prompt_logprobs=2))
    assert (scored.text, scored.tokens, scored.finish) == (text, (), Finish.COMPUTED)
    assert len(scored.prompt_logprobs) == len(scored.prompt) - 1
    said = [token for token, _ in scored.prompt_logprobs[0].top]
    greedy = llm.generate([scored.prompt[:1]], Options(max_tokens=1, ignore_eos=True))[0]
    assert said[0] == greedy.tokens[0], "the likeliest token is the greedy one"


def test_sampling_obeys_bad_words_bias_and_penalties(llm):
    plain = llm.generate(PROMPTS[0], Options(max_tokens=8, ignore_eos=True))[0]
    word = llm.tokenizer.decode(plain.tokens[2:3]).strip()
    without = llm.generate(
        PROMPTS[0], Options(max_tokens=8, ignore_eos=True, bad_words=(word,), logit_bias={9: -1.0})
    )[0]
    assert plain.tokens[2] not in without.tokens
    wanted = Options(max_tokens=4, ignore_eos=True, logit_bias={77: 100.0})
    assert llm.generate(PROMPTS[0], wanted)[0].tokens == (77,) * 4
    fresh = Options(max_tokens=30, ignore_eos=True, repetition_penalty=50.0)
    tokens = llm.generate(PROMPTS[0], fresh)[0].tokens
    assert len(set(tokens)) == 30


def test_truncation_keeps_the_end(llm):
    ids = list(range(20, 60))
    (cut,) = llm.generate([ids], Options(max_tokens=4, truncate=8, echo=True))
    assert cut.prompt == tuple(ids[-8:])
    assert cut.tokens == llm.generate([ids[-8:]], Options(max_tokens=4))[0].tokens


@pytest.mark.parametrize(
    "options, words",
    [
        ({"logit_bias": {99_999: 1.0}}, "the model has no token 99999"),
        ({"stop_tokens": frozenset({-1})}, "the model has no token -1"),
        ({"frequency_penalty": 3.0}, "frequency_penalty must be in"),
        ({"n": 0}, "n must be 1 or more"),
        ({"truncate": -1}, "truncate 0 or more"),
        ({"expected_tokens": -1}, "expected_tokens must be 0 or more, not -1"),
        ({"max_tokens": 2.5}, "max_tokens must be an int, not 2.5"),
        ({"expected_tokens": None}, "expected_tokens must be an int, not None"),
        ({"n": 1.5}, "n must be an int"),
        ({"truncate": 2.5}, "truncate must be an int"),
        ({"stop_tokens": {"5"}}, "a stop token must be an int, not '5'"),
        ({"logit_bias": {"5": 1.0}}, "a token of logit_bias must be an int, not '5'"),
        ({"adapter": None}, "adapter must be a name or empty, not None"),
        ({"stop": None}, "stop must be a text or several, not None"),
        ({"stop": [1]}, r"stop must be a text or several, not \[1\]"),
        ({"stop": b"a"}, "stop must be a text or several, not b'a'"),
        ({"bad_words": None}, "bad_words must be a text or several, not None"),
        ({"stop_tokens": None}, "stop_tokens must be token ids, not None"),
        ({"logit_bias": None}, "logit_bias must be numbers by token, not None"),
        ({"logit_bias": [(5, 1)]}, "logit_bias must be numbers by token"),
        ({"grammar": "json_object"}, "grammar must be a Grammar, not 'json_object'"),
        ({"grammar": None}, "grammar must be a Grammar, not None"),
    ],
)
def test_invalid_options_are_refused(llm, options, words):
    with pytest.raises(HeadwayError, match=words):
        llm.generate("x", Options(**options))
    with pytest.raises(HeadwayError, match="one answer and no echo"):
        next(llm.stream("x", Options(n=2)))


@pytest.mark.parametrize("given", [{}, {"max_tokens": 3, "stop": ("x",), "logit_bias": {5: -1.0}}])
def test_options_are_shown_as_the_code_that_makes_them(given):
    shown = ", ".join([f"{name}={value!r}" for name, value in given.items()])
    assert repr(Options(**given)) == f"Options({shown})"


def test_options_of_numpy_types_are_journaled_as_plain_types(tmp_path):
    three = np.int64(3)
    odd = Options(
        max_tokens=three,
        expected_tokens=three,
        stop_tokens=[three, True],
        logit_bias={three: np.float32(-1.0)},
        n=np.int64(1),
        truncate=np.int64(9),
        min_tokens=np.int8(1),
        seed=np.uint32(7),
        top_k=np.int32(5),
        logprobs=np.int64(2),
        temperature=np.float32(0.5),
        top_p=np.float16(0.75),
    )
    with LLM(slots=2, journal=tmp_path / "j") as made:
        whole, refused = made.generate(["x", [True, 2]], odd)
        with pytest.raises(SettingError, match="end_by must be an int, not 1e"):
            asyncio.run(made.agenerate("x", odd, end_by=1e18))
    assert whole.error is None and len(whole.tokens) <= 3
    assert type(refused.error) is PromptError and "token True" in str(refused.error)
    _, kept = journal.read((tmp_path / "j").read_text().splitlines())
    adds = [each for record in kept for each in record.commands if isinstance(each, Add)]
    added = adds[0].request
    assert (added.max_tokens, added.expected) == (3, 3)
    sampling = added.sampling
    assert {3, 1} <= sampling.stop_tokens and sampling.logit_bias == ((3, -1.0),)
    assert (sampling.min_tokens, sampling.seed, sampling.top_k, sampling.logprobs) == (1, 7, 5, 2)
    assert (sampling.temperature, sampling.top_p) == (0.5, 0.75)


def test_a_grammar_that_cannot_be_compiled_raises_before_anything_begins(llm):
    broken = Options(grammar=Grammar("regex", "[0-9"))
    said = "the regex cannot be compiled: .*unclosed"
    with pytest.raises(SettingError, match=said):
        llm.generate(["x", "y"], broken)
    with pytest.raises(SettingError, match=said):
        llm.chat([{"role": "user", "content": "x"}], broken)
    with pytest.raises(SettingError, match=said):
        next(llm.stream("x", broken))
    with pytest.raises(SettingError, match=said):
        asyncio.run(anext(llm.astream("x", broken)))
    assert llm._rows == {} and llm._engine._callers.open == []
    (held,) = llm.generate("x", Options(grammar=Grammar("regex", "[0-9]")))
    assert held.text.isdigit()


def test_the_load_reports_how_far_steps_drift_from_the_cost_model():
    options = Options(max_tokens=20, ignore_eos=True)
    with LLM(dtype="float32", slots=4) as free, LLM(dtype="float32", slots=4, cost=FAST) as held:
        assert [each.load.drift for each in (free, held)] == [0, 1_000]
        for each in (free, held):
            each.generate(PROMPTS, options, progress=False)
        assert free.load.drift == 0
        assert held.load.drift > 1_000, "a step takes more than a nanosecond"


def test_the_draft_model_has_the_same_tokenizer_and_is_small():
    folder = EMBEDDED.with_name("headway-tiny-draft")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 2_000_000
    assert sum(path.stat().st_size for path in EMBEDDED.iterdir()) <= 12_000_000
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (folder / name).read_bytes() == (EMBEDDED / name).read_bytes()
    with LLM(folder, slots=2) as draft:
        (answer,) = draft.generate("The json module", Options(max_tokens=8, ignore_eos=True))
    assert len(answer.tokens) == 8


def test_requests_that_cannot_begin_fail_alone_and_do_not_end_the_engine(llm, monkeypatch):
    """However often, and for any reason. Here the memory for penalties is missing."""
    options = Options(max_tokens=6, ignore_eos=True)
    alone = [llm.generate(prompt, options)[0].tokens for prompt in PROMPTS[:2]]

    def lacking(*about):
        raise MemoryError("no memory is left")

    with monkeypatch.context() as patched:
        patched.setattr("headway.executor.torch.slots.History", lacking)
        for _ in range(4):
            said = [llm.stream(prompt, options) for prompt in PROMPTS[:2]]
            first = [next(each) for each in said]
            (failed,) = llm.generate(PROMPTS[2], Options(max_tokens=6, presence_penalty=0.5))
            assert isinstance(failed.error, EngineError)
            assert "could not begin: no memory is left" in str(failed.error)
            tokens = [
                [token for delta in (begun, *rest) for token in delta.tokens]
                for begun, rest in zip(first, said, strict=True)
            ]
            assert [tuple(each) for each in tokens] == alone


@pytest.mark.parametrize(
    "options, words",
    [
        ({"top_k": 2**63}, "top_k must be"),
        ({"min_tokens": 2**63}, "min_tokens must be"),
        ({"logit_bias": {5: 1e300}}, "logit_bias must be"),
    ],
)
def test_values_too_large_for_the_executors_tables_are_refused(llm, options, words):
    asked = [Options(max_tokens=4), Options(**{"max_tokens": 4} | options)]
    for _ in range(4):  # three of them once ended the engine
        answered, refused = llm.generate(PROMPTS[:2], asked)
        assert len(answered.tokens) == 4 and answered.error is None
        assert isinstance(refused.error, HeadwayError) and words in str(refused.error)
    assert len(llm.generate(PROMPTS[0], asked[0])[0].tokens) == 4
