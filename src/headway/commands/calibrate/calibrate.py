"""`headway calibrate`: what a step costs, for a model on this machine or on a data sheet's."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from headway.commands.calibrate.learn import SECONDS, ProgressCallback, calibrate_rig
from headway.core.cost.step_cost import WHOLE, Rounding, StepCost
from headway.costing import datasheet
from headway.costing.calibration import CORES_AT_WORK_FOR_OTHERS, Calibration, write_cost_file
from headway.costing.datasheet import analytical_calibration, read_accelerator, read_shape
from headway.costing.machine import NOISY_CORES
from headway.errors import SettingError
from headway.models import display_name
from headway.report.formatting import duration
from headway.report.terminal_tables import print_notes
from headway.strategies.strategy import SLOTS
from headway.yaml_values import number

INTERRUPTED = 130  # the exit status of what Ctrl-C has ended
ONCE = {
    "decode": "where anybody decodes",
    "prefill": "where any prompt is computed",
    "head": "where anything is sampled",
}
MISTRUSTED = 1  # the exit status where a fit is too bad to be kept
NOTE = (
    "Predicted against measured step times, in live traffic of a trace that nothing was learned "
    "from. Below 0: predicted too short. The 90th percentile is of the absolute error; p90 held is "
    "the share of steps that stayed below their predicted 90th percentile."
)


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """The command line's wishes."""

    model: str | None = None  # a checkpoint's folder or hub id; None: the embedded one
    out: Path = Path("cost.json")
    slots: int | None = None  # rows that may decode at once; None: SLOTS, or the data sheets'
    dtype: str = ""  # empty: as it is stored
    threads: int = 0  # of the executor; 0: one, unless all are much quicker
    seed: int = 0
    seconds: float = SECONDS  # of measuring
    profile: bool = False
    price_per_hour: float = 0.0  # of the machine; 0: not said, or the data sheet's
    accelerator: str = ""  # a data sheet's name: nothing is measured
    accelerators: Path | None = None  # YAML with one's own data sheets
    force: bool = False  # keep a fit that is too bad to be believed


def run_calibrate(options: CalibrateOptions, console: Console) -> int:
    """The exit status. Raises a HeadwayError for what the user can mend."""
    _check(options)
    if options.profile and find_spec("matplotlib") is None:
        raise SettingError("--profile draws a curve: pip install 'headway[calibrate]'")
    if options.accelerator:
        return _from_sheets(options, console)
    from headway.runs.live_testbed import kv_bytes_per_token, load_model, make_corpus_testbed

    kept = "no cost model was written"
    try:
        console.print(Text("Loading the model, and the text that prompts are cut from ..."))
        loaded = load_model(options.model, options.slots or SLOTS, options.dtype)
        testbed = make_corpus_testbed(loaded, options.model)
        console.print(Text(testbed.memory, style="dim"))
        with _watched(console) as watch:
            found = calibrate_rig(
                testbed,
                kv_bytes_per_token(loaded),
                slots=options.slots or SLOTS,
                threads=options.threads,
                seed=options.seed,
                seconds=options.seconds,
                watch=watch,
            )
        found = replace(found, price_per_hour=options.price_per_hour)
        _tell(found, console)
        if found.doubt and not options.force:
            console.print(Text(_refusal(found, options.out), style="yellow"))
            return MISTRUSTED
        write_cost_file(found, options.out)
        kept = f"the cost model is in {options.out}"
        if options.profile:
            from headway.commands.calibrate.profile import run_profile

            run_profile(loaded, testbed, found, options.out, console)
    except KeyboardInterrupt:
        console.print(Text(f"Interrupted: {kept}.", style="yellow"))
        return INTERRUPTED
    console.print(Text(f"The cost model is in {options.out}."))
    if found.doubt:
        said = "It is marked as not to be believed, and whatever reads it will say so"
        console.print(Text(f"{said}: {found.doubt}.", style="yellow"))
    return 0


def _refusal(found: Calibration, out: Path) -> str:
    remedy = "give it more --seconds"
    if found.about[CORES_AT_WORK_FOR_OTHERS] > NOISY_CORES:
        remedy = "calibrate again when the other processes are done"
    return (
        f"{out} was not written: {found.doubt}. To mend it, {remedy}; --force writes it "
        "all the same, marked as not to be believed."
    )


def _check(options: CalibrateOptions) -> None:
    """Found out before minutes are spent."""
    number(options.seconds, "--seconds")
    number(options.price_per_hour, "--price-per-hour")
    if options.slots is not None and options.slots < 1:
        raise SettingError(f"--slots must be 1 or more, not {options.slots}")
    if options.accelerators is not None and not options.accelerator:
        raise SettingError("--accelerators names a file: say which of them with --accelerator")
    if options.accelerator and options.profile:
        raise SettingError("--profile measures this machine: leave --accelerator away")
    if options.accelerator and options.model is None:
        raise SettingError("--accelerator needs a model: a shape's name, or a config.json's folder")
    if options.out.is_dir() or not options.out.parent.is_dir():
        raise SettingError(f"{options.out} is no file that can be written; say --out FILE.json")


