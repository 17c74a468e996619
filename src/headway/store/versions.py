"""Versions: numbered configurations, and what happened to each.

proposed --> on trial --> rolled back --> on trial ...
    |            |             |
    |            +----> promoted ----> rolled back (by hand), or replaced by the next promoted one
    +--> promoted, rejected

A version itself never changes. Each event is a row of `version_events`; the latest event holds the
version's state.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from headway.store.database import Database
from headway.store.tables import VERSION_EVENTS, VERSIONS
from headway.store.turns import Turn, take_turn

PROPOSED, ON_TRIAL, PROMOTED = "proposed", "on trial", "promoted"
ROLLED_BACK, REJECTED, REPLACED = "rolled back", "rejected", "replaced"
FREE = PROPOSED, ROLLED_BACK, REPLACED  # neither in force nor on trial
FREE_OR_TRIED = *FREE, ON_TRIAL
TURN = "turn"  # detail of a replacement: its place among the model's, from 1


@dataclass(frozen=True, slots=True)
class VersionEvent:
    """A row of `version_events`. Times are Unix seconds."""

    state: str  # the version's state from then on
    at: int
    author: str  # who did it; headway for an automatic change
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)  # a trial's plan or verdict; TURN


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A row of `versions`, with its events."""

    number: int  # from 1
    content: Mapping[str, Any]  # a rollout.proposal.Proposal as JSON
    digest: str  # of its configuration
    is_file: bool  # made from the configuration file itself
    created_at: int
    events: tuple[VersionEvent, ...]  # oldest first; the first one is its creation

    @property
    def model(self) -> str:
        """The model that it configures."""
        return str(self.content.get("model", ""))

    @property
    def state(self) -> str:
        return self.events[-1].state

    @property
    def order(self) -> tuple[int, int, int]:
        """Orders replaced versions by when they were replaced. Clocks may step back, so a time
        counts only between events that were stored without a turn."""
        last = self.events[-1]
        return last.details.get(TURN, 0), last.at, self.number


class VersionConflictError(Exception):
    """The version's state does not allow the change. The text names the state."""


class Versions:
    """All versions of a server's configuration, for all its models."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, content: Mapping[str, Any], digest: str, event: VersionEvent, *, is_file: bool = False
    ) -> StoredVersion:
        """Add a version in the state of this event. If that is promoted, the version replaces the
        model's promoted one. A file's version is not added twice by servers that begin together."""
        with self._change() as connection:
            if is_file and (known := _promoted_file(connection, content["model"], digest)):
                return known
            latest = connection.execute(select(func.max(VERSIONS.c.number))).scalar() or 0
            values = {"content": json.dumps(content), "digest": digest, "is_file": is_file}
            row = values | {"number": latest + 1, "created_at": event.at}
            connection.execute(insert(VERSIONS).values(row))
            _happen(connection, latest + 1, event)
            return _get(connection, latest + 1)

    def happen(
        self, number: int, event: VersionEvent, before: Sequence[str] = ()
    ) -> StoredVersion | None:
        """Record an event of a version; None: there is no version of this number. before: states
        that allow the event; empty: all. Raises VersionConflictError."""
        with self._change() as connection:
            found = _find(connection, number)
            if found is None:
                return None
            if before and found.state not in before:
                raise VersionConflictError(f"version {number} is {found.state}")
            _happen(connection, number, event)
            return _get(connection, number)

    def take_back(
        self, number: int, gone: VersionEvent, before: int, put: VersionEvent
    ) -> tuple[StoredVersion, StoredVersion]:
        """Take the promoted version back and restore the replaced one `before`, both or neither.
        Raises VersionConflictError."""
        with self._change() as connection:
            for each, event, state in ((number, gone, PROMOTED), (before, put, REPLACED)):
                if (found := _get(connection, each)).state != state:
                    raise VersionConflictError(f"version {each} is {found.state}")
                _happen(connection, each, event)
            return _get(connection, number), _get(connection, before)

    def get(self, number: int) -> StoredVersion | None:
        with self._database.begin() as connection:
            return _find(connection, number)

    def all(self, model: str) -> list[StoredVersion]:
        """A model's versions, by number."""
        with self._database.begin() as connection:
            return _all(connection, model)

    def promoted(self, model: str) -> StoredVersion | None:
        """The model's promoted version."""
        found = [each for each in self.all(model) if each.state == PROMOTED]
        return found[0] if found else None

    @contextmanager
    def _change(self) -> Iterator[Connection]:
        """A transaction that depends on what it reads, so such transactions run one at a time."""
        with self._database.begin() as connection:
            take_turn(connection, Turn.CHANGING_VERSIONS)
            yield connection


def _happen(connection: Connection, number: int, event: VersionEvent) -> None:
    """Record an event, within a transaction. A newly promoted version replaces the model's promoted
    one, so each model has one at most."""
    if event.state == PROMOTED:
        content = connection.execute(
            select(VERSIONS.c.content).where(VERSIONS.c.number == number)
        ).scalar_one()
        found = _all(connection, json.loads(content).get("model", ""))
        turn = 1 + sum([past.state == REPLACED for each in found for past in each.events])
        for other in found:
            if other.number != number and other.events and other.state == PROMOTED:
                why = f"version {number} was promoted"
                gone = VersionEvent(REPLACED, event.at, event.author, why, {TURN: turn})
                _append(connection, other.number, gone)
    _append(connection, number, event)


def _promoted_file(connection: Connection, model: str, digest: str) -> StoredVersion | None:
    """The latest version of the model's file, if it is promoted and has this digest."""
    files = [each for each in _all(connection, model) if each.is_file][-1:]
    return next((each for each in files if (each.state, each.digest) == (PROMOTED, digest)), None)


def _append(connection: Connection, number: int, event: VersionEvent) -> None:
    mine = VERSION_EVENTS.c.version == number
    place = connection.execute(
        select(func.count()).select_from(VERSION_EVENTS).where(mine)
    ).scalar()
    values = {"version": number, "place": place, "state": event.state, "at": event.at}
    texts = {"author": event.author, "why": event.why, "details": json.dumps(dict(event.details))}
    connection.execute(insert(VERSION_EVENTS).values(values | texts))


def _get(connection: Connection, number: int) -> StoredVersion:
    found = _find(connection, number)
    assert found, "versions are never removed"
    return found


def _find(connection: Connection, number: int) -> StoredVersion | None:
    row = connection.execute(select(VERSIONS).where(VERSIONS.c.number == number)).one_or_none()
    return _version(connection, row) if row else None


def _all(connection: Connection, model: str) -> list[StoredVersion]:
    rows = connection.execute(select(VERSIONS).order_by(VERSIONS.c.number)).all()
    found = [_version(connection, row) for row in rows]
    return [each for each in found if each.model == model]


def _version(connection: Connection, row: Row[tuple[object, ...]]) -> StoredVersion:
    mine = select(VERSION_EVENTS).where(VERSION_EVENTS.c.version == row.number)
    events = tuple(
        [
            VersionEvent(each.state, each.at, each.author, each.why, json.loads(each.details))
            for each in connection.execute(mine.order_by(VERSION_EVENTS.c.place))
        ]
    )
    content = json.loads(row.content)
    return StoredVersion(row.number, content, row.digest, row.is_file, row.created_at, events)
