"""The log: one line per event, written to standard output by a thread of its own.

A line consists of named values. It is written as JSON, or as text for people. Logging only puts the
values into a queue. If the output blocks, the queue fills up to MAX_QUEUED lines. Further lines are
dropped, and the next line that can be written says how many.
"""

import logging
import os
import select
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, cast

import structlog
from rich.console import Console
from structlog.typing import FilteringBoundLogger as Log
from structlog.typing import WrappedLogger

from headway.live.clock import date
from headway.printable import printable
from headway.server import clock
from headway.server.config.durations import SECOND
from headway.server.config.sections.logs import LogSettings

MAX_QUEUED = 10_000  # lines that wait to be written; the next one is dropped
GATHER = 0.05  # seconds for which lines are collected into one write
CLOSE_SECONDS = 2.0  # to write the remaining lines at the end
MAX_VALUE = 4_096  # characters of a value
FIRST = ("timestamp", "level", "event")  # of a line
# Values that structlog's renderer does not write as NAME=VALUE.
OTHERWISE = frozenset({"exc_info", "exception", "logger", "logger_name", "stack"})
QUOTED = frozenset(" \t\r\n=\"'")  # a text with one of these
INDENT = "    "  # before a traceback's lines, so that none looks like a line of the log
# Below these levels, our own log already has what these loggers report.
BRIDGED_LEVELS = {
    "uvicorn": logging.WARNING,
    "uvicorn.access": logging.CRITICAL,
    "python_multipart": logging.ERROR,  # it warns of each malformed form; the caller is told
}

__all__ = ["Log", "Logs", "bridged", "logger", "renderer"]

Values = MutableMapping[str, Any]


def logger(level: str, put: Callable[[Values], object]) -> Log:
    """A logger for this level and above.

    put: receives the values of each line, on the thread that logs it.
    """
    return cast(
        Log,
        structlog.wrap_logger(
            cast(WrappedLogger, _Sink(put)),
            processors=[
                structlog.processors.add_log_level,
                _stamp,
                structlog.processors.format_exc_info,
                _unrendered,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        ).bind(),
    )


class _Sink:
    """The logger behind structlog's processors. It hands each line's values to `put`."""

    def __init__(self, put: Callable[[Values], object]) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = put


def _unrendered(logger: Any, method: str, values: Values) -> tuple[tuple[Values], dict[str, Any]]:
    """A last processor that passes the values on as they are."""
    return (values,), {}


class Logs:
    """The log of one server, and the thread that writes it."""

    def __init__(self, settings: LogSettings, console: Console) -> None:
        self.settings, self._console = settings, console
        self._queue: SimpleQueue[Values | str | None] = SimpleQueue()
        self._counting = threading.Lock()
        self._dropped = 0  # lines, since the last report of dropped lines
        self._unwritten = 0  # lines that could not be written; used by the writer's thread only
        self._closing = threading.Event()
        self._render = renderer(settings.format, console.is_terminal)
        self.log = logger(settings.level, self._put)
        self._writer = threading.Thread(target=self._write_all, name="headway-log", daemon=True)
        self._writer.start()

    def say(self, text: str, style: str = "") -> None:
        """Write text for people, in order among the lines. style: as rich names it."""
        with self._console.capture() as styled:
            self._console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)
        self._put(styled.get())

    def _put(self, line: Values | str) -> None:
        if self._queue.qsize() < MAX_QUEUED:
            return self._queue.put(line)
        with self._counting:
            self._dropped += 1

    def close(self) -> None:
        """Write the remaining lines, if the output takes them within CLOSE_SECONDS."""
        self._closing.set()
        self._queue.put(None)
        self._writer.join(CLOSE_SECONDS)

    # -- the writer's thread

    def _write_all(self) -> None:
        more = True
        while more:
            lines = [self._queue.get()]
            self._closing.wait(GATHER)
            with suppress(Empty):
                while len(lines) < MAX_QUEUED:
                    lines.append(self._queue.get_nowait())
            more = None not in lines
            self._write([line for line in lines if line is not None])

    def _write(self, lines: list[Values | str]) -> None:
        with self._counting:
            dropped, self._dropped = self._dropped + self._unwritten, 0
        if dropped:
            lines.append(_dropped_line(dropped))
        text = "".join([self._line(line) for line in lines])
        try:
            self._out(text.encode("utf-8", "backslashreplace"))
        except (OSError, ValueError):  # the reader has gone, or the disk is full
            self._unwritten = dropped + len(lines) - bool(dropped)
        else:
            self._unwritten = 0

    def _line(self, line: Values | str) -> str:
        return line if isinstance(line, str) else self._render(line)

    def _out(self, data: bytes) -> None:
        """Write to the file descriptor itself.

        Python's exit flushes its own buffers under a lock, and would wait if this thread held it.
        """
        descriptor = self._console.file.fileno()
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:  # another process has made the descriptor non-blocking
                select.select([], [descriptor], [], 1.0)


