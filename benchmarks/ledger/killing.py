"""kill: a server under load is killed at a random moment, again and again."""

import os
import random
import signal
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from sqlalchemy import select

from benchmarks.ledger.away import below
from benchmarks.ledger.fake_engine import keep_tokenizer
from benchmarks.ledger.load import (
    SEED,
    Load,
    calls_in,
    config_of,
    under_load,
    unrecorded_in,
    wrong_in,
)
from benchmarks.report import Figure
from benchmarks.server_overhead.served import serving
from headway.store.ledger.ledger_tables import MINUTES
from headway.store.ledger.reading import LedgerReader

postgresql = import_module("tests.postgresql").postgresql
FAKE = (sys.executable, "-m", "benchmarks.ledger.fake_server")
UPTIME = 0.1, 2.5  # seconds that a server serves before it is killed, from its first answer on
PATIENCE = 60.0  # seconds for the first answer


def killed(folder: Path, url: str, kills: int, name: str) -> list[Figure]:
    draw, oldest, wrong = random.Random(SEED), list[float](), 0
    answered = lost = 0
    for number in range(kills):
        running = serving(config_of(url), folder, log=folder / "log", command=FAKE)
        with running as served, under_load(served) as callers:
            _wait_for_answers(callers)
            sleep(draw.uniform(*UPTIME))
            at = monotonic()
            os.kill(served.pid, signal.SIGKILL)
        wrong += len(wrong_in(url))
        kept = calls_in(url)
        gone = [at - end for each in callers for id, end, _ in each.answered if id not in kept]
        answered += sum(len(each.answered) for each in callers)
        lost += len(gone)
        oldest.append(max(gone, default=0.0))
        print(f"{name}: killed {number + 1} of {kills}; {lost} of {answered} lost", file=sys.stderr)
    with serving(config_of(url), folder, log=folder / "log", command=FAKE):
        pass  # it repairs what the killed server left, and ends well
    wrong += len(wrong_in(url))
    reader, open = LedgerReader(url), MINUTES.c.account == "open"
    with reader.begin() as connection:
        left = sum(connection.execute(select(MINUTES.c.nanoseconds).where(open)).scalars())
    reader.close()
    return [
        Figure(f"{name}_kills", [kills]),
        Figure(f"{name}_answered", [answered], least=kills),
        Figure(f"{name}_lost", [lost]),
        Figure(f"{name}_oldest_lost", [max(oldest)], most=1.0, unit="s"),
        Figure(f"{name}_wrong_sums", [wrong], most=0),
        Figure(f"{name}_left_open", [left], most=0, unit="ns"),
        Figure(f"{name}_unrecorded", [unrecorded_in(url)], unit="s"),
    ]


def _wait_for_answers(callers: list[Load]) -> None:
    until = monotonic() + PATIENCE
    while not any(each.answered for each in callers) and monotonic() < until:
        sleep(0.01)


def kill(kills: int) -> list[Figure]:
    with TemporaryDirectory() as made, postgresql(below(made, "pg")) as url:
        folder = Path(made)
        keep_tokenizer(folder / "tokenizer.pickle")
        figures = killed(folder, str(folder / "ledger.db"), kills, "sqlite")
        return figures + killed(folder, url, kills, "postgres")
