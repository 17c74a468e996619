"""cost: processor time of each part of the ledger and of the page, one by one, in microseconds.

Recording a step is measured at 32 and at 256 rows; writing, as a flush of 30 rows to SQLite; a view
of the page, with full series of three lanes. `share_of_a_core` is their sum at STEPS, REQUESTS and
a view every three seconds: what the embedded model does here.
"""

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.dashboard import LANES, MS, engine_at, filled, seen, step
from benchmarks.report import Figure
from benchmarks.scheduler_step import answered
from headway.core.accounts.accounts import Accounts
from headway.core.accounts.no_accounts import NoAccounts
from headway.core.commands import Add
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Finish, Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.server.dashboard.page.document import fragment
from headway.server.ledger.device_time import DeviceTime
from headway.server.ledger.rows.request_rows import Row, unmeasured
from headway.store.database import Database
from headway.store.ledger.flush import HOUR, MINUTE, Account, Flush, MinuteKey, MinutePart
from headway.store.ledger.ledger_store import LedgerStore, Writer

TURNS = 9
ROWS = 30  # of a flush
STEPS, REQUESTS, FLUSHES, LOOKS = 150, 60, 2, 1 / 3  # a second
BEGAN = 30_000_000 * MINUTE


def cost() -> list[Figure]:
    """All figures."""
    accounts = {rows: accounts_of(rows) for rows in (32, 256)}
    device, flush, look = device_time(), flushes(), looks()
    named = {f"accounts_step_{rows}": each for rows, each in accounts.items()}
    named |= {
        "device_time_step": device,
        "flush": flush,
        "flush_row": flush_rows(flush),
        "look": look,
    }
    core = [
        (STEPS * (a + d) + FLUSHES * f + LOOKS * k) / 1e6
        for a, d, f, k in zip(accounts[32], device, flush, look, strict=True)
    ]
    return [
        *[Figure(name, each, unit="us") for name, each in named.items()],
        Figure("share_of_a_core", core, most=0.01),
    ]


def spent(work: Callable[[], object], times: int) -> float:
    """Microseconds of this thread's processor time for one call."""
    began = time.thread_time_ns()
    for _ in range(times):
        work()
    return (time.thread_time_ns() - began) / times / 1e3


def accounts_of(rows: int) -> list[float]:
    """Cost of a decode step with accounts, less without, in turns."""
    kept, plain = decoding(rows, kept=True), decoding(rows, kept=False)
    now = count(1_000, 1_000)
    return [
        spent(lambda: turn(kept, now), 40) - spent(lambda: turn(plain, now), 40)
        for _ in range(TURNS)
    ]


def decoding(rows: int, kept: bool) -> Scheduler:
    """`rows` sequences in three lanes, their prompts computed."""
    policies = Policies(join=Continuous(rows), step_tokens=8_192)
    made = Scheduler(Settings(rows * 64, 16, tuple(LANES), policies))
    made.accounts = Accounts(made.roster) if kept else NoAccounts()
    asked = [
        Add(Request(f"r{k}", tuple(range(k, k + 30)), 990, 0, LANES[k % len(LANES)].name))
        for k in range(rows)
    ]
    made.apply(asked, 0)
    for now in range(4):
        batch = made.schedule(now)
        made.commit(batch, answered(batch), now + 1)
    return made


def turn(scheduler: Scheduler, now: "count[int]") -> None:
    """A turn of the engine's loop, without the executor."""
    at = next(now)
    scheduler.apply((), at)
    batch = scheduler.schedule(at)
    scheduler.commit(batch, answered(batch), next(now))
    scheduler.accounts.take()


def device_time() -> list[float]:
    """Cost of accounting for a step: where its nanoseconds went."""
    device, now = DeviceTime(BEGAN), count(0, 12 * MS)
    device.begin(BEGAN)
    load = engine_at(0).load

    def one() -> None:
        device.rows([step(next(now))], [], load)

    return [spent(one, 2_000) for _ in range(TURNS)]


def flushes() -> list[float]:
    """Cost of a flush to SQLite, on the disk where temporary files are."""
    with TemporaryDirectory() as made:
        database = Database(str(Path(made) / "ledger.db"))
        store, numbers = LedgerStore(database), count(1)
        writer = Writer("w", "here", 1, BEGAN, HOUR)
        store.begin(writer, BEGAN)

        def one() -> None:
            store.write(writer, flush_of(next(numbers)), BEGAN)

        found = [spent(one, 20) for _ in range(TURNS)]
        database.close()
    return found


def flush_rows(flush: list[float]) -> list[float]:
    return [each / ROWS for each in flush]


def flush_of(number: int) -> Flush:
    minute = BEGAN // MINUTE
    parts = {
        MinuteKey(minute, each): MinutePart(9, 1, 1, 1, 1) for each in (Account.OPEN, Account.IDLE)
    }
    parts |= {MinuteKey(minute, Account.REQUESTS, lane.name): MinutePart(9, 1) for lane in LANES}
    return Flush(number, BEGAN + number, [request(f"{number}-{k}") for k in range(ROWS)], parts)


def request(id: str) -> Row:
    words = ("request_id", "tenant", "key", "prompt_version", "workflow", "code")
    return {
        **unmeasured(Finish.STOP.value),
        **dict.fromkeys(words, ""),
        **dict.fromkeys(("version", "attempt", "wall_ns"), 0),
        "id": f"cmpl-{id}",
        "call": f"cmpl-{id}",
        "lane": LANES[0].name,
        "model": "tiny",
        "operation": "completion",
        "arrived": BEGAN,
        "minute": BEGAN // MINUTE,
        "stages": '{"queue.slots": 100000, "prefill.own": 2000000, "decode.own": 9000000}',
        "ran_before": "[]",
    }


def looks() -> list[float]:
    """Cost of a fetch of the page: a view of full series, and its HTML."""
    page, end = filled()
    seen(page, end)  # half minutes that are over are summed up once
    return [spent(lambda: fragment(seen(page, end)), 20) for _ in range(TURNS)]
