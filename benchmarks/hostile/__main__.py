"""What can a client without a key cost the others?

Each attack has a server of its own: `headway serve` with the embedded model and its defaults. Two
others use the server meanwhile, always on new connections: a probe that asks for /health, and a
caller whose greedy answer is known. An attack lasts 15 s at most (`scores` until it is answered):

- header: one header of 256 MiB; headers: ten of 30 MiB that do not end
- bodies: forty of 8 MiB less a byte, with X-Headway-Timeout-Ms: 1000
- silent: 2,000 connections that send nothing; trickle: 2,000 that send a byte at a time
- crowd: 500 silent connections, to a server with `ulimit -n 100`
- texts: nine of just under 2 MiB to be tokenized, whose clients leave after 3 s
- scores: one call, read to its end, that asks for 499,968 log-probabilities

`health_ms` is the longest that any probe waited, and `same` the share of the caller's answers that
were right. `grown_mb` is how much resident memory front and engine have gained once the attack is
over, and `peak_mb` the most they had gained until then. `after_ok` says whether a /tokenize is
answered once the attack is over. `log_lines` counts the lines that the server wrote, without those
about the caller's own requests.

Three more have servers and figures of their own:

- refusals: a key is refused 300 times; how much longer is another key then told to wait than the
  line takes to drain?
- killed: the engine process is killed while eight answers stream; when do their callers hear of it,
  and when is the engine back?
- disk: the journal's disk is full. It is left out where no small file system can be mounted.

    python -m benchmarks.hostile --check            all of them, five minutes
    python -m benchmarks.hostile --attack silent    one
"""

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from benchmarks.hostile.attacks import ATTACKS
from benchmarks.hostile.disk import disk
from benchmarks.hostile.killed import killed
from benchmarks.hostile.others import Others, asked, resident
from benchmarks.hostile.refusals import refusals
from benchmarks.hostile.target import SECONDS
from benchmarks.report import Figure, finish
from benchmarks.server_overhead.served import serving

FEW = 100  # descriptors of the server that the crowd comes to
SETTLED = 20.0  # seconds after which memory has to be back
WORDS = '{"prompt": "The json module"}'
HEALTH, GROWN, LINES = 1_000.0, 50.0, 10  # aims: milliseconds, MB, lines


def lines_in(log: Path) -> int:
    """Lines of the log, without those about the caller's own requests."""
    return sum("/v1/completions" not in line for line in log.read_text().splitlines())


def attacked(name: str, folder: Path) -> list[Figure]:
    log = folder / "log"
    with serving({}, folder, FEW if name == "crowd" else 0, log) as served:
        others = Others(served)
        before, said = others.memory[0], lines_in(log)
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
        said = lines_in(log) - said
        after_ok = bool(asked(served, "POST", "/tokenize", WORDS))
        end = monotonic() + SETTLED
        while (after := resident(served)) > before + GROWN and monotonic() < end:
            others.memory.append(after)
            sleep(0.5)
    return [
        Figure(f"{name}_health_ms", [max(others.health)], most=HEALTH, unit="ms"),
        Figure(f"{name}_same", [sum(others.same) / len(others.same)], least=1.0),
        Figure(f"{name}_grown_mb", [after - before], most=GROWN, unit="MB"),
        Figure(f"{name}_peak_mb", [max(others.memory) - before], unit="MB"),
        Figure(f"{name}_after_ok", [float(after_ok)], least=1.0),
        Figure(f"{name}_log_lines", [said], most=LINES, unit="lines"),
    ]


# Attacks that need more of a server than its address.
SCENES: dict[str, Callable[[Path], list[Figure]]] = {
    "refusals": refusals,
    "killed": killed,
    "disk": disk,
}


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--attack", choices=[*ATTACKS, *SCENES], action="append")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    figures: list[Figure] = []
    for name in given.attack or [*ATTACKS, *SCENES]:
        with TemporaryDirectory() as made:
            folder = Path(made)
            figures += SCENES[name](folder) if name in SCENES else attacked(name, folder)
    return finish("hostile", __doc__ or "", 0, figures)


if __name__ == "__main__":
    sys.exit(main())
