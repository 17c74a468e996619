"""Jobs in worker processes, with their progress. Results before an interrupt are kept."""

import multiprocessing
import multiprocessing.connection
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from headway.errors import WorkerLostError

J = TypeVar("J")
R = TypeVar("R")

LOST = "a worker was killed, perhaps for lack of memory: take fewer --workers"


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """Worker processes that run one batch of jobs after another."""

    pool: ProcessPoolExecutor | None  # None: jobs run in this process

    def run(
        self,
        work: Callable[[J], R],
        jobs: Iterable[tuple[str, J]],
        title: str,
        console: Console,
        keep: Callable[[R], object],
    ) -> None:
        """Run the jobs. Each is a pair of the text to show when it is done, and the job.

        keep: called with each result as it comes, in any order. What a job raises is raised here.
        If a worker dies, raises WorkerLostError after keeping every result that came.
        """
        named = list(jobs)
        with _counted(console, title, len(named)) as report_done:
            if self.pool is None:
                for name, job in named:
                    keep(work(job))
                    report_done(name)
                return
            try:
                futures = {self.pool.submit(work, job): name for name, job in named}
            except BrokenProcessPool:
                raise WorkerLostError(LOST) from None
            is_lost = False
            for future in as_completed(futures):
                if isinstance(future.exception(), BrokenProcessPool):
                    is_lost = True  # other futures may still hold results that came before
                    continue
                keep(future.result())
                report_done(futures[future])
            if is_lost:
                raise WorkerLostError(LOST)


@contextmanager
def worker_pool(workers: int) -> Iterator[WorkerPool]:
    """A pool of worker processes. They are ended if this process is interrupted or a job raises.

    workers: up to 1: no worker processes; the jobs run in this process, one after another.
    """
    if workers <= 1:
        yield WorkerPool(None)
        return
    spawn = multiprocessing.get_context("spawn")  # a job inherits nothing from this process
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, spawn, initializer=_deaf)
    try:
        yield WorkerPool(pool)
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        ours = set(multiprocessing.active_children()) - before
        for child in ours:
            child.terminate()
        for child in ours:
            # Not joined here, because the pool's thread joins it. If two threads wait for the same
            # child, one of them is told that it is still alive.
            multiprocessing.connection.wait([child.sentinel])
        raise


def _deaf() -> None:
    """Ignore Ctrl-C. A terminal sends it to workers too, but their parent decides when they end."""
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
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rest]}", style="dim", markup=False),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=count, rest="")
        yield lambda name: progress.update(task, advance=1, rest=name)
