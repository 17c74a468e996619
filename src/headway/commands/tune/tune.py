"""The command `headway tune`: finds the settings of a server for recorded traffic and budgets."""

from rich.console import Console
from rich.text import Text

from headway.commands.interruption import Terminated, exit_status, terminable
from headway.commands.tune.options import TuneOptions
from headway.commands.tune.tune_report import check_outs, keep, show
from headway.commands.tune.tuning import Tuning, prepare_tuning
from headway.costing.machine import cores
from headway.runs.process_pool import worker_pool
from headway.runs.provenance import provenance_of, provenance_sentence


def run_tune(options: TuneOptions, console: Console) -> int:
    """Search, write the files, print the answer; return the exit status.

    1: the recommendation does not keep every lane on the held-out windows. Raises SettingError for
    what cannot be tuned, with the remedy.
    """
    check_outs(options.out, options.json)
    tuning = prepare_tuning(options)
    console.print(
        Text(provenance_sentence(provenance_of(tuning.course.calibration)), style="yellow")
    )
    for line in (tuning.traffic, *tuning.warnings):
        console.print(Text(line))
    workers = options.workers or cores()
    with terminable():
        try:
            with worker_pool(workers if workers > 1 else 0) as pool:
                found = tuning.run(pool, console)
        except (KeyboardInterrupt, Terminated) as end:
            return _broken_off(tuning, options, console, exit_status(end))
    keep(found, options.out, options.json)
    show(found, console)
    console.print(Text(f"The settings are in {options.out}."))
    return 0 if found.is_kept else 1


def _broken_off(tuning: Tuning, options: TuneOptions, console: Console, status: int) -> int:
    """Keep the best so far; return the exit status."""
    if (found := tuning.so_far()) is None:
        text = "Broken off before a candidate was measured on every tuning window: no file."
        console.print(Text(text, style="yellow"))
        return status
    keep(found, options.out, options.json)
    text = f"Broken off: the best so far is in {options.out}, and it was not checked."
    console.print(Text(text, style="yellow"))
    return status
