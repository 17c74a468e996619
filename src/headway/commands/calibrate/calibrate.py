"""The command `headway calibrate`: write a cost file, by measuring or from a data sheet."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from headway.commands.calibrate.learn import SECONDS, ProgressCallback, calibrate_testbed
from headway.commands.calibrate.profile import PICTURE, run_profile
from headway.commands.calibrate.tables import errors_table, terms_table
from headway.commands.output_file import check_not_input, check_replaceable
from headway.costing import datasheet
from headway.costing.calibration import (
    BEGINNINGS,
    CORES_AT_WORK_FOR_OTHERS,
    Calibration,
    check_writable,
    write_cost_file,
)
from headway.costing.datasheet import analytical_calibration, read_accelerator, read_shape
from headway.costing.machine import NOISY_CORES
from headway.errors import SettingError
from headway.executor.load import TORCH, check_executor
from headway.executor.loaded import Loaded
from headway.executor.precision import read_precision
from headway.models import display_name
from headway.report.formatting import duration
from headway.report.terminal_tables import print_notes
from headway.runs.testbed import Testbed
from headway.strategies.strategy import SLOTS
from headway.yaml_values import number

INTERRUPTED = 130  # exit status after Ctrl-C
UNRELIABLE = 1  # exit status when the fit is too poor to be written
NOTE = (
    "Predicted against measured step times, in live traffic of a trace that was held out of the "
    "fit. An error below 0 means that the prediction was too short. p90 is the 90th percentile of "
    "the absolute error. p90 held is the share of steps within their predicted 90th percentile."
)


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """The command line's options."""

    model: str | None = None  # a checkpoint's folder or hub id; None: the embedded one
    out: Path = Path("cost.json")
    slots: int | None = None  # the most rows that decode at once; None: the default
    dtype: str = ""  # empty: the dtype that the weights are stored in
    executor: str = TORCH
    vllm: Mapping[str, Any] = field(default_factory=dict)  # options of the vLLM executor
    threads: int = 0  # of the executor; 0: one, or all if all are much faster
    seed: int = 0
    seconds: float = SECONDS  # of measuring
    profile: bool = False
    price_per_hour: float = 0.0  # of the machine; 0: unknown, or the data sheet's
    accelerator: str = ""  # a data sheet's name: nothing is measured
    accelerators: Path | None = None  # YAML file with the user's own data sheets
    force: bool = False  # write the file even if the fit is unreliable


def run_calibrate(options: CalibrateOptions, console: Console) -> int:
    """Calibrate and return the exit status. Raises HeadwayError for errors the user can fix."""
    _check(options)
    if options.profile and find_spec("matplotlib") is None:
        raise SettingError("--profile draws a curve: pip install 'headway[calibrate]'")
    if options.accelerator:
        return _from_sheets(options, console)
    from headway.runs.live_testbed import load_with

    kept = "no cost model was written"
    try:
        console.print(Text("Loading the model and the text that prompts are taken from ..."))
        slots = options.slots or SLOTS
        loaded = load_with(options.executor, options.model, slots, options.dtype, options.vllm)
        testbed, calibration = _measure(loaded, options, slots, console)
        calibration = replace(calibration, price_per_hour=options.price_per_hour)
        _print_result(calibration, console)
        if calibration.doubt and not options.force:
            console.print(Text(_refusal(calibration, options.out), style="yellow"))
            return UNRELIABLE
        write_cost_file(calibration, options.out)
        kept = f"the cost model is in {options.out}"
        if options.profile:
            from headway.executor.torch.load import LoadedModel

            assert isinstance(loaded, LoadedModel)  # _check refuses other executors
            run_profile(loaded, testbed, calibration, options.out, console)
    except KeyboardInterrupt:
        console.print(Text(f"Interrupted: {kept}.", style="yellow"))
        return INTERRUPTED
    console.print(Text(f"The cost model is in {options.out}."))
    if calibration.doubt:
        warning = "It is marked as unreliable, and every command that reads it will warn"
        console.print(Text(f"{warning}: {calibration.doubt}.", style="yellow"))
    return 0


def _measure(
    loaded: Loaded, options: CalibrateOptions, slots: int, console: Console
) -> tuple[Testbed, Calibration]:
    """Measure the steps of a loaded model. An executor other than torch is closed afterwards."""
    from headway.runs.live_testbed import kv_bytes_per_token, make_corpus_testbed

    try:
        testbed = make_corpus_testbed(loaded, options.model)
        console.print(Text(testbed.memory, style="dim"))
        with _watched(console) as watch:
            calibration = calibrate_testbed(
                testbed,
                kv_bytes_per_token(loaded),
                slots=slots,
                threads=options.threads,
                seed=options.seed,
                seconds=options.seconds,
                watch=watch,
            )
    finally:
        if options.executor != TORCH:
            loaded.executor.close()  # nothing more is computed
    return testbed, calibration


