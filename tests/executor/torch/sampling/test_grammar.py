"""Answers of the embedded model under a grammar match it in any batch, and then end."""

import json
import re
import threading
from dataclasses import replace
from shutil import copy

import jsonschema
import pytest
import torch

from headway import LLM, Options
from headway.core.batch import Begun
from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.core.grammar import Grammar
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Finish, Request
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import SettingError, TokenizerError
from headway.executor.grammars import grammar as module
from headway.executor.grammars.grammar import (
    KEPT_GRAMMARS,
    GrammarCompiler,
    Matcher,
    compile_grammar,
    grammar_tokenizer,
)
from headway.executor.grammars.masks import token_bitmasks
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from headway.executor.torch.sampling.masks import apply_grammars, unpack_bits
from headway.llm.llm import EMBEDDED
from headway.sim.simulate import simulate
from headway.text.tokenizer import Tokenizer

COST = StepCost.of(7_000_000, per_token=35_000, per_pair=47)
EOS, VOCAB = 2, 4096
ENDS = frozenset({EOS})
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{1,8}$"},
        "sizes": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 2},
        "kind": {"enum": ["list", "dict", None]},
    },
    "required": ["name", "sizes", "kind"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False, "whitespace_pattern": None},
}
ODD = ['a"b\n', "\\", "é😀", "\x01 x", " lead", "a/b|c", "<|bos|>", "[x]{2}(?i)"]
SUM = 'start: number ("+" number){1,3}\nnumber: /[0-9]{1,3}/ | "(" start ")"'
DATE = Grammar("regex", r"20[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]")
WORD = Grammar("regex", "[a-z]{3,6}( [a-z]{2,4}){8}")


@pytest.fixture(scope="module")
def words():
    return Tokenizer(EMBEDDED, VOCAB)


@pytest.fixture(scope="module")
def tokens():
    return grammar_tokenizer(EMBEDDED, VOCAB, ENDS)


def serve(asked, most=64, blocks=400, chunk=64, folder=EMBEDDED):
    """The tokens and the last event of each of these samplings, submitted together."""
    loaded = load(folder, Limits(8, 64, 256, 4, num_blocks=blocks), dtype="float32")
    policies = Policies(Continuous(8), chunk=Fixed(chunk), step_tokens=64)
    scheduler = Scheduler(Settings(blocks, 4, policies=policies))
    prompt = tuple(range(300, 314))
    timed = [
        (i, Add(Request(str(name), prompt, most, i, sampling=sampling)))
        for i, (name, sampling) in enumerate(asked.items())
    ]
    said, last = {str(name): [] for name in asked}, {}
    for event in simulate(scheduler, timed, COST, loaded.executor):
        said[event.id] += event.tokens
        last[event.id] = event
    return said, last, scheduler


def hold(grammar, temperature=1.0, **rest):
    return Sampling(temperature, stop_tokens=ENDS, grammar=grammar, **rest)


def texts(asked, words, **rest):
    """The text of each answer; every answer must have ended by itself."""
    said, last, _ = serve(asked, **rest)
    for name, answer in said.items():
        assert (last[name].finish, last[name].error) == (Finish.STOP, ""), answer
        assert answer[-1] == EOS
    return {name: words.decode(answer[:-1], skip_special=False) for name, answer in said.items()}


def test_answers_follow_their_json_schema(words):
    grammar = Grammar("json_schema", json.dumps(SCHEMA))
    asked = {i: hold(grammar, (0.0, 1.0)[i > 0], seed=i) for i in range(24)}
    found = texts(asked, words, most=120)
    assert len(set(found.values())) > 12
    for text in found.values():
        jsonschema.validate(json.loads(text), SCHEMA)


def follow(text, schema, tokens, words):
    """Whether the schema's grammar accepts this text, encoded character by character."""
    state = compile_grammar(Grammar("json_schema", json.dumps(schema)), tokens).deep_copy()
    ids = [token for each in text for token in words.encode(each)]
    return state.try_consume_tokens(ids) == len(ids)


def test_a_schema_allows_at_most_a_blank_or_an_indented_line_between_tokens(tokens, words):
    sizes = {name: {"type": "integer"} for name in ("a", "b")}
    schema = {"type": "object", "properties": sizes, "required": ["a", "b"]}
    said = '{"a":1,"b":2}', '{"a": 1, "b": 2}', '{\n        "a" : 1,\n"b":2\n}'
    assert all(follow(each, schema, tokens, words) for each in said)
    for each in ('{  "a"', "{\n\n", '{"a":  ', '{"a":1,\n         ', '{"a":1 \n', "{\t"):
        assert not follow(each, schema, tokens, words), each
    own = schema | {"x-guidance": {"whitespace_pattern": r"[ \n]+"}}
    assert follow('{\n\n  "a":  1', own, tokens, words)


