"""Does the ledger keep its sums when servers are killed, and what does it cost the requests?

kill: a server under load is ended by SIGKILL at a random moment, fifty times for SQLite and fifty
times for PostgreSQL, and started again. Its executor is a fake one, so that it starts soon. Rows of
answers that came more than a second before the kill must be there; every row must be whole; every
nanosecond and all money must be in one account.

away: PostgreSQL is stopped for a minute under load, in the middle of three minutes. No request may
fail, the latencies of the minute are compared with those around it, and afterwards all rows must be
there.

explain: a storm of requests of many kinds, most of which wait, some of which are refused, cancelled
or left by their clients. The stages of each must sum to its wall time.

overhead: a server with a ledger and an open page, and one without, take short turns at the same
requests. Measured are tokens per second, and processor time per token of front and engine. The
second is much less noisy, and on a machine that is full the cost in tokens per second comes to it.
Both servers keep accounts and the page's series; `cost` measures these.

cost: processor time of each part by itself, in microseconds, and their sum as a share of a core.

    python -m benchmarks.ledger [--part kill|away|explain|overhead|cost] [--kills 50] [--check]
"""

import sys
from argparse import ArgumentParser

from benchmarks.ledger.away import away
from benchmarks.ledger.cost import cost
from benchmarks.ledger.explaining import explain
from benchmarks.ledger.killing import kill
from benchmarks.ledger.load import SEED
from benchmarks.ledger.overhead import overhead
from benchmarks.report import Figure, finish

PARTS = ("kill", "away", "explain", "overhead", "cost")


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="of away")
    parser.add_argument("--requests", type=int, default=3_200)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--turn", type=float, default=5.0, help="seconds of a turn of overhead")
    parser.add_argument("--check", action="store_true")
    asked, figures = parser.parse_args(), list[Figure]()
    parts = (asked.part,) if asked.part else PARTS
    if "kill" in parts:
        figures += kill(asked.kills)
    if "away" in parts:
        figures += away(asked.seconds)
    if "explain" in parts:
        figures += explain(asked.requests)
    if "overhead" in parts:
        figures += overhead(asked.pairs, asked.turn)
    if "cost" in parts:
        figures += cost()
    return finish("ledger", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
