"""What a run measured, as a committed JSON file: a test holds the documents against it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import commit, machine

MEASURED = Path(__file__).parent / "measured"


@dataclass(frozen=True, slots=True)
class Kept:
    """The samples of one run, by name, in the order in which they were measured."""

    benchmark: str
    commit: str  # that ran
    machine: str  # that it ran on
    threads: int
    samples: Mapping[str, Sequence[float]]


def keep(name: str, benchmark: str, threads: int, samples: Mapping[str, Sequence[float]]) -> None:
    """As benchmarks/textbook/measured/{name}.json."""
    kept = Kept(benchmark, commit(), machine(), threads, samples)
    MEASURED.mkdir(exist_ok=True)
    (MEASURED / f"{name}.json").write_text(json.dumps(asdict(kept), indent=1) + "\n")


def has(name: str) -> bool:
    return (MEASURED / f"{name}.json").exists()


def read(name: str) -> Kept:
    return Kept(**json.loads((MEASURED / f"{name}.json").read_text()))
