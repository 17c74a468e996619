"""The command line as a user meets it: its output, its errors and its exit status."""

import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from typer.main import get_command

from headway.cli import main
from headway.cli.app import app
from headway.cli.screen import screen
from headway.commands.replay.change import KEYS
from headway.models import EMBEDDED
from tests.cli.whole_command import parse

SHEET = "--accelerator", "l4"


@pytest.fixture
def headway(monkeypatch, capsys):
    """Run the command in this process; gives its exit status, standard output and error."""

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["headway", *words])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code or 0, *capsys.readouterr()

    return command


def test_a_name_cannot_control_the_terminal(headway, tmp_path):
    console = screen()
    console.file = StringIO()
    table = Table("lane \u202ekeeps\x1b[2J")
    table.add_row("n\x9b3A")
    console.print(Text("chat\x1b[31m\nvoice"), table, "sprechen, \u0645\u0631\u062d\u0628\u0627")
    said = console.file.getvalue()
    assert said.replace("\n", "").isprintable()
    assert "chat\\x1b[31m\nvoice\n" in said and "\\u202e" in said and "n\\x9b3A" in said
    assert "sprechen, \u0645\u0631\u062d\u0628\u0627" in said
    file = tmp_path / "lanes.yaml"
    file.write_text('"a\\e[2J": {trace: none.csv, arrivals: poisson}\n')
    status, _, wrong = headway("bench", "http://127.0.0.1:9", "--lanes", str(file))
    assert status == 2 and r"a\x1b[2J: say either a trace or arrivals" in wrong


def test_every_commands_help_has_an_example(headway):
    az = "abcdefghijklmnopqrstuvwxyz"
    status, said, _ = headway("--help")
    assert status == 0 and "Begin with headway demo" in said
    for command in ("demo", "compare", "generate", "serve", "config", "simulate"):
        assert f"│ {command} " in said
    lines = said.splitlines()
    for command in [line.split()[1] for line in lines if line.startswith("│ ") and line[2] in az]:
        status, said, _ = headway(command, "--help")
        assert status == 0 and f": headway {command}" in said and "…" not in said
    for command in ("validate", "show", "schema", "key"):
        status, said, _ = headway("config", command, "--help")
        assert status == 0 and f"Example: headway config {command}" in said and "…" not in said
    for command, words in (("serve", "Default: 8000."), ("config", "Make an API key.")):
        status, said, _ = headway(command, "--help")
        assert status == 0 and words in said and "…" not in said


@pytest.mark.parametrize(
    "library, extra", [("fastapi", "server"), ("pydantic_settings", "server"), ("numpy", "torch")]
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    headway, monkeypatch, library, extra
):
    def needs_it(**_):
        raise ModuleNotFoundError(f"No module named {library!r}", name=f"{library}.inner")

    monkeypatch.setattr("headway.cli.app", needs_it)
    status, _, said = headway("serve")
    assert status == 2
    assert said == f"headway: {library} is not installed: pip install 'headway[{extra}]'\n"


def test_a_library_of_no_extra_that_is_missing_is_an_error_of_ours(headway, monkeypatch):
    def needs_it(**_):
        raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")

    monkeypatch.setattr("headway.cli.app", needs_it)
    with pytest.raises(ModuleNotFoundError):
        headway("serve")


def helps(command):
    """The help of a command and of its subcommands."""
    yield command.help or ""
    for each in getattr(command, "commands", {}).values():
        yield from helps(each)


def test_every_example_is_a_whole_command(monkeypatch):
    """Each example has what its command requires, and no option that the command does not know."""
    monkeypatch.delenv("HEADWAY_LEDGER__URL", raising=False)
    examples = list[str]()
    for text in helps(get_command(app)):
        for example in re.findall(r"Examples?: (headway .*?)(?:\n\n|$)", text, re.DOTALL):
            examples += re.split(r";\s|, then ", example)
    assert len(examples) > 25
    for example in examples:
        parse(example)


def test_the_help_says_how_long_the_demo_takes_and_names_every_key_of_replay(headway):
    _, said, _ = headway("--help")
    (takes,) = re.findall(r"Begin with headway demo \((.*?)\)", " ".join(said.split()))
    assert takes in " ".join(headway("demo", "--help")[1].split())
    _, said, _ = headway("replay", "--help")
    assert [name for name in KEYS if name not in said] == []


