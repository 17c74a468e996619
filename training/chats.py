"""Makes conversations from documentation: a user asks about a name, and its description answers.

A conversation is a list of turns ``(role, content)``. The questions and the small talk are the
only sentences of the corpus that do not come from Python itself.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator

from rst import DESCRIBED, DIRECTIVE, body_end, dedented, indent_of, plain, rst_to_text

Turns = list[tuple[str, str]]

ASK = (
    "What does {n} do?", "what does {n} do", "What is {n}?", "Explain {n}.", "Tell me about {n}.",
    "How do I use {n}?", "Can you describe {n}?", "What is {n} for?", "Describe {n} briefly.",
    "I saw {n} in some code. What does it do?", "Please explain {n} to me.", "What about {n}?",
    "When would I use {n}?", "Give me a short description of {n}.", "{n}?",
    "In Python, what does {n} do?",
)  # fmt: skip
ASK_TERM = (
    "What is {n}?", "What does {n} mean?", "Explain the term {n}.", "Define {n}.",
    "In Python, what is {n}?", "what is {n}", "Tell me about {n}.", "Please explain {n}.",
)  # fmt: skip
SYSTEM = (
    "You are a helpful assistant.", "You answer questions about Python.",
    "You are a helpful assistant. Answer briefly.",
    "You are an expert on the Python standard library.", "Answer in one paragraph.",
)  # fmt: skip
SMALL_TALK = (
    ("Hello!", "Hello! Ask me about the Python standard library."),
    ("Hi", "Hello! What would you like to know about Python?"),
    ("Hey there", "Hello! Which part of the Python library are you curious about?"),
    ("Good morning", "Good morning! Ask me about a Python module or function."),
    ("How are you?", "I am a small program, and I am running. What would you like to know?"),
    ("Who are you?", "I am headway-tiny, a very small language model trained on the Python "
     "documentation. I can be wrong about many things."),
    ("What can you do?", "I can write text that looks like the Python documentation. Do not "
     "rely on what it says."),
    ("Thank you!", "You are welcome."),
    ("Thanks", "You are welcome."),
    ("Goodbye", "Goodbye!"),
)  # fmt: skip
TERM = "="  # before a name: it is a glossary entry, with questions of its own (ASK_TERM)


def first_paragraphs(text: str, limit: int) -> str:
    """The first paragraphs of ``text``: whole ones, prose only, at most ``limit`` characters."""
    taken: list[str] = []
    size = 0
    margin = indent_of(text.strip("\n"))
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        flat = " ".join(line.strip() for line in paragraph.split("\n")).strip()
        if not flat or flat.startswith((">>>", "#", "|", "+-", "==")) or size + len(flat) > limit:
            break
        if taken and (indent_of(paragraph) > margin or len(flat) < 20):
            break
        if taken and re.match(r"^(New|Changed) in", flat):
            break
        taken.append(flat)
        size += len(flat)
    answer = "\n\n".join(taken)
    return answer[:-1] + "." if answer.endswith(":") else answer


def described_name(kind: str, argument: str, module: str, owner: str, nested: bool) -> str:
    """The full name that a directive describes: ``os.path.join`` for ``join(path, *paths)``."""
    if kind.startswith("c:"):
        declared = argument.split("(")[0].strip()
        return re.sub(r"^.*?(\w+)\s*(\(.*)?$", r"\1", declared)
    bare = re.sub(r"[(\[ ].*$", "", argument.rstrip("\\"))
    if kind in {"cmdoption", "opcode", "envvar"} or not module:
        return bare
    if nested and owner and "." not in bare:
        return f"{owner}.{bare}"
    return bare if bare.startswith(module) else f"{module}.{bare}"


def questions(source: str) -> Iterator[tuple[str, str]]:
    """Yields (name, answer) for every described name, module and glossary entry of a page."""
    lines = source.expandtabs(8).split("\n")
    module, owner, glossary = "", "", False

    def described_by(body: list[str]) -> str:
        return first_paragraphs(rst_to_text("\n".join(dedented(body, 0))), 700)

    for at, line in enumerate(lines):
        match = DIRECTIVE.match(line)
        if not match:
            if glossary and re.match(r"^   \S", line):
                answer = described_by(lines[at + 1 : body_end(lines, at + 1, 3)])
                if answer:
                    yield TERM + line.strip(), answer
            continue
        kind, argument, indent = match[2], match[3].strip(), len(match[1])
        glossary = kind == "glossary" or (glossary and indent > 0)
        body = lines[at + 1 : body_end(lines, at + 1, indent)]
        if kind in {"module", "currentmodule"}:
            module = argument
            synopsis = [b for b in body if ":synopsis:" in b]
            if synopsis and kind == "module":
                text = plain(synopsis[0].split(":synopsis:")[1].strip()).rstrip(".")
                yield f"the {module} module", f"The {module} module: {text}."
        elif kind in DESCRIBED:
            while body and body[0].strip():
                body.pop(0)  # further signatures
            name = described_name(kind, argument, module, owner, indent > 0)
            if kind in {"class", "exception"}:
                owner = name
            answer = described_by(body)
            if len(answer) > 20 and name:
                yield name, answer


def docstrings(source: str, module: str) -> Iterator[tuple[str, str, str]]:
    """Yields (qualified name, signature, docstring) for everything in a file with a docstring."""
    tree = ast.parse(source)
    doc = ast.get_docstring(tree)
    if doc:
        yield module, f"module {module}", doc

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, str, str]]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            name = f"{prefix}.{child.name}"
            text = ast.get_docstring(child)
            if text:
                if isinstance(child, ast.ClassDef):
                    bases = ", ".join(ast.unparse(base) for base in child.bases)
                    sign = f"class {name}" + (f"({bases})" if bases else "")
                else:
                    sign = f"def {name}({ast.unparse(child.args)})"
                yield name, sign, text
            if isinstance(child, ast.ClassDef):
                yield from inside(child, name)

    yield from inside(tree, module)


def conversations(pairs: list[tuple[str, str]], rng: random.Random) -> Iterator[Turns]:
    """Asks about each pair in two wordings, in conversations of one to three questions."""
    remaining = [pair for pair in pairs for _ in range(2)]
    rng.shuffle(remaining)
    while remaining:
        turns: Turns = []
        if rng.random() < 0.3:
            turns.append(("system", rng.choice(SYSTEM)))
        if rng.random() < 0.1:
            question, answer = rng.choice(SMALL_TALK)
            turns += [("user", question), ("assistant", answer)]
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if not remaining:
                break
            name, answer = remaining.pop()
            wording = rng.choice(ASK_TERM if name.startswith(TERM) else ASK)
            name = name.lstrip(TERM)
            shown = name + "()" if rng.random() < 0.15 and re.match(r"^[\w.]+$", name) else name
            turns += [("user", wording.format(n=shown)), ("assistant", answer)]
        yield turns


def small_talk(rng: random.Random) -> Iterator[Turns]:
    """Greetings alone, so that the model answers a greeting briefly."""
    for _ in range(40):
        for question, answer in SMALL_TALK:
            turns = [("system", rng.choice(SYSTEM))] if rng.random() < 0.3 else []
            yield [*turns, ("user", question), ("assistant", answer)]
