"""Grammars are tried in a child process: faults are reported, and a crash ends only the child."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headway.core.grammar import Grammar
from headway.errors import GrammarCheckError
from headway.executor.grammars import grammar_check as trials
from headway.executor.grammars.grammar_check import GrammarChecker, grammar_problem
from headway.llm.llm import EMBEDDED


@pytest.fixture(scope="module")
def trial():
    made = GrammarChecker(EMBEDDED)
    yield made
    made.close()


CHAIN = "start: a0\n" + "\n".join(f'a{i}: a{i + 1} | "x"' for i in range(2500)) + '\na2500: "b"'
SLOW = json.dumps(
    {
        "allOf": [
            {"type": "string", "pattern": f"[a-z]*{chr(97 + i % 26)}[a-z0-9]*"} for i in range(30)
        ]
    }
)


@pytest.mark.parametrize(
    "kind, text, words",
    [
        ("json_object", "", ""),
        ("json_schema", '{"type": "integer"}', ""),
        ("json_schema", '{"type": "objct"}', "the json_schema cannot be compiled: Invalid type"),
        ("json_schema", '{"dependentSchemas": {"a": {}}}', "Unimplemented keys"),
        ("json_schema", '{"minimum": 5, "maximum": 2, "type": "integer"}', "minimum (5) is great"),
        ("json_schema", '{"$ref": "http://x/y"}', "is not present in a registry"),
        ("json_schema", "{", "the json_schema cannot be read"),
        ("json_schema", '{"const": 1e999}', "the json_schema cannot be read: Out of range float"),
        ("json_schema", "[1]", "it must be a JSON object"),
        ("json_schema", "[" * 60_000, "cannot be read"),
        ("json_schema", '{"const": "\\ud800"}', "cannot be read"),
        ("regex", "[0-9", "regex parse error: unclosed character class"),
        ("regex", r"(a)\1", "backreferences are not supported"),
        ("regex", "\ud800", "surrogates not allowed"),
        ("regex", r"a[^\s\S]", "there is no text that matches"),
        ("choice", '["a", ""]', "a list of strings, none of them empty"),
        ("choice", "[]", "a list of strings"),
        ("choice", '{"a": 1}', "a list of strings"),
        ("lark", 'start: "a" y', 'unknown name: "y"'),
        ("lark", "start: start", "there is no text that matches"),
    ],
)
def test_a_faulty_grammar_is_explained_in_one_line(trial, kind, text, words):
    said = trial.problem(Grammar(kind, text))
    assert words in said and bool(said) == bool(words)
    assert "\n" not in said


def test_a_grammar_that_crashes_or_stalls_the_child_is_refused_and_the_next_tried(trial):
    for _ in range(2):
        assert "too deeply" in trial.problem(Grammar("lark", CHAIN))
        assert trial.problem(Grammar("lark", 'start: "b"')) == ""
    said = trial.problem(Grammar("json_schema", SLOW), 0.25)
    assert said == "the json_schema takes more than 0.25 s to compile: make it simpler"
    assert trial.problem(Grammar("lark", 'start: "b"')) == ""


def test_a_dead_child_is_replaced_and_one_that_dies_is_reported(trial, monkeypatch):
    assert trial.problem(Grammar("regex", "a")) == ""
    trial._child.terminate()
    trial._child.wait()
    assert trial.problem(Grammar("regex", "b")) == ""
    gone = GrammarChecker(EMBEDDED)
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(GrammarCheckError, match="ended with 1: try again"):
        gone.problem(Grammar("regex", "a"))
    gone.close()


def test_a_grammar_whose_child_was_killed_from_outside_may_be_tried_again(monkeypatch):
    """For example, because the machine is out of memory. The same grammar then passes."""
    asked, answer = Grammar("regex", "a+somebody"), trials._answer

    def ended(child, ask):
        child.kill()
        child.wait()

    monkeypatch.setattr(trials, "_answer", ended)
    with pytest.raises(GrammarCheckError, match="ended with -9"):
        grammar_problem(asked, EMBEDDED)
    monkeypatch.setattr(trials, "_answer", answer)
    assert grammar_problem(asked, EMBEDDED) == ""


def test_no_grammar_gets_the_answer_that_an_interrupted_check_did_not_wait_for(trial, monkeypatch):
    def interrupted(child, ask):
        child.stdin.write(json.dumps(ask) + "\n")
        child.stdin.flush()
        raise KeyboardInterrupt

    assert trial.problem(Grammar("regex", "a")) == ""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(trials, "_answer", interrupted)
        trial.problem(Grammar("regex", "b"))
    assert "unclosed" in trial.problem(Grammar("regex", "[0-9"))
    assert trial.problem(Grammar("regex", "c")) == ""


def test_a_missing_tokenizer_or_an_empty_grammar_is_reported(tmp_path):
    assert "has none" in grammar_problem(Grammar("regex", "a"), tmp_path)
    assert "random weights" in grammar_problem(Grammar("regex", "a"), Path())
    assert "has no text" in grammar_problem(Grammar("regex"), tmp_path), (
        "refused without a child process"
    )


def test_checking_a_grammar_imports_no_torch_in_the_calling_process():
    code = (
        "import sys; from pathlib import Path; from headway.core.grammar import Grammar;"
        "from headway.executor.grammars.grammar_check import grammar_problem;"
        f"said = grammar_problem(Grammar('regex', '[0-9'), Path({str(EMBEDDED)!r}));"
        "assert 'unclosed' in said;"
        "print(*sorted({'torch', 'numpy', 'transformers', 'llguidance'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("", "")
