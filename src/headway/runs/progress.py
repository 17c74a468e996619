"""The progress of a run: a bar on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from headway.runs.run import Progress as Seen

REDRAW_EVERY = 500_000_000  # nanoseconds between redraws, because each takes time from the engine


class ProgressDisplay(Protocol):
    """Shows the progress of a run. It is called with the latest Progress."""

    def __call__(self, seen: Seen) -> object: ...


@contextmanager
def show_progress(
    console: Console, name: str, offered: int, window: int
) -> Iterator[ProgressDisplay]:
    """A display that the engine's thread redraws between steps, so it needs no thread or core."""
    if not console.is_terminal:
        text = f"{name}: {offered} requests arrive within {window / 1e9:.4g} s ..."
        console.print(Text(text))
        yield lambda seen: None
        return
    columns = (
        TextColumn("{task.description:<11}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:>4}/{task.total:.0f} ended"),
        TextColumn("{task.fields[rest]}", style="dim", markup=False),
    )
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        task = progress.add_task(name, total=offered, rest="")
        drawn, ended = -REDRAW_EVERY, 0

        def watch(seen: Seen) -> None:
            """Redraw if enough time has passed, or at once when all offered requests have ended.
            Further turns of sessions may still follow."""
            nonlocal drawn, ended
            is_last, ended = ended < offered <= seen.ended, seen.ended
            if seen.elapsed - drawn < REDRAW_EVERY and not is_last:
                return
            drawn = seen.elapsed
            rest = f"{seen.waiting} wait, {seen.running} run, {seen.elapsed / 1e9:.0f} s"
            progress.update(task, completed=seen.ended, rest=rest)
            progress.refresh()

        yield watch
