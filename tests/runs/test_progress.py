"""The progress shown while a strategy runs."""

from io import StringIO

from rich.console import Console

from headway.runs.process_pool import WorkerPool
from headway.runs.progress import REDRAW_EVERY, show_progress
from headway.runs.run import Progress


def screen(terminal):
    return Console(file=StringIO(), width=80, force_terminal=terminal)


def test_a_terminal_bar_is_not_redrawn_at_every_progress():
    console = screen(True)
    with show_progress(console, "static", 10, 40) as watch:
        for i in range(100):
            watch(Progress(elapsed=i * REDRAW_EVERY // 25, ended=i // 20, waiting=3, running=7))
        watch(Progress(elapsed=4 * REDRAW_EVERY, ended=10, waiting=0, running=0))
    said = console.file.getvalue()
    assert "10/10 ended" in said and "3 wait, 7 run, 1 s" in said
    assert said.count("7 run") < 8


def test_further_turns_after_the_last_request_are_not_drawn_one_by_one():
    console = screen(True)
    with show_progress(console, "talk", 10, 40) as watch:
        for ended in range(9, 60):
            watch(Progress(elapsed=REDRAW_EVERY + ended, ended=ended, waiting=0, running=7))
    said = console.file.getvalue()
    assert "10/10 ended" in said and said.count("7 run") < 5


def test_a_name_with_brackets_is_not_read_as_markup():
    console = screen(True)
    with show_progress(console, "[/x]chat", 10, 40) as watch:
        watch(Progress(elapsed=1, ended=10, waiting=0, running=0))
    WorkerPool(None).run(len, [("[red]voice", "abc")], "[/all]", console, lambda found: None)
    assert all(each in console.file.getvalue() for each in ("[/x]chat", "[/all]", "[red]voice"))


def test_off_a_terminal_progress_is_one_plain_line():
    console = screen(False)
    with show_progress(console, "static", 10, 40_000_000_000) as watch:
        watch(Progress(elapsed=1, ended=0, waiting=3, running=7))
    assert console.file.getvalue() == "static: 10 requests arrive within 40 s ...\n"
