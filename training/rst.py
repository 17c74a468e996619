"""Converts the reStructuredText of Sphinx pages to plain text, well enough to learn prose from.

This is no full parser. It reads a page block by block. Headings become ``#`` marks by level,
paragraphs lose their line breaks, and code keeps its form. Markup and cross-references become the
words that the rendered page shows. Index entries are dropped.
"""

from __future__ import annotations

import re

DROPPED = {
    "index", "sectionauthor", "moduleauthor", "codeauthor", "highlight", "highlightlang",
    "tabularcolumns", "toctree", "contents", "testsetup", "testcleanup", "audit-event", "include",
    "audit-event-table", "literalinclude", "only", "image", "figure", "currentmodule", "program",
    "miscnews", "module", "role", "availability", "sidebar", "limited-api-list",
}  # fmt: skip
CODE = {
    "code-block", "doctest", "testcode", "testoutput", "productionlist", "parsed-literal",
    "sourcecode", "highlight", "code",
}  # fmt: skip
DESCRIBED = {
    "function", "method", "attribute", "data", "class", "exception", "decorator", "classmethod",
    "staticmethod", "coroutinemethod", "coroutinefunction", "abstractmethod", "awaitablefunction",
    "c:function", "c:member", "c:type", "c:var", "c:macro", "c:struct", "cmdoption", "opcode",
    "envvar", "describe", "object", "pdbcommand", "2to3fixer",
}  # fmt: skip
SINCE = {
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
    "deprecated-removed": "Deprecated since version",
}
DIRECTIVE = re.compile(r"^(\s*)\.\. ([\w+:-]+)::\s*(.*)$")
ROLE = re.compile(r":([\w+:-]+):`([^`]+)`")
BULLET = re.compile(r"^(\s*)([*+-]|#\.|\d+\.|\(?\w\))\s+")
RULE = re.compile(r"^([=\-~^\"'#*+.`:_])\1{2,}\s*$")
TABLE = re.compile(r"^\s*(\+[-=+]{3,}|\||={2,}\s+={2,}|-{3,}\s+-{3,})")


def indent_of(line: str) -> int:
    """The number of leading spaces."""
    return len(line) - len(line.lstrip(" "))


def plain_role(match: re.Match[str]) -> str:
    """``:func:`~os.path.join``` becomes ``join()``, as the rendered page shows it."""
    role, body = match[1].split(":")[-1], match[2]
    titled = re.match(r"^(.*?)\s*<[^<>]+>$", body, re.S)
    if titled:
        return titled[1]
    short = body.startswith("~")
    body = body.lstrip("~!")
    if short:
        body = body.rsplit(".", 1)[-1]
    if role in {"func", "meth"} and not body.endswith(")"):
        return body + "()"
    if role in {"pep", "rfc"}:
        return f"{role.upper()} {body}"
    if role in {"issue", "gh"}:
        return f"issue {body}"
    return body


def plain(line: str) -> str:
    """Removes inline markup from prose."""
    line = ROLE.sub(plain_role, line)
    line = re.sub(r"``(.+?)``", r"\1", line)
    line = re.sub(r"`([^`<]+?)\s*<[^`>]+>`__?", r"\1", line)
    line = re.sub(r"`([^`]+)`_?_?", r"\1", line)
    line = re.sub(r"(?<![\w*\\])\*\*(\S(?:.*?\S)?)\*\*(?![\w*])", r"\1", line)
    line = re.sub(r"(?<![\w*\\])\*(\w(?:[^*]*?[^\s*])?)\*(?![\w*])", r"\1", line)
    line = re.sub(r"\s?\[#[\w-]*\]_", "", line)
    line = re.sub(r"\|(\w+)\|", r"\1", line)
    return re.sub(r"\\(.)", r"\1", line).replace(" --- ", " - ").replace("---", "-")


def body_end(lines: list[str], start: int, indent: int) -> int:
    """Index after the last line at ``start`` or later that is blank or deeper than ``indent``."""
    end = start
    while end < len(lines) and (not lines[end].strip() or indent_of(lines[end]) > indent):
        end += 1
    return end


def dedented(lines: list[str], indent: int) -> list[str]:
    """Indents a block so that its least indented line is at ``indent``."""
    depth = min((indent_of(line) for line in lines if line.strip()), default=0)
    return [" " * indent + line[depth:] if line.strip() else "" for line in lines]


def join_paragraph(lines: list[str]) -> list[str]:
    """Undoes the wrapping at 80 columns: one line per paragraph or list item."""
    if any(TABLE.match(line) for line in lines):
        shown = [re.sub(r"``(.+?)``", r"\1", ROLE.sub(plain_role, line)) for line in lines]
        # Without the markup the columns are not aligned any more, so the padding is removed too.
        return [re.sub(r"([-=]){4,}", r"\1\1\1", re.sub(r"(?<=\S) {3,}", "  ", s)) for s in shown]
    joined: list[str] = []
    hang = -1  # the indent at which a line continues the line before it
    for line in lines:
        bullet = BULLET.match(line)
        if joined and not bullet and indent_of(line) == hang:
            joined[-1] += " " + line.strip()
        else:
            joined.append(line.rstrip())
            hang = bullet.end() if bullet else indent_of(line)
    return [plain(line) for line in joined]


