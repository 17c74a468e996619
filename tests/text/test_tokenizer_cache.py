"""A tokenizer that transformers has read is kept for the next start, and for nothing else."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from headway.text import tokenizer_cache
from headway.text.loaded_tokenizer import load_tokenizer
from headway.text.tokenizer import Tokenizer
from headway.text.tokenizer_cache import read_tokenizer

TINY = Path(__file__).parents[2] / "src" / "headway" / "models" / "headway-tiny"
CHAT = [{"role": "user", "content": "one <|end|> two"}]


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """The folder in which tokenizers are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "headway" / "tokenizers"


@pytest.fixture
def model(tmp_path):
    """A model's folder with a tokenizer that may be changed."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, folder)
    return folder


@pytest.fixture
def read_by_transformers(monkeypatch):
    """The folders that transformers has read so far."""
    read = []

    def noted(folder):
        read.append(folder)
        return load_tokenizer(folder)

    monkeypatch.setattr(tokenizer_cache, "load_tokenizer", noted)
    return read


def change(folder, **changes):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_second_start_reads_what_the_first_kept(kept, model, read_by_transformers):
    first, second = read_tokenizer(model), read_tokenizer(model)
    assert read_by_transformers == [model]
    assert second.fast.to_str() == first.fast.to_str()
    assert replace(second, fast=None) == replace(first, fast=None)
    assert second.template and second.named["bos_token"] == "<|bos|>"
    assert Tokenizer(model, 4096, second).chat(CHAT) == Tokenizer(model, 4096, first).chat(CHAT)
    assert kept.stat().st_mode & 0o777 == 0o700


def test_the_second_start_imports_neither_transformers_nor_torch(kept, model):
    read_tokenizer(model)
    asked = f"""
import sys
from pathlib import Path
from headway.text.tokenizer import Tokenizer
print(Tokenizer(Path({str(model)!r}), 4096).encode("a b"))
print({{"torch", "transformers"}} & set(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == [str(Tokenizer(model, 4096).encode("a b")), "set()"]


def test_a_change_of_files_versions_or_code_reads_the_tokenizer_anew(
    kept, model, read_by_transformers, monkeypatch, tmp_path
):
    read_tokenizer(model)
    change(model, chat_template="{{ messages[0]['content'] }}!")
    assert read_tokenizer(model).template == "{{ messages[0]['content'] }}!"
    (model / "chat_template.jinja").write_text("now this")
    assert read_tokenizer(model).template == "now this"
    (model / "additional_chat_templates").mkdir()
    (model / "chat_template.jinja").rename(
        model / "additional_chat_templates" / "chat_template.jinja"
    )
    assert read_tokenizer(model).template != "now this", "it is another's now"
    monkeypatch.setattr(tokenizer_cache, "version", lambda name: f"99 {name}")
    read_tokenizer(model)
    monkeypatch.setattr(tokenizer_cache, "SOURCES", tmp_path)  # other code
    (tmp_path / "changed.py").touch()
    read_tokenizer(model)
    assert len(read_by_transformers) == 6


def test_weights_are_not_hashed_and_a_large_other_file_prevents_caching(
    kept, model, read_by_transformers, monkeypatch
):
    (model / "model.safetensors").write_bytes(b"one")
    read_tokenizer(model)
    (model / "model.safetensors").write_bytes(b"two")
    read_tokenizer(model)
    assert len(read_by_transformers) == 1
    monkeypatch.setattr(tokenizer_cache, "LARGEST", 1000)
    assert read_tokenizer(model).largest == 4095
    assert len(read_by_transformers) == 2 and len(list(kept.iterdir())) == 1


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda text: text[:-1] + b" ", lambda text: b""]
)
def test_a_damaged_cache_file_is_replaced(kept, model, read_by_transformers, damage):
    read_tokenizer(model)
    (file,) = kept.iterdir()
    good = file.read_bytes()
    file.write_bytes(damage(good))
    assert read_tokenizer(model).largest == 4095
    assert len(read_by_transformers) == 2 and file.read_bytes() == good


@pytest.mark.parametrize("fault", ["no folder", "others may write", "a full disk"])
def test_without_a_usable_cache_every_start_asks_transformers(
    kept, model, read_by_transformers, monkeypatch, fault
):
    if fault == "no folder":
        monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    elif fault == "others may write":
        kept.mkdir(parents=True)
        kept.chmod(0o777)
    else:
        monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    assert [read_tokenizer(model).largest for _ in range(2)] == [4095, 4095]
    assert len(read_by_transformers) == 2
    assert not kept.exists() or not list(kept.iterdir())


def test_nothing_is_cached_if_a_file_changes_while_it_is_read(kept, model, monkeypatch):
    def read(folder):
        loaded = load_tokenizer(folder)
        change(folder, chat_template="newer")
        return loaded

    monkeypatch.setattr(tokenizer_cache, "load_tokenizer", read)
    assert read_tokenizer(model).template != "newer" and not list(kept.iterdir())
    monkeypatch.setattr(tokenizer_cache, "load_tokenizer", load_tokenizer)
    assert read_tokenizer(model).template == "newer"


def test_a_tokenizer_that_json_cannot_express_is_not_cached(kept, model, monkeypatch):
    odd = replace(load_tokenizer(model), named={"bos_token": object()})
    monkeypatch.setattr(tokenizer_cache, "load_tokenizer", lambda folder: odd)
    assert read_tokenizer(model) is odd and not list(kept.iterdir())


def test_the_least_recently_used_file_is_deleted(kept, model, read_by_transformers, monkeypatch):
    monkeypatch.setattr(tokenizer_cache, "MOST", 2)
    for name in ("one", "two"):
        change(model, chat_template=name)
        read_tokenizer(model)
    for age, file in enumerate(sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime)):
        os.utime(file, (age, age))
    change(model, chat_template="one")  # used again
    read_tokenizer(model)
    assert len(read_by_transformers) == 2
    change(model, chat_template="three")
    read_tokenizer(model)
    change(model, chat_template="one")
    read_tokenizer(model)
    assert len(read_by_transformers) == 3 and len(list(kept.iterdir())) == 2
    change(model, chat_template="two")
    read_tokenizer(model)
    assert len(read_by_transformers) == 4


def test_threads_that_start_at_once_all_get_the_same_tokenizer(kept, model):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: read_tokenizer(model), range(4)))
    assert len({each.fast.to_str() for each in found}) == 1
    assert len(list(kept.iterdir())) == 1
