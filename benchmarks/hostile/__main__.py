"""What can a client without a key cost the others?

`headway serve` with the embedded model and its own defaults, a server for each attack, and beside
it two others, each on new connections: a probe that asks for /health, and a caller whose greedy
answer is known. The attacks, for 15 s each:

- header: 256 MiB of one header; headers: ten that do not end, of 30 MiB
- bodies: forty of 8 MiB less a byte, that say X-Headway-Timeout-Ms: 1000
- silent: 2,000 connections that send nothing; trickle: 2,000 that send a byte at a time
- crowd: 500 silent connections, to a server with `ulimit -n 100`

`health_ms` is the longest that any probe waited, `same` the share of the caller's answers that were
right, `grown_mb` what front and engine have resident more once the attack is over, `peak_mb` the
most that they had more while it went on, and `log_lines` what the server wrote that is not about
the caller's own requests.

    python -m benchmarks.hostile --check            all of them, three minutes
    python -m benchmarks.hostile --attack silent    one
"""

import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from benchmarks.hostile.attacks import ATTACKS, SECONDS
from benchmarks.hostile.others import Others, resident
from benchmarks.report import Figure, finish
from benchmarks.server_overhead.served import serving

FEW = 100  # descriptors of the server that the crowd comes to
SETTLED = 20.0  # seconds after which memory has to be back
HEALTH, GROWN, LINES = 1_000.0, 50.0, 10  # aims: milliseconds, MB, lines


def attacked(name: str, folder: Path) -> list[Figure]:
    log = folder / "log"
    with serving({}, folder, FEW if name == "crowd" else 0, log) as served:
        others = Others(served)
        before = others.memory[0]
        command = [sys.executable, "-m", "benchmarks.hostile.attacks", name]
        with others.at_work():
            done = subprocess.run(
                [*command, served.host, str(served.port)],
                stdout=subprocess.PIPE,
                text=True,
                timeout=8 * SECONDS,
            )
        assert done.stdout == "over\n", done
        others.probe()
        others.call()
        end = monotonic() + SETTLED
        while (after := resident(served)) > before + GROWN and monotonic() < end:
            sleep(0.5)
    said = log.read_text().splitlines() if log.exists() else []
    lines = sum("/v1/completions" not in line for line in said)
    return [
        Figure(f"{name}_health_ms", [max(others.health)], most=HEALTH, unit="ms"),
        Figure(f"{name}_same", [sum(others.same) / len(others.same)], least=1.0),
        Figure(f"{name}_grown_mb", [after - before], most=GROWN, unit="MB"),
        Figure(f"{name}_peak_mb", [max(others.memory) - before], unit="MB"),
        Figure(f"{name}_log_lines", [lines], most=LINES, unit="lines"),
    ]


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attack", choices=list(ATTACKS), action="append")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    figures: list[Figure] = []
    for name in asked.attack or ATTACKS:
        with TemporaryDirectory() as made:
            figures += attacked(name, Path(made))
    return finish("hostile", __doc__ or "", 0, figures)


if __name__ == "__main__":
    sys.exit(main())
