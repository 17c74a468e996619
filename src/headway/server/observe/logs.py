"""The log: one line for each thing that happens, to standard output, by a thread of its own.

A line is made of named values, and is written as JSON or for people to read. Whoever logs only
puts the values in a queue. Where nobody takes what is written, the queue fills to MOST; what comes
after that is dropped, and counted in the next line that can be written.
"""

import logging
import os
import select
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, cast

import structlog
from rich.console import Console
from structlog.typing import FilteringBoundLogger as Log
from structlog.typing import WrappedLogger

from headway.server.config.sections.logs import LogSettings

MOST = 10_000  # lines that wait to be written; the next is dropped
GATHER = 0.05  # seconds for which lines are collected, so that many cost one write
LAST_LINES = 2.0  # seconds to write what is left, in the end
LONGEST = 4_096  # characters of a value
INDENT = "    "  # of a traceback's lines, so that none looks like a line of the log
BELOW = {"uvicorn": logging.WARNING, "uvicorn.access": logging.CRITICAL}  # ours say the same

__all__ = ["Log", "Logs", "bridged", "logger", "plain", "renderer"]

Values = MutableMapping[str, Any]
_TIME = structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%f", utc=True)


def logger(level: str, put: Callable[[Values], object]) -> Log:
    """What logs from this level on. put: is told each line's values, on whichever thread."""
    return cast(
        Log,
        structlog.wrap_logger(
            cast(WrappedLogger, _Sink(put)),
            processors=[
                structlog.processors.add_log_level,
                _stamp,
                structlog.processors.format_exc_info,
                _whole,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        ).bind(),
    )


class _Sink:
    """Where structlog's processors end."""

    def __init__(self, put: Callable[[Values], object]) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = put


def _whole(logger: Any, method: str, values: Values) -> tuple[tuple[Values], dict[str, Any]]:
    return (values,), {}


class Logs:
    """Of one server. say: text for people, in its place among the lines."""

    def __init__(self, settings: LogSettings, console: Console) -> None:
        self.settings, self._console = settings, console
        self._queue: SimpleQueue[Values | str | None] = SimpleQueue()
        self._counting = threading.Lock()
        self._dropped = 0  # lines, since the last that was told of
        self._unwritten = 0  # lines that could not be written; the writer's own
        self._closing = threading.Event()
        self._render = renderer(settings.format, console.is_terminal)
        self.log = logger(settings.level, self._put)
        self._writer = threading.Thread(target=self._write_all, name="headway-log", daemon=True)
        self._writer.start()

    def say(self, text: str, style: str = "") -> None:
        """Write a line for people, styled as rich styles it."""
        with self._console.capture() as said:
            self._console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)
        self._put(said.get())

    def _put(self, line: Values | str) -> None:
        if self._queue.qsize() < MOST:
            return self._queue.put(line)
        with self._counting:
            self._dropped += 1

    def close(self) -> None:
        """What is left is written, if somebody takes it."""
        self._closing.set()
        self._queue.put(None)
        self._writer.join(LAST_LINES)

    # -- the writer's thread

    def _write_all(self) -> None:
        more = True
        while more:
            lines = [self._queue.get()]
            self._closing.wait(GATHER)
            with suppress(Empty):
                while len(lines) < MOST:
                    lines.append(self._queue.get_nowait())
            more = None not in lines
            self._write([line for line in lines if line is not None])

    def _write(self, lines: list[Values | str]) -> None:
        with self._counting:
            dropped, self._dropped = self._dropped + self._unwritten, 0
        if dropped:
            lines.append(_lost(dropped))
        text = "".join([self._line(line) for line in lines])
        try:
            self._out(text.encode("utf-8", "backslashreplace"))
        except (OSError, ValueError):  # nobody is there to read it, or the disk is full
            self._unwritten = dropped + len(lines) - bool(dropped)
        else:
            self._unwritten = 0

    def _line(self, line: Values | str) -> str:
        return line if isinstance(line, str) else self._render(line)

    def _out(self, said: bytes) -> None:
        """Past Python's own buffers: at its end it would wait for a lock that this may hold."""
        descriptor = self._console.file.fileno()
        while said:
            try:
                said = said[os.write(descriptor, said) :]
            except BlockingIOError:  # somebody has made it so
                select.select([], [descriptor], [], 1.0)


def _stamp(logger: Any, method: str, values: Values) -> Values:
    """To the millisecond, in UTC."""
    stamped = _TIME(logger, method, values)
    stamped["timestamp"] = f"{stamped['timestamp'][:23]}Z"
    return stamped


def _lost(count: int) -> Values:
    lost = {"event": "log lines dropped", "count": count, "level": "warning"}
    return _stamp(None, "", lost)


def renderer(format: str, colours: bool) -> Callable[[Values], str]:
    """A line of its values, with its end. No value can end it, or begin another."""
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

    def rendered(values: Values) -> str:
        shown = {name: _shown(name, value) for name, value in _cut(values).items()}
        return f"{for_people(None, '', shown)}\n"

    return rendered


def _cut(values: Values) -> Values:
    """In the order in which they are read."""
    first = ("timestamp", "level", "event")
    ordered = {name: values[name] for name in first if name in values} | dict(values)
    return {
        name: value[-8 * LONGEST :]
        if name == "exception"
        else value[:LONGEST]
        if isinstance(value, str)
        else value
        for name, value in ordered.items()
    }


def _shown(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name == "exception":
        return "\n".join([INDENT + plain(line) for line in value.split("\n")])
    return plain(value)


def plain(text: str) -> str:
    """What would move a terminal, or end a line, as an escape."""
    return text if text.isprintable() else "".join([_escaped(each) for each in text])


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


class Bridge(logging.Handler):
    """What uvicorn, asyncio and other libraries log, as lines of ours."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record of the standard library's logging on to this log."""
        said = {"source": record.name}
        if record.exc_info:
            said["exc_info"] = record.exc_info  # type: ignore[assignment]
        self._log.log(record.levelno, record.getMessage(), **said)


@contextmanager
def bridged(log: Log, level: str) -> Iterator[None]:
    """While in it, the standard library's logging goes through the log."""
    root, bridge = logging.getLogger(), Bridge(log)
    was, root.level = root.level, logging.DEBUG if level == "debug" else logging.WARNING
    for name, least in BELOW.items():
        logging.getLogger(name).setLevel(least)
    root.addHandler(bridge)
    try:
        yield
    finally:
        root.removeHandler(bridge)
        root.setLevel(was)
