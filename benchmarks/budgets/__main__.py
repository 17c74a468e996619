"""What is each part of scheduling by budgets worth, on recorded traffic?

Simulated: the real scheduler in virtual time, with the data-sheet cost model of an 8B model on one
H100; or, with --machine embedded, with the measured cost model of the embedded model on this
machine (machine.py says how a mix is made to fit it). Three mixes (mixes.py), six windows of the
traces each, at several loads: a load divides the times of arrival. All variants (variants.py) are
offered the same requests. First come has the chunk that is best for it at that load; first come
with a queue timeout has the best timeout and chunk. Shares are of the requests whose lane has a
budget, all windows together. Lower bounds are 95 %, by a paired bootstrap over windows, and are
judged where there are five windows or more. Each step takes as long as predicted and each answer is
as long as its max_tokens, so no figure contains a wrong prediction, except for `slower`: there the
machine takes 1.3 times as long as the cost model says, until the drift is learned.

Then the flood (flood.py): offline answers hold all slots when interactive requests come.

With --live none of that is run: the embedded model itself serves one short bursty window and the
flood (live.py).

    python -m benchmarks.budgets                     an hour and a half on two cores
    python -m benchmarks.budgets --machine embedded  a quarter of an hour
    python -m benchmarks.budgets --live              ten minutes, on a machine that is idle
    python -m benchmarks.budgets --write             also brings docs/strategies.md up to date

--quick, with each of them: at most two windows, at loads 1 and 1.5; five minutes or less. --whole:
the windows cover all of the traces. Those of the tables are shorter, with pauses between them; two
minutes of a trace that comes in bursts are either busy or quiet.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.budgets.ablation import CAPACITY_OF, Ablation
from benchmarks.budgets.flood import flood
from benchmarks.budgets.kept import DATA_SHEET, Kept
from benchmarks.budgets.live import MIX as LIVE
from benchmarks.budgets.live import live
from benchmarks.budgets.machine import EmbeddedModel, place
from benchmarks.budgets.mixes import MIXES, SEED, SHARED, Mix
from benchmarks.budgets.picture import picture
from benchmarks.budgets.tables import LEAST_WINDOWS, capacity, judged, part_of
from benchmarks.report import Figure, finish
from benchmarks.textbook.document import DOCUMENT, refreshed
from headway.errors import HeadwayError, SettingError

EMBEDDED = "embedded"
MACHINES = DATA_SHEET, EMBEDDED
SIMULATED_ALONE = "part", "mixes", "loads", "windows", "whole", "workers", "raw", "told"
LOADS, WINDOWS, WORKERS = "0.5,1,1.5,2,3", 6, 2
PICTURE = Path("docs/pictures/budgets.svg")
CONSOLE = Console(width=130)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.budgets", description=__doc__, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--part", choices=["ablation", "capacity", "flood"], help="default: all")
    parser.add_argument("--traces", type=Path, help=f"folder; default: {SHARED}, or the shipped")
    parser.add_argument("--mixes", default=",".join(MIXES), help="of " + ", ".join(MIXES))
    parser.add_argument("--machine", choices=MACHINES, default=DATA_SHEET, help="simulated")
    parser.add_argument("--cost", type=Path, help="of the embedded model; default: measured now")
    parser.add_argument("--live", action="store_true", help="serve with the embedded model")
    parser.add_argument("--loads", default=LOADS, help=f"default: {LOADS}")
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--whole", action="store_true", help="windows without pauses")
    parser.add_argument("--workers", type=int, default=WORKERS, help="processes")
    parser.add_argument(
        "--quick", action="store_true", help="loads 1 and 1.5; two windows, of the long mix one"
    )
    parser.add_argument(
        "--raw", type=Path, help="scores as JSON lines: a window that it has is not run"
    )
    parser.add_argument("--told", action="store_true", help="run no variant: tell what --raw has")
    parser.add_argument("--write", nargs="?", type=Path, const=DOCUMENT, help=f"into {DOCUMENT}")
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    given = parser.parse_args()
    check_machine(parser, given)
    try:
        given.loads = [float(load) for load in given.loads.split(",")]
        if min(given.loads) <= 0:
            raise ValueError
    except ValueError:
        parser.error(f"--loads are numbers above 0, not {given.loads}")
    given.mixes = given.mixes.split(",")
    if strange := [mix for mix in given.mixes if mix not in MIXES]:
        parser.error(f"--mixes: there is no {strange[0]}; there are {', '.join(MIXES)}")
    if min(given.windows, given.workers) < 1:
        parser.error("--windows and --workers are 1 or more")
    if given.quick:
        given.loads, given.windows = [1.0, 1.5], 2
    return given


def check_machine(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Refuse options that would be ignored."""
    is_embedded = given.live or given.machine == EMBEDDED
    if given.cost and not is_embedded:
        parser.error("--cost is of the embedded model: say --machine embedded or --live")
    if given.write and (is_embedded or given.whole):
        parser.error(f"--write: the document's tables are of the {DATA_SHEET}, not --whole")
    for name in SIMULATED_ALONE if given.live else ():
        if getattr(given, name) != parser.get_default(name):
            parser.error(f"--live serves one window and the flood: it takes no --{name}")