class PageReader:
    """Turns the lines of one page into plain text, block by block."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.levels: list[str] = []  # heading characters, the highest level first

    def read(self, lines: list[str]) -> None:
        """Appends the text of ``lines``. It calls itself for the bodies of directives."""
        at = 0
        while at < len(lines):
            line = lines[at]
            if not line.strip():
                self.blank()
                at += 1
            elif line.lstrip().startswith(".. ") or line.strip() == "..":
                at = self.explicit(lines, at)
            elif RULE.match(line) and at + 2 < len(lines) and RULE.match(lines[at + 2]):
                self.heading(lines[at + 1], line[0])
                at += 3
            elif at + 1 < len(lines) and indent_of(line) == 0 and RULE.match(lines[at + 1]):
                self.heading(line, lines[at + 1][0])
                at += 2
            else:
                at = self.paragraph(lines, at)

    def blank(self) -> None:
        """Appends an empty line, unless the last line is one."""
        if self.out and self.out[-1]:
            self.out.append("")

    def heading(self, title: str, mark: str) -> None:
        """Appends a heading. mark: the character that it is underlined with."""
        if mark not in self.levels:
            self.levels.append(mark)
        self.blank()
        self.out += ["#" * (self.levels.index(mark) + 1) + " " + plain(title.strip()), ""]

    def paragraph(self, lines: list[str], at: int) -> int:
        """Appends the paragraph at ``at``, and its literal block if it ends in ``::``.

        Returns the index of the next line, as ``explicit`` does.
        """
        end = at
        while end < len(lines) and lines[end].strip():
            if end > at and lines[end].lstrip().startswith(".. "):
                break
            end += 1
        block = lines[at:end]
        indent = indent_of(block[0])
        if RULE.match(block[0].strip()) and len(block) == 1:
            return end
        if re.match(r"^\s*:[\w -]+:\s", block[0]) and not ROLE.match(block[0].strip()):
            self.out += [plain(line) for line in block]
            return end
        literal = block[-1].rstrip().endswith("::")
        if literal:
            indent = indent_of(block[-1])
            block[-1] = block[-1].rstrip()[:-1].rstrip()
            if block[-1].strip() == ":":
                block.pop()
        doctest = block and block[0].lstrip().startswith(">>>")
        self.out += block if doctest else join_paragraph(block) if block else []
        if literal:
            after = body_end(lines, end, indent)
            self.blank()
            self.verbatim(lines[end:after])
            return after
        return end

    def verbatim(self, lines: list[str]) -> None:
        """Appends code as it is."""
        text = "\n".join(line.rstrip() for line in lines).strip("\n")
        self.out += [*text.split("\n"), ""] if text else []

    def explicit(self, lines: list[str], at: int) -> int:
        """Appends the text of a directive or a footnote. Skips comments and targets."""
        indent = indent_of(lines[at])
        end = body_end(lines, at + 1, indent)
        match = DIRECTIVE.match(lines[at])
        if not match:
            note = re.match(r"^\s*\.\. \[[^\]]+\]\s+(.*)$", lines[at])
            if note:
                self.read([" " * indent + note[1], *dedented(lines[at + 1 : end], indent)])
                self.blank()
            return end
        name, argument, body = match[2], match[3].strip(), lines[at + 1 : end]
        if name in DROPPED:
            return end
        while body and re.match(r"^\s*:[\w-]+:", body[0]) and not ROLE.match(body[0].strip()):
            body = body[1:]  # options of the directive
        if name in CODE:
            self.blank()
            self.verbatim(body)
        elif name in DESCRIBED:
            self.described(argument, body, indent)
        elif name in SINCE:
            skip = 2 if name == "deprecated-removed" else 1
            words = argument.split(None, skip) or ["?"]
            rest = words[skip:]
            has_text = rest or any(line.strip() for line in body)
            first = f"{SINCE[name]} {words[0]}" + (": " if has_text else ".") + " ".join(rest)
            self.read([" " * indent + first, *dedented(body, indent)])
            self.blank()
        else:
            label = {"rubric": "", "glossary": ""}.get(name, name.capitalize() + ":")
            text = f"{label} {argument}".strip()
            self.blank()
            if text:
                self.out += [" " * indent + plain(text), ""]
            self.read(dedented(body, indent))
        return end

    def described(self, argument: str, body: list[str], indent: int) -> None:
        """Appends the signatures of a documented name, and its description indented below."""
        signatures = [argument]
        while body and body[0].strip():
            part = body.pop(0).strip()
            if signatures[-1].endswith("\\"):
                signatures[-1] = signatures[-1][:-1].rstrip() + " " + part
            elif not part.startswith(":"):
                signatures.append(part)
        self.blank()
        self.out += [" " * indent + sign for sign in signatures]
        self.read(dedented(body, indent + 3))
        self.blank()


def rst_to_text(source: str) -> str:
    """The plain text of one page."""
    reader = PageReader()
    reader.read(source.expandtabs(8).split("\n"))
    return "\n".join(reader.out).strip() + "\n"