@pytest.fixture(scope="module")
def generated():
    """What `generate` as a process writes where the terminal's encoding is ASCII."""
    words = ["generate", "für json", "--max-tokens", "5"]
    return subprocess.run(
        [sys.executable, "-m", "headway", *words],
        capture_output=True,
        timeout=120,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )


def test_generate_prints_the_text_on_stdout_and_the_memory_on_stderr(generated):
    assert generated.returncode == 0
    assert generated.stdout.startswith(b"f") and b"r json" in generated.stdout
    assert b"KV blocks" not in generated.stdout
    assert generated.stderr.startswith(b"memory: ")
    assert b"blocks of 16 tokens" in generated.stderr


def test_generate_prints_a_json_line_for_each_prompt(headway):
    status, said, _ = headway("generate", "a", "b", "--json", "--max-tokens", "3", "--seed", "1")
    rows = [json.loads(line) for line in said.splitlines()]
    assert status == 0 and [row["prompt"] for row in rows] == ["a", "b"]
    assert all(row["row"]["generated"] == len(row["tokens"]) for row in rows)


def test_generate_prints_each_answer_and_each_error_and_ends_with_status_1(headway):
    long = "word " * 3_000
    words = ["generate", "a", long, "b", "--max-tokens", "3"]
    status, said, told = headway(*words)
    assert status == 1 and [line[0] for line in said.splitlines() if line] == ["a", "b"]
    (error,) = [line for line in told.splitlines() if line.startswith("headway: ")]
    assert error.startswith("headway: 'word word ") and "cannot fit" in error
    status, said, told = headway(*words, "--json")
    rows = [json.loads(line) for line in said.splitlines()]
    assert status == 1 and [row["finish"] for row in rows] == ["length", "refused", "length"]
    assert [bool(row["error"]) for row in rows] == [False, True, False]
    status, said, told = headway("generate", "x", "--max-tokens", "9000")
    assert (status, said) == (1, "") and "9000 to generate cannot fit" in told


def test_what_the_terminals_encoding_lacks_is_escaped(generated):
    assert generated.returncode == 0 and generated.stdout.startswith(rb"f\xfcr json")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "words", [["--version"], ["config", "schema"], ["calibrate", "qwen2.5-0.5b", *SHEET]]
)
def test_an_output_on_a_full_disk_is_a_one_line_error_and_status_2(words, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "headway", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            cwd=tmp_path,
        )
    said = "headway: the output cannot be written: no space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_closed_output_pipe_ends_the_command_silently_with_status_1():
    end, pipe = os.pipe()
    os.close(end)
    words = [sys.executable, "-m", "headway", "--version"]
    done = subprocess.run(words, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(pipe)
    assert (done.returncode, done.stderr) == (1, "")


def broken(tmp_path, what):
    """A copy of the embedded checkpoint with one thing wrong."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in EMBEDDED.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    if what == "corrupt":
        with open(folder / "model.safetensors", "r+b") as file:
            file.truncate(100_000)
    elif what == "architecture":
        config["architectures"], config["model_type"] = ["MambaForCausalLM"], "mamba"
    elif what == "tokenizer":
        other = Tokenizer(WordLevel({f"w{i}": i for i in range(9_000)}, unk_token="w0"))
        other.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize(
    "what, words, cause",
    [
        ("", ["--model", "no/such/folder"], "not a folder"),
        ("corrupt", [], "model.safetensors is damaged or cut short"),
        ("architecture", [], "MambaForCausalLM"),
        ("tokenizer", [], "the tokenizer does not match the model"),
        ("", ["--top-p", "1.5"], "top_p must be in (0, 1], not 1.5"),
        ("", ["--no-such-setting"], "No such option: --no-such-setting"),
    ],
)
def test_bad_input_is_a_one_line_error_with_the_cause_and_status_2(
    headway, tmp_path, what, words, cause
):
    model = ["--model", broken(tmp_path, what)] if what else []
    status, said, told = headway("generate", "x", *words, *model)
    errors = [line for line in told.splitlines() if not line.startswith("memory: ")]
    assert status == 2 and said == "" and cause in told and "Traceback" not in told
    if "--no-such-setting" not in words:  # typer draws a box of its own
        assert len(errors) == 1 and errors[0].startswith("headway: ")
