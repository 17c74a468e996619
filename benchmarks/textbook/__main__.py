"""Are the figures that people quote about batching right? One part of the answer at a time.

python -m benchmarks.textbook --part padding      one part: its tables, and a JSON line
python -m benchmarks.textbook --write             all that need no clock, into the documents
python -m benchmarks.textbook --part curve --write        a measured part, into the documents
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.diagrams.drawings import pictures
from benchmarks.report import Figure, finish
from benchmarks.textbook import kept, lengths, load, memory, quoted, roofline, stall, windows
from benchmarks.textbook.document import DOCUMENTS, refreshed
from benchmarks.textbook.engine import (
    THREADS,
    Samples,
    curve,
    curve_measured,
    stall_measured,
    stall_timed,
)
from benchmarks.textbook.part import Part
from benchmarks.textbook.pathologies import pathologies

SEED = 0
KEPT = Path("benchmarks/textbook/quoted")
CERTAIN: dict[str, Callable[[], Part]] = {  # the same on every machine
    "pictures": pictures,
    "padding": lengths.padding,
    "saturation": lengths.saturation,
    "reserving": memory.reserving,
    "stall": stall.stall,
    "prefix": memory.prefix,
    "gqa": memory.gqa,
    "roofline": roofline.roofline,
    "windows": windows.windows,
    "guardrail": load.guardrail,
    "little": load.little,
    "pathologies": pathologies,
    "utilisation": quoted.utilisation,
    "marginal": quoted.marginal,
    "rates": quoted.rates,
    "unused": quoted.unused,
    "short_lists": quoted.short_lists,
    "fits": quoted.fits,
    "power": quoted.power,
    "phases": quoted.phases,
    "tables": quoted.tables,
    "speculation": quoted.speculation,
    "tripling": quoted.tripling,
    "constructed_hits": quoted.constructed,
    "collecting": quoted.collecting,
    "endpoints": quoted.endpoints,
    "dollars": quoted.dollars,
    "silent": quoted.silent,
}
BESIDE: dict[str, Callable[[], Part]] = {  # the same everywhere, from traces that do not ship
    "recorded_hits": quoted.recorded,
}
# On this machine, with the embedded model: what is measured, and what is made of it
CLOCKED: dict[str, tuple[Callable[[bool], Samples], Callable[[Samples], Part]]] = {
    "curve": (curve_measured, curve),
    "stall_measured": (stall_timed, stall_measured),
}


def figures_of(name: str, part: Part) -> list[Figure]:
    samples = {key: part.samples.get(key, [value]) for key, value in part.figures.items()}
    return [Figure(f"{name}.{key}", values) for key, values in samples.items()]


def made(name: str, quick: bool, is_kept: bool) -> Part:
    if name not in CLOCKED:
        return {**CERTAIN, **BESIDE}[name]()
    measure, part = CLOCKED[name]
    samples = measure(quick)
    if is_kept:
        kept.keep(name, "textbook", THREADS, samples)
    return part(samples)


def keep(name: str, figures: list[Figure]) -> None:
    """The figures of a part whose input does not ship: a test holds the documents against them."""
    plain = {figure.name: round(figure.value, 6) for figure in figures}
    (KEPT / f"{name}.json").write_text(json.dumps(plain, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.textbook", description=__doc__, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--part", choices=[*CERTAIN, *BESIDE, *CLOCKED], help="default: all that ship and no clock"
    )
    parser.add_argument("--quick", action="store_true", help="a measured part: to see it run")
    parser.add_argument(
        "--write", nargs="*", type=Path, help="documents to bring up to date; without names, all"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    asked = parser.parse_args()
    if asked.quick and asked.write is not None:
        parser.error("--write keeps what a whole run measured: not --quick")
    names = [asked.part] if asked.part else list(CERTAIN)
    parts, figures = dict[str, Part](), list[Figure]()
    for name in names:
        part = parts[name] = made(name, asked.quick, asked.write is not None)
        for table in part.tables:
            table.show(f"{name}, {part.basis}")
        figures += figures_of(name, part)
    if asked.write is not None:
        for document in asked.write or DOCUMENTS:
            document.write_text(refreshed(document.read_text(), parts))
        if asked.part in BESIDE:
            keep(asked.part, figures)
    figures.append(Figure("tables", [sum(len(part.tables) for part in parts.values())]))
    return finish("textbook", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