def _stamp(logger: Any, method: str, values: Values) -> Values:
    """Add the time in UTC, to the millisecond."""
    second, rest = divmod(clock.epoch() + clock.now(), SECOND)
    values["timestamp"] = f"{_seconds(second)}.{rest // 1_000_000:03d}Z"
    return values


@lru_cache(2)
def _seconds(since: int) -> str:
    """A second since 1970 as text, cached because many lines share a second."""
    return date(since).removesuffix("Z")


def _dropped_line(count: int) -> Values:
    values = {"event": "log lines dropped", "count": count, "level": "warning"}
    return _stamp(None, "", values)


def renderer(format: str, colours: bool) -> Callable[[Values], str]:
    """A function that renders values as a line of text, newline included.

    No value can end the line or begin another. format: `json`, or else text for people.
    """
    if format == "json":
        as_json = structlog.processors.JSONRenderer(default=str)
        return lambda values: f"{cast(str, as_json(None, '', _cut(values)))}\n"
    for_people = structlog.dev.ConsoleRenderer(
        colors=colours,
        pad_event_to=0,
        pad_level=False,
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )

    def render(values: Values) -> str:
        if not colours and values.get("event") and OTHERWISE.isdisjoint(values):
            return _plain_line(values)
        escaped = {name: _escape_value(name, value) for name, value in _cut(values).items()}
        return f"{for_people(None, '', escaped)}\n"

    return render


def _plain_line(values: Values) -> str:
    """Render as structlog's ConsoleRenderer does without colours, in a fifth of its time: most
    lines are requests', and are written while functions and models compute."""
    first = values["timestamp"], f"[{values['level']}]", printable(str(values["event"])[:MAX_VALUE])
    others = [f"{name}={_shown(each)}" for name, each in values.items() if name not in FIRST]
    return f"{' '.join([*first, *others]).rstrip(' ')}\n"


def _shown(value: Any) -> str:
    """A value as text, in quotes if it has blanks, quotes or `=`."""
    if not isinstance(value, str):
        return repr(value)
    text = printable(value[:MAX_VALUE])
    return text if QUOTED.isdisjoint(text) else repr(text)


def _cut(values: Values) -> Values:
    """The values in reading order, each cut to a maximum length. A traceback keeps its end."""
    ordered = {name: values[name] for name in FIRST if name in values} | dict(values)
    return {
        name: value[-8 * MAX_VALUE :]
        if name == "exception"
        else value[:MAX_VALUE]
        if isinstance(value, str)
        else value
        for name, value in ordered.items()
    }


def _escape_value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name == "exception":
        return "\n".join([INDENT + printable(line) for line in value.split("\n")])
    return printable(value)


class Bridge(logging.Handler):
    """Forwards what uvicorn, asyncio and other libraries log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Forward a record of the standard library's logging to the log. It never raises, because
        whoever logs would fail."""
        try:
            self._forward(record)
        except Exception:  # the edge to other code: its text cannot be made, for instance
            at = f"{record.pathname}:{record.lineno}"
            self._log.exception("a library's line cannot be logged", source=record.name, at=at)

    def _forward(self, record: logging.LogRecord) -> None:
        values = {"source": record.name}
        if record.exc_info:
            values["exc_info"] = record.exc_info  # type: ignore[assignment]
        # A library may have levels of its own, which our log has not: the next lower one is taken.
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        self._log.log(level, record.getMessage(), **values)


@contextmanager
def bridged(log: Log, level: str) -> Iterator[None]:
    """Route the standard library's logging to the log, inside the context. level: the log's."""
    root, bridge = logging.getLogger(), Bridge(log)
    before, root.level = root.level, logging.DEBUG if level == "debug" else logging.WARNING
    for name, least in BRIDGED_LEVELS.items():
        logging.getLogger(name).setLevel(least)
    root.addHandler(bridge)
    try:
        yield
    finally:
        root.removeHandler(bridge)
        root.setLevel(before)
