"""The command `headway tune`: finds the settings of a server for recorded traffic and budgets."""

from dataclasses import replace

from rich.console import Console
from rich.text import Text

from headway.commands.interruption import exit_status, terminable
from headway.commands.tune.live_check import NOT_ASKED, LiveCheck, live_testbed, why_not_live
from headway.commands.tune.options import TuneOptions
from headway.commands.tune.recommendation import UNIT, Recommendation
from headway.commands.tune.tune_report import check_outs, keep, show
from headway.commands.tune.tuning import Tuning, prepare_tuning
from headway.costing.machine import cores
from headway.errors import HeadwayError, WorkerLostError
from headway.runs.process_pool import worker_pool
from headway.runs.provenance import provenance_of, provenance_sentence


def run_tune(options: TuneOptions, console: Console) -> int:
    """Search, write the files, print the answer; return the exit status.

    1: the recommendation does not keep every lane on the held-out windows, or live. Raises
    SettingError for what cannot be tuned, with the remedy, and WorkerLostError.
    """
    inputs = [options.cost, *options.traces, *([options.lanes] if options.lanes else [])]
    check_outs(options.out, options.json, inputs)
    tuning = prepare_tuning(options)
    console.print(
        Text(provenance_sentence(provenance_of(tuning.course.calibration)), style="yellow")
    )
    for line in (tuning.traffic, *tuning.warnings):
        console.print(Text(line))
    why_not = "" if options.live else NOT_ASKED
    why_not = why_not or why_not_live(tuning.course.calibration, options.model)
    workers = options.workers or cores()
    with terminable():
        try:
            with worker_pool(workers) as pool:
                found = tuning.run(pool, console)
        except KeyboardInterrupt as end:
            _break_off(tuning, options, console)
            return exit_status(end)
        except WorkerLostError:
            _break_off(tuning, options, console)
            raise
        found = replace(found, live=LiveCheck(why_not or "it was broken off"))
        keep(found, options.out, options.json)
        try:
            found = found if why_not else _checked_live(found, tuning, options, console)
        except KeyboardInterrupt as end:
            text = f"Broken off: the settings are in {options.out}, and were not checked live."
            console.print(Text(text, style="yellow"))
            return exit_status(end)
    keep(found, options.out, options.json)
    show(found, console)
    console.print(Text(f"The settings are in {options.out}."))
    return 0 if found.is_kept else 1


def _checked_live(
    found: Recommendation, tuning: Tuning, options: TuneOptions, console: Console
) -> Recommendation:
    """The recommendation with its check on the live model, or with the reason why there is none."""
    if not found.is_kept:
        rate = f"{tuning.rate:.3g} {UNIT} does not keep" if tuning.rate else "no rate keeps"
        return replace(found, live=LiveCheck(f"{rate} every lane on the held-out windows"))
    slots = max(each.slots for each in tuning.live_candidates(found).values())
    console.print(Text("Loading the model, to check the settings on it ..."))
    try:
        live = live_testbed(tuning.course.calibration, options.model, slots)
        return replace(found, live=tuning.checked_live(found, live, console))
    except HeadwayError as error:
        return replace(found, live=LiveCheck(str(error)))


def _break_off(tuning: Tuning, options: TuneOptions, console: Console) -> None:
    """Keep the best so far."""
    if (found := tuning.so_far()) is None:
        text = "Broken off before a candidate was measured on every tuning window: no file."
        console.print(Text(text, style="yellow"))
        return
    keep(found, options.out, options.json)
    text = f"Broken off: the best so far is in {options.out}, and it was not checked."
    console.print(Text(text, style="yellow"))
