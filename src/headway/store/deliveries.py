"""Deliveries: webhooks to send, until each is delivered or given up."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, select, update

from headway.store.database import Database
from headway.store.ids import new_id
from headway.store.jobs import Job
from headway.store.tables import DELIVERIES

HOST_ENDS = "/?#"  # what may follow the host in a URL
Announce = Callable[[Connection, Job, int], None]  # takes a job that has ended, and the time


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row of `deliveries`. due_at: None once it is delivered or given up."""

    id: str
    job: str
    event: str
    url: str
    body: str
    attempts: int = 0
    due_at: int | None = None
    delivered_at: int | None = None
    problem: str = ""


class Deliveries:
    """The deliveries of all jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def due(self, now: int, most: int, without: Iterable[str] = ()) -> list[Delivery]:
        """At most `most` deliveries that are due, the earliest first; ties by id. without: hosts
        that are left out, as `host_of` has them."""
        wanted = select(DELIVERIES).where(DELIVERIES.c.due_at <= now)
        for host in without:
            begins = func.substr(DELIVERIES.c.url, 1, len(host) + 1)
            wanted = wanted.where(begins.not_in([host + end for end in ("", *HOST_ENDS)]))
        wanted = wanted.order_by(DELIVERIES.c.due_at, DELIVERIES.c.id).limit(most)
        with self._database.begin() as connection:
            return [Delivery(**row._mapping) for row in connection.execute(wanted)]

    def begin(self, delivery: Delivery, again_at: int) -> bool:
        """Count an attempt, and make the delivery due again at `again_at`, in case the attempt's
        end is never stored. False: another worker has begun it."""
        same = (DELIVERIES.c.id == delivery.id) & (DELIVERIES.c.due_at == delivery.due_at)
        values = {"attempts": DELIVERIES.c.attempts + 1, "due_at": again_at}
        with self._database.begin() as connection:
            return connection.execute(update(DELIVERIES).where(same).values(values)).rowcount == 1

    def end(self, ends: Delivery) -> None:
        """Store the end of an attempt. due_at: time of the next attempt; None: there is none.

        A failure that comes late, because its server was stopped meanwhile, changes nothing:
        another server has begun a later attempt, or has delivered it.
        """
        mine = DELIVERIES.c.id == ends.id
        if ends.delivered_at is None:
            mine &= DELIVERIES.c.delivered_at.is_(None) & (DELIVERIES.c.attempts == ends.attempts)
        values = {name: getattr(ends, name) for name in ("due_at", "delivered_at", "problem")}
        with self._database.begin() as connection:
            connection.execute(update(DELIVERIES).where(mine).values(values))

    def of_job(self, job: str) -> list[Delivery]:
        """The deliveries of one job, the oldest first."""
        wanted = select(DELIVERIES).where(DELIVERIES.c.job == job).order_by(DELIVERIES.c.id)
        with self._database.begin() as connection:
            return [Delivery(**row._mapping) for row in connection.execute(wanted)]


def add_deliveries(
    connection: Connection, job: str, event: str, bodies: Iterable[tuple[str, str, str]], now: int
) -> None:
    """Add deliveries within a transaction, due now. bodies: (id, URL, body) of each."""
    for id, url, body in bodies:
        delivery = Delivery(id, job, event, url, body, due_at=now)
        values = {name: getattr(delivery, name) for name in Delivery.__slots__}
        connection.execute(insert(DELIVERIES).values(values))


def host_of(url: str) -> str:
    """The URL up to the end of its host, as it is spelled."""
    start = url.find("://") + 3
    ends = [at for end in HOST_ENDS if (at := url.find(end, start)) >= 0]
    return url[: min(ends, default=len(url))]


def delivery_id(now: int) -> str:
    """The id of a new delivery, which its body also carries."""
    return new_id("evt_", now)
