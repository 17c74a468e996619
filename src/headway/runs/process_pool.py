"""Jobs in worker processes, with their progress. An interrupt keeps the results so far."""

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
    """Run the jobs in worker processes.

    keep: called with each result as it comes, in any order. jobs: each with the text that is shown
    when it is done. What a job raises is raised here. Then, and when this process is interrupted,
    the other jobs are ended.
    """
    named = list(jobs)
    spawn = multiprocessing.get_context("spawn")  # a job inherits nothing from this process
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(workers, len(named)) or 1, spawn, initializer=_deaf)
    try:
        futures = {pool.submit(work, job): name for name, job in named}
        with _counted(console, title, len(named)) as report_done:
            for future in as_completed(futures):
                keep(future.result())
                report_done(futures[future])
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        ours = set(multiprocessing.active_children()) - before
        for child in ours:
            child.terminate()
        for child in ours:
            # Not joined: the pool's thread joins it. Where two threads wait for one child at a
            # time, one of them is told that it still lives.
            multiprocessing.connection.wait([child.sentinel])
        raise


def _deaf() -> None:
    """Ignore Ctrl-C, which a terminal sends to workers too: their parent decides when they end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _counted(console: Console, title: str, count: int) -> Iterator[Callable[[str], object]]:
    """A progress bar on a terminal; elsewhere a line for each job."""
    if not console.is_terminal:
        done = 0

        def tell(name: str) -> None:
            nonlocal done
            done += 1
            console.print(Text(f"{title}: {name} ({done} of {count})"))

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
        yield lambda name: progress.update(task, advance=1, rest=name)
