"""Jobs in processes of their own, with their progress; Ctrl-C keeps what is done."""

import multiprocessing
import multiprocessing.connection
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

J = TypeVar("J")
R = TypeVar("R")


def run_in_processes(
    work: Callable[[J], R],
    jobs: Iterable[tuple[str, J]],
    workers: int,
    title: str,
    console: Console,
    keep: Callable[[R], object],
) -> None:
    """keep: told each result as it comes, in whichever order that is.

    jobs: each with what is said when it is done. What a job raises is raised here, and the others
    are given up; so they are when this process is interrupted.
    """
    named = list(jobs)
    spawn = multiprocessing.get_context("spawn")  # nothing of this process leaks into a job
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(workers, len(named)) or 1, spawn, initializer=_deaf)
    try:
        futures = {pool.submit(work, job): said for said, job in named}
        with _counted(console, title, len(named)) as told:
            for future in as_completed(futures):
                keep(future.result())
                told(futures[future])
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        ours = set(multiprocessing.active_children()) - before
        for child in ours:
            child.terminate()
        for child in ours:
            # Not joined: the pool's thread does that, and of two threads that ask for one death at
            # a time one is told that the child still lives.
            multiprocessing.connection.wait([child.sentinel])
        raise


def _deaf() -> None:
    """A terminal sends Ctrl-C to the workers too; what becomes of them, their parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _counted(console: Console, title: str, count: int) -> Iterator[Callable[[str], object]]:
    """A bar on a terminal, a line for each elsewhere."""
    if not console.is_terminal:
        done = 0

        def tell(said: str) -> None:
            nonlocal done
            done += 1
            console.print(Text(f"{title}: {said} ({done} of {count})"))

        yield tell
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rest]}", style="dim"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=count, rest="")
        yield lambda said: progress.update(task, advance=1, rest=said)