def _from_sheets(options: CalibrateOptions, console: Console) -> int:
    assert options.model is not None
    sheet = read_accelerator(options.accelerator, options.accelerators)
    slots = options.slots or datasheet.SLOTS
    found = analytical_calibration(
        read_shape(options.model), sheet, display_name(options.model), slots
    )
    if options.price_per_hour:
        found = replace(found, price_per_hour=options.price_per_hour)
    write_cost_file(found, options.out)
    console.print(terms_table(found))
    notes = (
        "Analytical: nobody has measured this. Assumed: a step reaches "
        f"{datasheet.BANDWIDTH_REACHED:.0%} of the data sheet's bandwidth and "
        f"{datasheet.PRODUCTS_REACHED:.0%} of its FLOP/s, and its host takes "
        f"{duration(datasheet.HOST_NS)}. {found.slots} slots.",
    )
    print_notes(console, notes)
    console.print(Text(f"The cost model is in {options.out}."))
    return 0


def _tell(found: Calibration, console: Console) -> None:
    console.print(terms_table(found))
    console.print(errors_table(found.about))
    notes = [NOTE]
    if (others := found.about[CORES_AT_WORK_FOR_OTHERS]) > NOISY_CORES:
        notes.insert(
            0,
            f"Other processes kept {others:.1f} cores busy meanwhile, so these are the figures of "
            "a busy machine: calibrate again when they are done.",
        )
    print_notes(console, notes)


def terms_table(found: Calibration) -> Table:
    """The coefficients, those that are not 0."""
    cost = found.cost
    title = f"What a step costs: {found.model}, {found.dtype}, {found.device}"
    table = _table(title, ("", ""))
    table.show_header = False
    for name, said in terms(cost).items():
        table.add_row(name, said)
    table.add_row("compute-bound above", f"{cost.knee} tokens")
    return table


def terms(cost: StepCost) -> dict[str, str]:
    """In words, with units."""
    said = {}
    parts = (("", cost.device), ("host, ", cost.host), ("behind it, ", cost.after))
    for part, rates in parts:
        for name in rates.__slots__:
            if coefficient := getattr(rates, name):
                said[part + ONCE.get(name, f"per {name}")] = duration(coefficient / 1_000)
    for begin, slope in cost.pieces:
        said[f"per token from {begin} on"] = duration(slope / 1_000)
    if cost.rounding != Rounding():
        digits = f"to {cost.rounding.digits} binary digits" if cost.rounding.digits else "not"
        said["tokens are rounded up"] = f"{digits}, to at least {cost.rounding.least}"
    if at_once := cost.gathering.at_once:
        said["rows are padded"] = f"in groups of up to {at_once} blocks of {cost.gathering.block}"
    if cost.wake:
        said["after the engine slept"] = duration(cost.wake)
    if cost.turn:
        said["the first without prompts"] = duration(cost.turn)
    return said


def errors_table(about: Mapping[str, Any]) -> Table:
    """Of the whole model, and of what the designed batches alone would have said."""
    columns = ("regime", "steps", "median", "p90", "sum", "p90 held")
    table = _table("Errors on live traffic", columns)
    for title, key in (("", "errors"), (", designed batches alone", "errors_of_designed_alone")):
        for regime, each in about[key].items():
            median, total = (f"{each[name] / WHOLE:+.1%}" for name in ("median", "total"))
            p90, within = (f"{each[name] / WHOLE:.1%}" for name in ("p90", "within"))
            table.add_row(f"{regime}{title}", f"{each['steps']:,}", median, p90, total, within)
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at else "left", no_wrap=True)
    return table


@contextmanager
def _watched(console: Console) -> Iterator[ProgressCallback]:
    """A bar per phase on a terminal, a line elsewhere. Drawn between two steps, by their thread."""
    if not console.is_terminal:
        told = set[str]()

        def tell(phase: str, share: float) -> None:
            if phase not in told:
                told.add(phase)
                console.print(Text(f"Measuring: {phase} ..."))

        yield tell
        return
    columns = (
        TextColumn("{task.description:<17}"),
        BarColumn(24),
        TextColumn("{task.percentage:.0f} %"),
    )
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        tasks = dict[str, TaskID]()
        drawn = dict[str, int]()

        def draw(phase: str, share: float) -> None:
            if phase not in tasks:
                tasks[phase] = progress.add_task(phase, total=1.0)
            if drawn.get(phase) != (percent := int(100 * share)):
                drawn[phase] = percent
                progress.update(tasks[phase], completed=share, refresh=True)

        yield draw
