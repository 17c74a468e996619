"""The main job: recorded traffic under three batching strategies, endpoint by endpoint."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from headway.costing.machine import Neighbours
from headway.errors import SettingError
from headway.report.show import MEASURING, Show
from headway.runs.live_testbed import live_rig
from headway.runs.machine_speed import measure
from headway.runs.progress import shown
from headway.runs.run import Outcome, Run
from headway.runs.testbed import Rig
from headway.traffic.endpoint import COMPLETION, ENDPOINTS, SUPPORT
from headway.traffic.trace import shipped
from headway.traffic.workload import VOICE_SAMPLE, Prompts, build, merged, voice
from headway.yaml_values import number

INTERRUPTED = 130  # the exit status of what Ctrl-C has ended


def run_demo(model: str | None, out: Path, seconds: float, seed: int, console: Console) -> int:
    """The command line's `headway demo`; the exit status.

    model: a checkpoint's folder or hub id; None: the embedded one. seconds: of arrivals, per
    strategy. Raises a HeadwayError for what the user can mend.
    """
    number(seconds, "--seconds")
    path = writable(out) / "report.json"
    try:
        console.print(Text("Loading the model, and the text that prompts are cut from ..."))
        rig = live_rig(model)
        if rig.memory:
            console.print(Text(rig.memory, style="dim"))
        console.print(Text("Measuring this machine: requests alone, and the price of a token ..."))
        show = prepare(rig, path, seconds, seed, console)
    except KeyboardInterrupt:
        return _broken_off(console, "Interrupted before any strategy ran: no report.")
    return compare(show)


def prepare(rig: Rig, path: Path, seconds: float, seed: int, console: Console) -> Show:
    """Measure the machine, and choose what all strategies will be offered."""
    traces = {COMPLETION.name: shipped("azure2023-code"), SUPPORT.name: shipped("azure2023-conv")}
    recorded, window = merged(traces, rig.context), round(seconds * 1e9)
    others = Neighbours()
    typical = voice(1, VOICE_SAMPLE, seed)
    yardstick = measure(rig, ENDPOINTS, recorded, seed, typical)
    spoilt = {MEASURING: others.cores()}
    prompts = Prompts(rig.text, rig.block_size, seed)
    work = build(recorded, prompts, yardstick.price, window)
    return Show(rig, path, seed, yardstick, work, console, spoilt)


def compare(show: Show) -> int:
    """Every strategy on the same requests, one after the other; the tables and the report."""
    console, requests = show.console, show.work.requests
    show.opening()
    outcomes = dict[str, Outcome]()
    for strategy in show.strategies:
        lanes = tuple(show.lanes.values())
        others = Neighbours()
        run = Run(show.rig, strategy.policies, lanes, requests, show.limit)
        try:
            with shown(console, strategy.name, len(requests), show.work.window) as watch:
                outcomes[strategy.name] = run.serve(watch)
            show.others[strategy.name] = others.cores()
        except KeyboardInterrupt:
            outcomes[strategy.name] = run.outcome()
            show.closing(outcomes)
            ended = len(outcomes[strategy.name].requests)
            said = f"Interrupted: {ended} of {len(requests)} requests of {strategy.name} had ended."
            return _broken_off(console, f"{said} The rows so far are in {show.path}.")
    show.closing(outcomes)
    console.print(Text(f"Every request and step of these runs is a row of {show.path}."))
    return 0


def writable(out: Path) -> Path:
    """Found out before minutes are spent."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.part").write_text("")
        (out / "report.part").unlink()
    except OSError as error:
        raise SettingError(f"the report cannot be written to {out}: {error.strerror}") from error
    return out


def _broken_off(console: Console, said: str) -> int:
    console.print(Text(said, style="yellow"))
    return INTERRUPTED
