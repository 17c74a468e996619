"""A fault that callers feel: under one version, one lane's first tokens come late (LateChannel)."""

import threading
import time
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from multiprocessing.connection import Connection
from typing import Any

from headway.core.batch import Event
from headway.core.commands import Add, Retune
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.server.engine.messages import Step

IDLE = 3_600.0  # seconds to sleep while nothing is held


@dataclass(frozen=True, slots=True)
class Planted:
    """Under this version, requests of this lane wait longer by this factor."""

    lane: str
    version: int
    times: float


@dataclass(slots=True)
class Held:
    """A request that arrived under the version."""

    arrived: int
    until: int = 0  # when its first token is passed on; 0: it has none yet


class LateChannel:
    """The engine process's pipe. A request's events and its row are held until its first token is
    due, and its row says so: neither the front nor a caller can tell it from a slower engine."""

    def __init__(self, channel: Connection, planted: Planted) -> None:
        self._channel, self._planted = channel, planted
        self._version = 0
        self._held: dict[str, Held] = {}
        self._kept: dict[str, tuple[list[Event], list[RequestRow]]] = {}
        self._due: list[tuple[int, str]] = []
        self._latest: Step | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._release, daemon=True).start()

    def fileno(self) -> int:
        return self._channel.fileno()

    def recv(self) -> Any:
        """The front's commands. A request's version is that in force when it comes."""
        commands = self._channel.recv()
        with self._changed:
            for each in commands:
                if isinstance(each, Retune):
                    self._version = each.version
                elif isinstance(each, Add) and self._is_late(each.request.lane):
                    self._held[each.request.id] = Held(each.request.arrived)
        return commands

    def _is_late(self, lane: str) -> bool:
        return (lane, self._version) == (self._planted.lane, self._planted.version)

    def send(self, message: Any) -> None:
        """What the process tells the front."""
        with self._changed:
            if isinstance(message, Step):
                message = self._passed(message)
                self._latest = message
            self._channel.send(message)

    def _passed(self, step: Step) -> Step:
        now = time.monotonic_ns()
        events, rows = list[Event](), list[RequestRow]()
        for event in step.events:
            held = self._held.get(event.id)
            if held and not held.until and (event.tokens or event.finish):
                held.until = held.arrived + int((now - held.arrived) * self._planted.times)
                self._kept[event.id] = [], []
                heappush(self._due, (held.until, event.id))
                self._changed.notify()
            (self._kept[event.id][0] if event.id in self._kept else events).append(event)
        for row in step.requests:
            if held := self._held.get(row.id):
                row = self._told(row, held)
            if row.id in self._kept:
                self._kept[row.id][1].append(row)
            else:
                self._held.pop(row.id, None)
                rows.append(row)
        return step._replace(events=events, requests=rows)

    def _told(self, row: RequestRow, held: Held) -> RequestRow:
        """The row of a request whose first token came late."""
        if NEVER in (row.first_token, row.first_scheduled) or not held.until:
            return row
        queue = int(row.queue * self._planted.times)
        return replace(
            row,
            first_scheduled=row.arrived + queue,
            first_token=held.until,
            last_token=max(row.last_token, held.until),
            finished=max(row.finished, held.until),
        )

    def _release(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic_ns()
                wait = (self._due[0][0] - now) / 1e9 if self._due else IDLE
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                events, rows = self._kept.pop(heappop(self._due)[1])
                for row in rows:
                    self._held.pop(row.id, None)
                assert self._latest, "what is held came with a step"
                later = self._latest._replace(
                    events=events, steps=[], requests=rows, changes=(), stages=()
                )
                self._channel.send(later)
