"""GenerateCall: all requests of one generate() while they are being answered."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headway.core.batch import Event
from headway.core.request import Finish
from headway.errors import EngineDownError, HeadwayError
from headway.live.callers import QueueCaller, heard
from headway.live.engine import LiveEngine
from headway.llm.answer import Answer, Delta

Hear = Callable[[Answer, Event], Delta]  # raises the error that has ended the answer


class GenerateCall:
    """Submit requests together and follow each of them until all have ended.

    hear: adds an event to its answer. enough: tell the engine that no more requests will come, so
    that it starts a group that is not full.
    """

    def __init__(
        self, engine: LiveEngine, answers: Sequence[Answer], hear: Hear, enough: bool
    ) -> None:
        self._engine, self._hear, self._enough = engine, hear, enough
        self._answers = answers
        self._open = {answer.request.id: answer for answer in answers}
        self._caller = QueueCaller()

    def run(self, shown: bool) -> None:
        """Submit all requests and return when all have ended. Failed answers have their error set.

        shown: show a progress bar. Raises EngineDownError if none could begin. Any exception
        cancels the requests that are still open.
        """
        try:
            requests = [answer.request for answer in self._answers]
            self._engine.offer(requests, self._caller, self._enough)
            with _progress(len(self._answers), shown) as bar:
                task = bar.add_task("answers", total=len(self._answers), tokens=0)
                tokens = 0
                while self._open:
                    tokens += self._next()
                    completed = len(self._answers) - len(self._open)
                    bar.update(task, completed=completed, tokens=tokens)
        except BaseException:
            self._engine.cancel(self._open)
            raise

    def _next(self) -> int:
        """Wait for the next event; return how many tokens it brought."""
        try:
            event = heard(self._caller.queue.get())
        except EngineDownError as down:
            for answer in self._open.values():
                answer.error, answer.finish = down, Finish.ERROR
            self._open.clear()
            return 0
        if not event.finish and not (kept := self._open[event.id]).text.seeks:
            kept.keep(event)
            return len(event.tokens)
        answer = (self._open.pop if event.finish else self._open.__getitem__)(event.id)
        try:
            return len(self._hear(answer, event).tokens)
        except HeadwayError as error:
            answer.error = error
            return 0


def _progress(total: int, shown: bool) -> Progress:
    """A progress bar on stderr, only on a terminal and for more than one answer."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]} tokens"),
        TimeRemainingColumn(),
        console=console,
        disable=not shown or total < 2 or not console.is_terminal,
        transient=True,
    )
