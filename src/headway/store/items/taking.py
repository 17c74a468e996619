"""Taking: which of the waiting items a worker takes next.

Each free place goes to the tenant with the fewest items running on this worker. Of several such
tenants, it goes to the one whose last turn is longest ago, then to the first by name. Within a
tenant the order is: calls before batches, then fewer attempts first, then older jobs. The items of
a key that may have no more are left out, and those that other servers answer.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heapreplace

from sqlalchemy import ColumnElement, Connection, Row, and_, func, select, text, tuple_

from headway.store.jobs import IN_PROGRESS, Endpoints
from headway.store.tables import ITEMS, JOBS

MOST_ATTEMPTS = 10  # attempts at an item before it is given up, if the process ended during them
PAGE = 256  # items read at once where some rest
LAST = 2**31 - 1  # no number of an item is higher
Place = tuple[str, int]  # an item's job, and its number in it
Who = tuple[str, str]  # a tenant, and the name of its key


class Taking:
    """Chooses the items that one worker takes. It remembers whose turn it was."""

    def __init__(self, worker: str, endpoints: Endpoints) -> None:
        """endpoints: of the items that this worker can answer."""
        self._worker, self._endpoints = worker, endpoints
        self._turns: dict[str, int] = {}  # by tenant: when its last turn was, counted in turns

    def choose(
        self,
        connection: Connection,
        most: int,
        rooms: Mapping[Who, int],
        resting_jobs: Collection[str],
    ) -> list[Place]:
        """Lock up to `most` waiting items, none of the resting jobs.

        rooms: how many of each key; a key that is not named may have any number.
        """
        found = connection.execute(
            select(JOBS.c.tenant).where(JOBS.c.status == IN_PROGRESS).distinct()
        )
        tenants, left = list(found.scalars()), dict[str, dict[str, int]]()
        for (tenant, key), room in rooms.items():
            left.setdefault(tenant, {})[key] = room
        self._turns = {each: self._turns.get(each, 0) for each in tenants}
        about = resting_jobs, self._endpoints
        lines = {each: _Line(connection, each, left.get(each, {}), *about) for each in tenants}
        running, chosen = self._running(connection), list[Place]()
        while lines and len(chosen) < most:
            dealt = self._deal(list(lines), running, most - len(chosen))
            for tenant, count in dealt.items():
                places = lines[tenant].take(count)
                chosen += places
                running[tenant] += len(places)
                if places:
                    self._turns[tenant] = max(self._turns.values()) + 1
                if len(places) < count:  # it has no more
                    del lines[tenant]
        return chosen

    def _running(self, connection: Connection) -> Counter[str]:
        """How many items each tenant has running on this worker."""
        mine = (ITEMS.c.worker == self._worker) & (ITEMS.c.state == text("0"))
        wanted = (
            select(ITEMS.c.tenant, func.count().label("items")).where(mine).group_by(ITEMS.c.tenant)
        )
        return Counter({each.tenant: each.items for each in connection.execute(wanted)})

    def _deal(self, tenants: Sequence[str], running: Counter[str], most: int) -> dict[str, int]:
        """How many of `most` places each tenant gets, in the order of their last turns."""
        dealt = dict[str, int]()
        turns = [(running[each], self._turns[each], each) for each in tenants]
        heapify(turns)
        last = max(self._turns.values())
        for turn in range(last + 1, last + most + 1):
            count, _, tenant = turns[0]
            dealt[tenant] = dealt.pop(tenant, 0) + 1  # moves to the end
            heapreplace(turns, (count + 1, turn, tenant))
        return dealt


class _Line:
    """The waiting items of a tenant in their order, read as far as they are needed.

    A job that rests, or that other servers answer, or whose key may have no more, is stepped over
    as a whole, however many items of it wait. rooms: as in `choose`, by the key's name; what is
    taken is subtracted.
    """

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        rooms: dict[str, int],
        resting_jobs: Collection[str],
        endpoints: Endpoints,
    ) -> None:
        self._connection, self._tenant = connection, tenant
        self._rooms, self._resting_jobs, self._endpoints = rooms, resting_jobs, endpoints
        self._after = (-1, -1, "", -1)  # the last item that was read: rank, attempts, job, number

    def take(self, most: int) -> list[Place]:
        """Lock the next items that may be taken, up to `most`; fewer are there only at the end."""
        found, count = list[Place](), most
        while len(found) < most:
            rows = self._read(count)
            for rank, attempts, job, number, key, endpoint in rows:
                has_room = self._rooms.get(key, 1) > 0 and job not in self._resting_jobs
                is_ours = self._endpoints is None or endpoint in self._endpoints
                if is_open := has_room and is_ours:
                    found.append((job, number))
                    if key in self._rooms:
                        self._rooms[key] -= 1
                self._after = (rank, attempts, job, number if is_open else LAST)
                if len(found) == most:
                    break
            if len(rows) < count:
                break
            count = PAGE
        return found

    def _read(self, most: int) -> Sequence[Row[int, int, str, int, str, str]]:
        order = ITEMS.c.rank, ITEMS.c.attempts, ITEMS.c.job, ITEMS.c.number
        shut = [key for key, room in self._rooms.items() if room <= 0]
        may: ColumnElement[bool] = JOBS.c.key.not_in(shut)
        if self._endpoints is not None:
            may &= JOBS.c.endpoint.in_(list(self._endpoints))
        is_read = (ITEMS.c.rank > 0) | may  # stepping over calls saves nothing
        wanted = (
            select(*order, JOBS.c.key, JOBS.c.endpoint)
            .join(JOBS, JOBS.c.id == ITEMS.c.job)
            .where(waiting(), ITEMS.c.tenant == self._tenant, ITEMS.c.attempts < MOST_ATTEMPTS)
            .where(tuple_(*order) > self._after, JOBS.c.status == IN_PROGRESS, is_read)
            .order_by(*order)
            .limit(most)
            .with_for_update(of=ITEMS, skip_locked=True)  # left out for SQLite: it has one writer
        )
        return self._connection.execute(wanted).all()


def waiting() -> ColumnElement[bool]:
    """Match waiting items that no worker holds, worded like the partial index."""
    return and_(ITEMS.c.state == text("0"), ITEMS.c.worker.is_(None))