def test_an_answer_cannot_consist_of_endless_blanks(words):
    """The schema has two fields. The bias makes the model prefer blanks everywhere."""
    sizes = {name: {"type": "boolean"} for name in ("a", "b")}
    schema = {"type": "object", "properties": sizes, "required": ["a", "b"]}
    schema |= {"additionalProperties": False}
    blanks = [id for id in range(VOCAB) if not words.decode([id]).strip()]
    bias = tuple((id, 100.0) for id in blanks if id != EOS)
    grammar = Grammar("json_schema", json.dumps(schema))
    said, last, _ = serve({0: hold(grammar, logit_bias=bias)}, most=400)
    assert last["0"].finish is Finish.STOP and len(said["0"]) < 100, "it was 240"
    jsonschema.validate(json.loads(words.decode(said["0"][:-1])), schema)


def test_a_json_object_is_complete_unless_it_is_cut_off(words):
    """Its length is not bounded, so a weak model may be cut off by max_tokens."""
    said, last, _ = serve({i: hold(Grammar("json_object"), seed=i) for i in range(16)}, most=80)
    whole = [name for name, event in last.items() if event.finish is Finish.STOP]
    assert whole and all(event.finish in (Finish.STOP, Finish.LENGTH) for event in last.values())
    for name, answer in said.items():
        text = words.decode(answer, skip_special=True)
        assert text.startswith("{")
        if name in whole:
            assert isinstance(json.loads(text), dict)


def test_answers_match_their_regex_choice_or_lark_grammar(words):
    grammars = [DATE, WORD, Grammar("choice", json.dumps(ODD)), Grammar("lark", SUM)]
    asked = {(k, i): hold(each, 5.0, seed=i) for k, each in enumerate(grammars) for i in range(10)}
    found = texts(asked, words, most=100)
    dates, worded, odd, sums = ([found[str((k, i))] for i in range(10)] for k in range(4))
    assert all(re.fullmatch(DATE.text, text) for text in dates)
    assert all(re.fullmatch(WORD.text, text) for text in worded)
    assert set(odd) <= set(ODD) and len(set(odd)) > 1
    assert all(re.fullmatch(r"[0-9+()]+", text) and eval(text) >= 0 for text in map(_plain, sums))


def _plain(text):
    """Python refuses numbers with a leading zero."""
    return re.sub(r"\b0+(?=[0-9])", "", text)


def test_each_choice_can_be_generated(tokens, words):
    made = compile_grammar(Grammar("choice", json.dumps(ODD)), tokens)
    for option in ODD:
        state = made.deep_copy()
        ids = words.spellings([option])[0]  # a special token's spelling as plain text
        assert state.consume_tokens(list(ids)) and state.is_accepting(), option
        assert state.is_stopped(), "nothing may follow"


ASKED = {
    "free": Sampling(0.9, seed=4),
    "greedy": Sampling(),
    "date": hold(DATE, seed=4),
    "greedy word": hold(WORD, 0.0),
    "second": hold(WORD, seed=4, choice=1),
    "filtered": hold(WORD, 0.8, seed=4, top_k=50, top_p=0.9, min_p=0.01),
    "weighed": hold(WORD, seed=4, frequency_penalty=1.5, logit_bias=((71, 3.0),), logprobs=2),
}


def test_answers_are_the_same_alone_batched_and_preempted():
    alone = {name: serve({name: each}, most=40)[0][name] for name, each in ASKED.items()}
    assert len({tuple(answer) for answer in alone.values()}) == len(ASKED)
    for blocks, chunk in ((400, 64), (16, 8)):
        said, last, scheduler = serve(ASKED, most=40, blocks=blocks, chunk=chunk)
        assert said == alone
        assert not any(event.error for event in last.values())
    kept = [row for row in scheduler.ledger.requests if row.id not in ("free", "greedy")]
    assert any(row.preemptions for row in kept), "the last run is short of memory"


