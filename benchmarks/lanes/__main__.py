"""What do voice and chat see when a nightly job holds every slot of one small server?

`headway serve` with the embedded model and three lanes. The nightly job takes all slots with long
answers; then voice and chat come. The same requests are offered three times, to a server each:

    before   no cost file: lanes go by priority, and no slot is given back
    after    with a cost file: by budgets, and the nightly lane keeps one slot
    alone    as after, without the nightly job

The cost file is learned first, in four seconds. Each line of the picture is one request. Its first
token stands at the time it was sent plus the engine's own time to it. A request that is not
answered with 200 counts as told no, with an infinite wait. In `before`, where this happens to many,
`ttft_p95` is of the requests that were served. Voice and chat must be inside their budgets in
`after` and `alone`: 95 % of each, and all of them answered. The `flooded_` figures are of the
requests that were due before the last nightly answer ended in `after`. Each server keeps a journal;
`after_step` is its median step while the nightly job ran and other requests might come, since a
request that arrives waits for the end of a step.

    python -m benchmarks.lanes             a minute and a half
    python -m benchmarks.lanes --write     also draws docs/pictures/lanes.svg
"""

import argparse
import asyncio
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.lanes.cost import learned
from benchmarks.lanes.load import (
    INTERACTIVE,
    LANES,
    NIGHTLY,
    SEED,
    SLOTS,
    Run,
    asks,
    offered,
    step_of,
)
from benchmarks.lanes.picture import finding, headline, picture
from benchmarks.report import Figure, finish
from benchmarks.server_overhead.served import serving

PICTURE = Path("docs/pictures/lanes.svg")
TITLES = {"before": "Before, by priority", "after": "After, by budgets"}
KEPT = 0.95  # of voice and of chat: the share inside budget that is wanted
MORE = 0.05  # of the TTFT alone, or one step: what the flood may add to it


def config(cost: Path | None, journal: Path) -> dict[str, Any]:
    """The server's configuration. cost: by budgets; None: by priority."""
    engine: dict[str, Any] = {"slots": SLOTS, "journal": str(journal)}
    if cost is None:
        return {"engine": engine | {"strategy": "priority"}, "lanes": LANES}
    engine |= {"strategy": "budgets", "cost": str(cost)}
    return {"engine": engine, "lanes": LANES | {"nightly": {"priority": 2, "slots": {"least": 1}}}}


def ran(folder: Path, name: str, cost: Path | None, lanes: Collection[str]) -> Run:
    with serving(config(cost, folder / f"{name}.jsonl"), folder) as served:
        return asyncio.run(offered(served, asks(lanes)))


def figures(before: Run, after: Run, alone: Run, step: float) -> list[Figure]:
    """step: of `after`, seconds."""
    found = [Figure("after_step", [1e3 * step], unit="ms")]
    for name, run in (("before", before), ("after", after), ("alone", alone)):
        least, most = (None, None) if run is before else (KEPT, 0)
        for lane in INTERACTIVE:
            found.append(Figure(f"{name}_{lane}_good", [run.good((lane,))], least=least))
        found.append(Figure(f"{name}_told_no", [run.refused()], most=most))
        waited = run.served_ttft if run is before else run.ttft()
        found.append(Figure(f"{name}_ttft_p95", [1e3 * waited], unit="ms"))
    beside, without = (run.ttft(after.flooded) for run in (after, alone))
    most_more = round(1e3 * max(MORE * without, step), 1)
    more = 1e3 * (beside - without)
    found.append(Figure("flooded_ttft_p95", [1e3 * beside], unit="ms"))
    found.append(Figure("flooded_ttft_p95_alone", [1e3 * without], unit="ms"))
    found.append(Figure("flooded_ttft_p95_more", [more], most=most_more, unit="ms"))
    for name, run in (("before", before), ("after", after)):
        found.append(Figure(f"{name}_nightly_rate", [run.rate], unit="tokens/s"))
        found.append(Figure(f"{name}_nightly_ended", [run.good(NIGHTLY)], least=1.0))
    found.append(Figure("nightly_rate_kept", [after.rate / before.rate]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--write", action="store_true", help=f"draw {PICTURE}")
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    given = parser.parse_args()
    with TemporaryDirectory() as made:
        folder = Path(made)
        cost = learned(folder)
        before = ran(folder, "before", None, tuple(LANES))
        after = ran(folder, "after", cost, tuple(LANES))
        alone = ran(folder, "alone", cost, INTERACTIVE)
        step = step_of(after, next(folder.glob("after-*.jsonl")))
    panels: Mapping[str, Run] = {TITLES["before"]: before, TITLES["after"]: after}
    for title, run in panels.items():
        print(f"{headline(title, run)}; {finding(run)}")
    if given.write:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(picture(panels))
    return finish("lanes", __doc__ or "", SEED, figures(before, after, alone, step))


if __name__ == "__main__":
    sys.exit(main())
