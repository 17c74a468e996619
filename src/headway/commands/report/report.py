"""`headway report`: rebuild a report's page, or compare two reports."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headway.commands.output_file import check_replaceable, replacing
from headway.errors import SettingError, first_line
from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.difference.difference_page import difference_page
from headway.report.difference.difference_terminal import print_differences
from headway.report.difference.pairing import pair_reports
from headway.report.difference.setting_differences import described, settings
from headway.report.page.page import page
from headway.report.report_check import check
from headway.report.verdict import verdict

PAGE = b'<!doctype html><html lang="en"><head><meta charset="utf-8">'  # how every page begins


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The options of the command line."""

    files: tuple[Path, ...]
    html: Path | None = None
    as_json: bool = False


def run_report(options: ReportOptions, console: Console) -> int:
    """Run the command; return the exit status. One-line SettingError if a file is not a report."""
    if len(options.files) > 2:
        raise SettingError(
            f"{len(options.files)} reports were given, and differences are of two: name one or two"
        )
    if options.html:
        _check_page(options.html, options.files)
    found = [read_report(path) for path in options.files]
    if len(found) == 1:
        return _one(options, found[0], console)
    pairing = pair_reports(found[0], found[1], _titles(options.files))
    if options.html:
        _write(options.html, difference_page(pairing))
    if options.as_json:
        print(json.dumps(pairing.plain, indent=1))
        return 0
    print_differences(pairing, console)
    if options.html:
        console.print(Text(f"The page is {options.html}."))
    return 0


def _one(options: ReportOptions, found: Analysis, console: Console) -> int:
    if options.as_json:
        raise SettingError("--json prints the differences of two reports; the file itself is JSON")
    (file,) = options.files
    target = options.html or file.with_suffix(".html")
    _check_page(target, options.files)
    with _whole(file):
        text, answer = page(found), verdict(found)
    _write(target, text)
    console.print(Text(answer, style="bold"))
    console.print(Text(f"The page is {target}."))
    return 0


def read_report(path: Path) -> Analysis:
    """Read a report of compare, simulate, demo or bench. Raise SettingError, which names the file,
    if it is not a complete one."""
    plain = report_json.read(path)
    if plain.about.get("command") == "replay":
        raise SettingError(
            f"{path} is of headway replay: its rows are for programs, without a page"
        )
    with _whole(path):
        check(plain)
        found = Analysis(plain)
        settings(found)
        for name in found.strategies:
            described(found, name)
    return found


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Turn errors from a missing fact, or one of the wrong type, into a SettingError that names
    the file."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
        raise SettingError(f"{path} is no whole report: {said}") from error


def _check_page(page: Path, files: Sequence[Path]) -> None:
    """Raise SettingError if the page would overwrite a report, or a file that is no such page."""
    for file in files:
        if page.resolve() == file.resolve() or (
            page.exists() and file.exists() and page.samefile(file)
        ):
            raise SettingError(f"the page would replace {file}: name another file with --html")
    check_replaceable(page, "file with --html", [PAGE], "a page of headway")


def _titles(files: Sequence[Path]) -> tuple[str, str]:
    """The files' names; with the folder, or else the whole path, if they are equal."""
    first, second = files
    for names in (
        (first.name, second.name),
        (f"{first.parent.name}/{first.name}", f"{second.parent.name}/{second.name}"),
    ):
        if names[0] != names[1]:
            return names
    return str(first), str(second)


def _write(path: Path, text: str) -> None:
    try:
        with replacing(path) as target:
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}") from error