def test_a_preempted_sequence_continues_at_the_same_place_of_its_grammar(tokens, words):
    start, prompt, answer = (
        compile_grammar(WORD, tokens),
        (7, 8, 9),
        words.encode("abcde fgh ij klmn"),
    )
    known = prompt + answer
    grown = Matcher(Begun(0, 3, Sampling(), prompt), start.deep_copy())
    for cut in range(3, len(known)):
        grown.extend(cut, known[cut : cut + 1])
        again = Matcher(Begun(0, 3, Sampling(), known[: cut + 1]), start.deep_copy())
        for row in range(0, cut + 1, 2):  # from the end of the cached prefix on
            again.extend(row, known[row : row + 2][: cut + 1 - row])
        assert (lambda a, b: (a == b).all())(
            *token_bitmasks((grown, again), VOCAB)
        ) and not grown.error


def test_rows_without_a_grammar_are_unchanged_bit_for_bit(tokens):
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    matcher = Matcher(Begun(0, 3, Sampling()), compile_grammar(DATE, tokens))
    found = apply_grammars(logits, {1: matcher})
    assert torch.equal(logits, before), "the given grammar is kept"
    assert torch.equal(found[[0, 2]], logits[[0, 2]])
    allowed = found[1] > -torch.inf
    assert torch.equal(found[1][allowed], logits[1][allowed])
    assert {tokens.decode_str([i])[0] for i in allowed.nonzero().flatten().tolist()} == {"2"}
    assert apply_grammars(logits, {}) is logits


def test_a_bias_chooses_among_the_tokens_the_grammar_allows(words):
    (b,) = words.encode("b")
    (z,) = words.encode("z")
    biased = ((b, 30.0), (z, 90.0))
    grammar = Grammar("regex", "[a-c]{3}")
    found = texts({"biased": hold(grammar, 0.0, logit_bias=biased)}, words)
    assert found["biased"][0] == "b" and re.fullmatch("[a-c]{3}", found["biased"])
    lone = hold(
        grammar, 0.0, bad_words=tuple((t,) for t in range(VOCAB) if "b" in words.decode([t]))
    )
    assert "b" not in texts({"lone": lone}, words)["lone"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "rest", [{"min_tokens": 9}, {"bad_words": tuple((t,) for t in range(VOCAB))}]
)
def test_an_answer_ends_with_an_error_if_all_allowed_tokens_are_banned(temperature, rest):
    asked = {"free": Sampling(), "held": hold(Grammar("choice", '["ab"]'), temperature, **rest)}
    said, last, _ = serve(asked | {"filtered": replace(asked["held"], top_k=3, logprobs=1)})
    assert last["free"].finish is Finish.LENGTH
    for name in ("held", "filtered"):
        assert last[name].error.startswith("no token can be sampled: the grammar, bad words")
        assert EOS not in said[name]


def test_a_broken_grammar_fails_only_its_own_row(tmp_path):
    broken = Grammar("json_schema", '{"type": "objct"}')
    asked = {
        "free": ASKED["free"],
        "broken": hold(broken),
        "endless": replace(hold(DATE), stop_tokens=frozenset({7})),
        "nothing": hold(Grammar("regex", r"a[^\s\S]")),
    }
    said, last, _ = serve(asked)
    assert last["broken"].error == "the json_schema cannot be compiled: Invalid type: objct"
    assert last["endless"].error.startswith("an answer with a grammar must stop at every end")
    assert "there is no text that matches" in last["nothing"].error
    assert said["broken"] == said["endless"] == said["nothing"] == []
    assert said["free"] == serve({"free": ASKED["free"]})[0]["free"]


def test_a_model_without_a_tokenizer_refuses_grammars(golden, tmp_path):
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        copy(EMBEDDED / name, tmp_path)
    _, last, _ = serve({"held": hold(DATE)}, folder=tmp_path)
    assert "a grammar needs tokenizer.json" in last["held"].error
    for folder, words in (
        (tmp_path.parent / "none", "tokenizer.json"),
        (type(tmp_path)(), "random"),
    ):
        with pytest.raises(TokenizerError, match=words):
            grammar_tokenizer(folder, VOCAB, ENDS)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer.json cannot be read for grammars: \S"):
        grammar_tokenizer(tmp_path, VOCAB, ENDS)


@pytest.mark.parametrize("vocab", [VOCAB, VOCAB + 1, VOCAB + 31, VOCAB + 77])
def test_ids_unknown_to_the_tokenizer_are_masked(vocab):
    made = compile_grammar(Grammar("regex", r"(?s:.)*"), grammar_tokenizer(EMBEDDED, vocab, ENDS))
    logits = torch.zeros(1, vocab)
    found = apply_grammars(logits, {0: Matcher(Begun(0, 1, Sampling()), made)})
    allowed = (found[0] == 0).nonzero().flatten()
    assert len(allowed) > VOCAB // 2 and allowed.max() < VOCAB
    assert EOS in allowed.tolist()


