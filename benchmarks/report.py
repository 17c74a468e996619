"""What every benchmark prints at its end: a table for people and one JSON line for machines.

With --check each figure that has an aim is printed with its bound, n and spread, and the exit
status is 1 when one falls short. A figure that is not a finite number falls short of any aim, and
the JSON line has null for it. A run without figures has the exit status 1.
"""

import json
import platform
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan, nan
from statistics import median

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, as the median of its samples; `most` or `least` bounds what is wanted."""

    name: str
    samples: Sequence[float]
    most: float | None = None
    unit: str = ""
    least: float | None = None

    @property
    def value(self) -> float:
        """NaN where a sample is: such samples have no order."""
        return nan if any(map(isnan, self.samples)) else median(self.samples)

    @property
    def falls_short(self) -> bool:
        if self.bound and not isfinite(self.value):
            return True
        over = self.most is not None and self.value > self.most
        return over or (self.least is not None and self.value < self.least)

    @property
    def bound(self) -> str:
        if self.most is not None and self.least is not None:
            return f"{self.least:.3g} to {self.most:.3g}"
        if self.most is not None:
            return f"<= {self.most:g}"
        return f">= {self.least:g}" if self.least is not None else ""


def sampled(figures: Sequence[Figure]) -> list[Figure]:
    """Those that were measured: the others are left out, and are not 0."""
    return [each for each in figures if each.samples]


def machine() -> str:
    """The processor in words: no name of a host."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.read().splitlines()
    except OSError:
        return platform.machine()
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(models)} x {models[0]}" if models else platform.machine()


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    dirty = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True)
    return (done.stdout.strip() or "unknown") + ("+changes" if dirty.stdout.strip() else "")


def parser(question: str | None) -> ArgumentParser:
    """A benchmark's parser, with the question as its help and --check as its only option."""
    made = ArgumentParser(
        description=question, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    return made


def finish(benchmark: str, question: str, seed: int, figures: Sequence[Figure]) -> int:
    """Print the table and the JSON line; the exit status."""
    if not figures:
        print(f"{benchmark}: nothing was measured", file=sys.stderr)
        return 1
    check = "--check" in sys.argv[1:]
    table = Table(title=question.strip().splitlines()[0], title_justify="left")
    columns = ["figure", "median", "unit", "aim", "n", "least", "most", ""]
    for column in columns:
        table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
    for figure in figures:
        verdict = "" if not figure.bound else "falls short" if figure.falls_short else "met"
        spread = f"{min(figure.samples):.4g}", f"{max(figure.samples):.4g}"
        row = (f"{figure.value:.4g}", figure.unit, figure.bound, str(len(figure.samples)))
        table.add_row(figure.name, *row, *spread, verdict)
    Console(width=100).print(table)
    line = {
        "benchmark": benchmark,
        "commit": commit(),
        "machine": machine(),
        "seed": seed,
        "figures": {
            figure.name: round(figure.value, 6) if isfinite(figure.value) else None
            for figure in figures
        },
    }
    print(json.dumps(line, allow_nan=False))
    return int(check and any(figure.falls_short for figure in figures))
