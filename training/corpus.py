"""Builds the training text of headway-tiny: Python's documentation and standard library.

    documentation sources (.rst.txt) --+-> prose   one document per page, markup removed
                                       +-> chat    questions about each documented name
    standard library sources (.py)  ---+-> docstr  signatures with their docstrings
                                       +-> chat    questions answered by docstrings
                                       +-> code    the files unchanged

Whole documents are held out of training. A hash of their name chooses them, so the choice is the
same for a new release of the sources. The chats about a held-out document are held out with it. The
held-out prose is also written to ``corpus.txt.gz``, from which benchmarks take their prompts.

    python training/corpus.py --docs DIR --out training/.build [--prompts src/headway/data]
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chats import Turns, conversations, docstrings, first_paragraphs, questions, small_talk
from rst import rst_to_text

SEED = 20
# Tests, tables and generated text; pydoc_data repeats pages that may be held out.
SKIPPED_PARTS = {
    "test", "tests", "idle_test", "encodings", "pydoc_data", "msilib", "site-packages",
    "__pycache__", "turtledemo", "lib2to3", "_bundled", "lib-dynload",
}  # fmt: skip
# Files with a licence notice of their own are left out, so that one licence covers the corpus.
OWN_NOTICE = re.compile(
    r"Permission is hereby granted|Permission to use, copy|Redistribution and use"
    r"|All rights reserved|Permission to copy|SPDX-License-Identifier|GNU General",
    re.I,
)


@dataclass(frozen=True)
class Document:
    """One unit of training text. A chat has ``turns`` instead of ``text``."""

    name: str
    kind: str  # prose, docstr, code or chat
    held_out: bool
    text: str = ""
    turns: Turns = field(default_factory=list)


def digest(name: str) -> int:
    """A hash of the name, the same on every machine and in every run."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def chat_documents(origin: str, pairs: list[tuple[str, str]], held_out: bool) -> Iterator[Document]:
    """The conversations about one page or file. Its name seeds the random choices."""
    rng = random.Random(digest(origin) + SEED)
    for i, turns in enumerate(conversations(pairs, rng)):
        yield Document(f"chat/{origin}/{i}", "chat", held_out, turns=turns)


def pages(root: Path) -> Iterator[Document]:
    """The documentation. About one page in nine is held out, with its chats."""
    for path in sorted(root.rglob("*.rst.txt")):
        name = "docs/" + path.relative_to(root).as_posix().removesuffix(".rst.txt")
        source = path.read_text("utf-8")
        text = rst_to_text(source)
        if len(text) < 200:
            continue
        # The glossary is never held out: the chats about common words come from it alone.
        held_out = digest(name) % 9 == 0 and name != "docs/glossary"
        yield Document(name, "prose", held_out, text)
        yield from chat_documents(name, list(questions(source)), held_out)


def library(root: Path) -> Iterator[Document]:
    """The standard library. About one file in 20 is held out. Public docstrings become chats."""
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root)
        if SKIPPED_PARTS & set(inner.parts):
            continue
        source = path.read_text("utf-8", errors="replace")
        if len(source) < 400 or OWN_NOTICE.search(source):
            continue
        name = "lib/" + inner.as_posix()
        held_out = digest(name) % 20 == 0
        yield Document(name, "code", held_out, source)
        module = ".".join(inner.with_suffix("").parts).removesuffix(".__init__")
        found = list(docstrings(source, module))
        if not found:
            continue
        text = "\n\n".join(f"{sign}\n{doc}" for _, sign, doc in found) + "\n"
        yield Document(name + ":docstrings", "docstr", held_out, text)
        public = [(n, first_paragraphs(d, 500)) for n, _, d in found if "._" not in n]
        pairs = [(n, a) for n, a in public if len(a) > 20]
        yield from chat_documents(name, pairs, held_out)


def greetings() -> Iterator[Document]:
    """The chats that are small talk alone."""
    for i, turns in enumerate(small_talk(random.Random(SEED))):
        yield Document(f"chat/small-talk/{i}", "chat", False, turns=turns)


def write_corpus(documents: Iterable[Document], out: Path) -> list[Document]:
    """Writes ``corpus.jsonl`` and returns the documents in it."""
    kept = list(documents)
    out.mkdir(parents=True, exist_ok=True)
    with (out / "corpus.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        for document in kept:
            file.write(json.dumps(asdict(document), ensure_ascii=False) + "\n")
    return kept


def write_prompts(documents: Iterable[Document], out: Path) -> None:
    """Writes the held-out prose as one gzip file. The same prose gives the same bytes."""
    pages = [d.text for d in documents if d.kind == "prose" and d.held_out]
    out.mkdir(parents=True, exist_ok=True)
    raw = "\n".join(pages).encode("utf-8")
    (out / "corpus.txt.gz").write_bytes(gzip.compress(raw, compresslevel=9, mtime=0))
    print(f"corpus.txt.gz: {len(pages)} pages, {len(raw):,} bytes of text")


def main() -> None:
    """Write the corpus and print its size by kind."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--docs", type=Path, required=True, help="folder of the .rst.txt sources")
    parser.add_argument("--out", type=Path, default=Path("training/.build"))
    parser.add_argument("--prompts", type=Path, help="also write corpus.txt.gz into this folder")
    args = parser.parse_args()
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    documents = write_corpus([*pages(args.docs), *library(stdlib), *greetings()], args.out)
    for kind in ("prose", "docstr", "code", "chat"):
        for held_out in (False, True):
            chosen = [d for d in documents if d.kind == kind and d.held_out == held_out]
            size = sum(len(d.text) + sum(len(t) for _, t in d.turns) for d in chosen)
            print(f"{kind:8}{'held out' if held_out else 'training':10}"
                  f"{len(chosen):6} documents {size:12,} characters")  # fmt: skip
    print("sha256", hashlib.sha256((args.out / "corpus.jsonl").read_bytes()).hexdigest())
    if args.prompts:
        write_prompts(documents, args.prompts)


if __name__ == "__main__":
    main()