def offered(given: argparse.Namespace, folder: Path | None) -> dict[str, Mix]:
    """The mixes whose traces are available."""
    found = dict[str, Mix]()
    for name in given.mixes:
        try:
            MIXES[name].windows(folder, given.windows)
        except SettingError as error:
            CONSOLE.print(f"The {name} mix is left out: {error}", highlight=False)
        else:
            found[name] = MIXES[name]
    return found


def main() -> int:
    given = parsed()
    try:
        return run(given)
    except HeadwayError as error:
        sys.exit(f"benchmarks.budgets: {error}")


def run(given: argparse.Namespace) -> int:
    folder: Path | None = given.traces or (SHARED if SHARED.is_dir() else None)
    model = EmbeddedModel(given.cost)
    if given.live:
        window = MIXES[LIVE].windows(folder, WINDOWS)[0]
        figures = live(model, window, given.quick, CONSOLE)
        return finish("budgets_live", __doc__ or "", SEED, figures)
    mixes = offered(given, folder)
    if not mixes:
        raise SettingError("no mix has its traces")
    windows = {name: mix.windows(folder, given.windows, given.whole) for name, mix in mixes.items()}
    if given.quick and "long" in windows:
        del windows["long"][1:]
    is_embedded = given.machine == EMBEDDED
    whole = "_whole" if given.whole else ""
    title = ("budgets_embedded" if is_embedded else "budgets") + whole
    places = model.places(windows) if is_embedded else {}
    kept = Kept(given.raw, (model.name if is_embedded else DATA_SHEET) + whole, windows)
    if given.part != "flood" and given.windows < LEAST_WINDOWS:
        CONSOLE.print(f"Lower bounds are not judged: that takes {LEAST_WINDOWS} windows or more.")
    figures = list[Figure]()
    found = Ablation(windows, given.loads, given.workers, CONSOLE, kept, places)
    if given.part in (None, "ablation"):
        if not given.told:
            found.run()
        part = part_of(found)
        for table in part.tables:
            table.show(f"{title}, {table.name}, {part.basis}")
        figures += judged(found)
        if given.write:
            given.write.write_text(refreshed(given.write.read_text(), {"budgets": part}))
            PICTURE.write_text(picture(found))
    if given.part in (None, "capacity") and CAPACITY_OF in windows:
        figures += capacity(*found.capacities())
    if given.part in (None, "flood"):
        window = MIXES["smooth"].windows(folder, 1)[0]
        smooth = place(MIXES["smooth"], window, model.calibration) if is_embedded else None
        figures += flood(window, smooth)
    return finish(title, __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