def _refusal(calibration: Calibration, out: Path) -> str:
    remedy = "measure longer with --seconds"
    if calibration.about[CORES_AT_WORK_FOR_OTHERS] > NOISY_CORES:
        remedy = "calibrate again when the other processes are done"
    return (
        f"{out} was not written: {calibration.doubt}. To fix this, {remedy}; --force writes the "
        "file anyway, marked as unreliable."
    )


def _check(options: CalibrateOptions) -> None:
    """Reject impossible options before minutes are spent. Raises SettingError."""
    number(options.seconds, "--seconds")
    number(options.price_per_hour, "--price-per-hour")
    if options.slots is not None and options.slots < 1:
        raise SettingError(f"--slots must be 1 or more, not {options.slots}")
    check_executor(options.executor, options.vllm, dtype=options.dtype)
    if read_precision(options.dtype).quantize:
        for name in ("profile", "accelerator"):
            if getattr(options, name):
                raise SettingError(f"--{name} knows no weights in 8 bits: leave out --quantize")
    if options.executor != TORCH:
        for name in ("threads", "profile", "accelerator"):
            if getattr(options, name):
                raise SettingError(f"--{name} needs the executor {TORCH}")
    if options.accelerators is not None and not options.accelerator:
        raise SettingError(
            "--accelerators names a file of data sheets: choose one with --accelerator"
        )
    if options.accelerator and options.profile:
        raise SettingError("--profile measures this machine: leave out --accelerator")
    if options.accelerator:
        defaults = CalibrateOptions()
        for name in ("threads", "seconds", "seed", "force"):
            if getattr(options, name) != getattr(defaults, name):
                raise SettingError(f"--accelerator measures nothing: leave out --{name}")
        if options.dtype not in ("", datasheet.DTYPE):
            raise SettingError(
                f"--accelerator knows only {datasheet.DTYPE}: leave out --dtype {options.dtype}"
            )
    if options.accelerator and options.model is None:
        raise SettingError(
            "--accelerator needs a model: a shape's name, or a folder with config.json"
        )
    _check_out(options)


def _check_out(options: CalibrateOptions) -> None:
    """Raise SettingError unless the cost file can be written, and replaces nothing but another."""
    out = options.out
    check_writable(out)
    check_not_input(out, "--out", [options.accelerators] if options.accelerators else [])
    check_replaceable(out, "--out", BEGINNINGS, "a cost file")
    if options.profile and out.suffix == PICTURE:
        raise SettingError(f"--profile draws its curve into {out}: name another --out")


def _from_sheets(options: CalibrateOptions, console: Console) -> int:
    assert options.model is not None
    sheet = read_accelerator(options.accelerator, options.accelerators)
    slots = options.slots or datasheet.SLOTS
    calibration = analytical_calibration(
        read_shape(options.model), sheet, display_name(options.model), slots
    )
    if options.price_per_hour:
        calibration = replace(calibration, price_per_hour=options.price_per_hour)
    write_cost_file(calibration, options.out)
    console.print(terms_table(calibration))
    notes = (
        "Analytical: computed, not measured. Assumed: a step reaches "
        f"{datasheet.BANDWIDTH_REACHED:.0%} of the data sheet's bandwidth and "
        f"{datasheet.PRODUCTS_REACHED:.0%} of its FLOP/s, and the host takes "
        f"{duration(datasheet.HOST_NS)} a step. {calibration.slots} slots.",
    )
    print_notes(console, notes)
    console.print(Text(f"The cost model is in {options.out}."))
    return 0


def _print_result(calibration: Calibration, console: Console) -> None:
    console.print(terms_table(calibration))
    console.print(errors_table(calibration.about))
    notes = [NOTE]
    if (others := calibration.about[CORES_AT_WORK_FOR_OTHERS]) > NOISY_CORES:
        notes.insert(
            0,
            f"Other processes kept {others:.1f} cores busy, so these figures are those of a busy "
            "machine: calibrate again when they are done.",
        )
    print_notes(console, notes)


@contextmanager
def _watched(console: Console) -> Iterator[ProgressCallback]:
    """Show a bar per phase on a terminal, a line per phase elsewhere.

    The thread that runs the steps also draws, between two steps.
    """
    if not console.is_terminal:
        printed = set[str]()

        def print_phase(phase: str, share: float) -> None:
            if phase not in printed:
                printed.add(phase)
                console.print(Text(f"Measuring: {phase} ..."))

        yield print_phase
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