def test_every_stop_token_is_allowed_exactly_where_the_answer_may_end(words):
    state = compile_grammar(
        Grammar("regex", "ab?"), grammar_tokenizer(EMBEDDED, VOCAB, frozenset({2, 5}))
    )
    matcher = Matcher(Begun(0, 2, Sampling()), state)

    def allowed():
        (row,) = unpack_bits(torch.from_numpy(token_bitmasks((matcher,), VOCAB)))
        return set(row.nonzero().flatten().tolist())

    (a,), (b,) = words.encode("a"), words.encode("b")
    assert a in allowed() and not allowed() & {2, 5}
    matcher.extend(0, (9, 9, a))
    assert allowed() == {b, 2, 5}
    matcher.extend(2, (a, b))
    assert allowed() == {2, 5}, "only the end is allowed"
    matcher.extend(4, (a,))
    assert "cannot be followed" in matcher.error


def test_compiled_grammars_are_kept_and_the_least_recently_used_dropped(tokens):
    grammars = GrammarCompiler(EMBEDDED, VOCAB, ENDS)
    assert grammars._tokenizer is None, "nothing is read before the first grammar"
    many = [Grammar("regex", f"a{{{i + 1}}}") for i in range(KEPT_GRAMMARS)]
    for each in [DATE, *many[:-1], DATE, many[-1]]:
        grammars.begin(Begun(0, 1, hold(each)))
    assert list(grammars._compiled)[-2:] == [DATE, many[-1]]
    grammars.begin(Begun(0, 1, hold(WORD)))
    assert len(grammars._compiled) == KEPT_GRAMMARS and many[0] not in grammars._compiled


@pytest.fixture
def compiling(monkeypatch):
    """The names of the threads that have compiled."""
    names = []

    def noted(grammar, tokens):
        names.append(threading.current_thread().name)
        return compile_grammar(grammar, tokens)

    monkeypatch.setattr(module, "compile_grammar", noted)
    return names


def test_a_grammar_compiled_ahead_is_not_compiled_in_a_step(compiling):
    loaded = load(EMBEDDED, Limits(2, 64, 64, 16))
    ahead = threading.Thread(target=loaded.executor.compile, args=(DATE,), name="ahead")
    ahead.start()
    ahead.join()
    loaded.executor._slots.begin(Begun(0, 1, hold(DATE)))
    assert compiling == ["ahead"]
    loaded.executor._slots.begin(Begun(1, 1, hold(WORD)))
    assert compiling == ["ahead", threading.current_thread().name], (
        "a grammar that was not compiled ahead is compiled in the step"
    )
    with pytest.raises(SettingError, match="cannot be compiled"):
        loaded.executor.compile(Grammar("regex", "[0-9"))


def test_an_llm_compiles_grammars_in_its_callers_thread(compiling):
    with LLM() as llm:
        llm.generate("x", Options(max_tokens=3, grammar=DATE))
    assert compiling == [threading.current_thread().name]


def test_white_space_between_json_tokens_is_bounded(tokens):
    state = compile_grammar(Grammar("json_object"), tokens)
    assert state.deep_copy().consume_tokens(tokens.tokenize_str('{\n    "a" : [ 1,2 ]\n}'))
    said = tokens.tokenize_str("{" + "\n" * 60)
    assert 0 < state.try_consume_tokens(said) < len(said)


def test_a_schema_cannot_break_out_of_its_wrapper(tokens):
    with pytest.raises(SettingError, match="the json_schema cannot be read: Extra data"):
        compile_grammar(Grammar("json_schema", '{} }], "max_tokens": 3, "x": [{"a": {}'), tokens)
    with pytest.raises(SettingError, match="the lark cannot be compiled"):
        compile_grammar(Grammar("lark", '{"grammars": [{"lark_grammar": "start: /a/"}]}'), tokens)


def test_options_with_a_grammar_are_checked_and_obeyed():
    with pytest.raises(SettingError, match="leave out ignore_eos"):
        Options(grammar=DATE, ignore_eos=True)
    with LLM(dtype="float32", slots=4) as llm:
        options = Options(temperature=1.0, n=3, grammar=DATE, seed=3)
        answers = llm.generate("Released on ", options)
        assert [each.text for each in llm.generate("Released on ", options)] == [
            each.text for each in answers
        ]
    assert len({each.text for each in answers}) > 1
    assert all(re.fullmatch(DATE.text, each.text) for each in answers)
    assert {each.finish for each in answers} == {Finish.STOP}
