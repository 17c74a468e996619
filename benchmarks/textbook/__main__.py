"""Are the figures that people quote about batching right? One part of the answer at a time.

python -m benchmarks.textbook --part padding      one part: its tables, and a JSON line
python -m benchmarks.textbook --write             all that need no clock, into the document
python -m benchmarks.textbook --part curve --write        a measured part, into the document
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.diagrams import pictures
from benchmarks.report import Figure, finish
from benchmarks.textbook import lengths, load, memory, roofline, stall, windows
from benchmarks.textbook.document import DOCUMENT, refreshed
from benchmarks.textbook.engine import curve, stall_measured
from benchmarks.textbook.part import Part
from benchmarks.textbook.pathologies import pathologies

SEED = 0
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
}
CLOCKED: dict[str, Callable[[bool], Part]] = {  # on this machine, with the embedded model
    "curve": curve,
    "stall_measured": stall_measured,
}


def figures_of(name: str, part: Part) -> list[Figure]:
    samples = {key: part.samples.get(key, [value]) for key, value in part.figures.items()}
    return [Figure(f"{name}.{key}", values) for key, values in samples.items()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.textbook", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--part", choices=[*CERTAIN, *CLOCKED], help="default: all but measured")
    parser.add_argument("--quick", action="store_true", help="a measured part: to see it run")
    parser.add_argument(
        "--write", nargs="?", type=Path, const=DOCUMENT, help=f"bring {DOCUMENT} up to date"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    asked = parser.parse_args()
    names = [asked.part] if asked.part else list(CERTAIN)
    parts, figures = dict[str, Part](), list[Figure]()
    for name in names:
        part = parts[name] = CERTAIN[name]() if name in CERTAIN else CLOCKED[name](asked.quick)
        for table in part.tables:
            table.show(f"{name}, {part.basis}")
        figures += figures_of(name, part)
    if asked.write:
        asked.write.write_text(refreshed(asked.write.read_text(), parts))
    return finish("textbook", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
