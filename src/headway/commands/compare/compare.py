"""`headway compare`: every strategy on the same arrivals, prompts and lengths, and its report."""

import re
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

from rich.console import Console
from rich.text import Text

from headway.commands.compare.like import Like
from headway.commands.replay.recording import FIRST_NS, WARM_UP_NS
from headway.costing.machine import Neighbours
from headway.engine import forgotten
from headway.errors import SettingError
from headway.journal.file import JournalFile
from headway.journal.record import Record
from headway.live.clock import date
from headway.report.report_json import writable
from headway.report.reporter import DRAIN, Reporter
from headway.report.workload_summary import refuse_nobody
from headway.runs.experiment import Experiment, custom_experiment, demo_experiment
from headway.runs.live_testbed import load_testbed
from headway.runs.progress import show_progress
from headway.runs.run import Outcome, Run
from headway.runs.testbed import Testbed
from headway.strategies.from_yaml import StrategyMaker, read_strategies
from headway.strategies.registry import DEFAULT_STRATEGIES, DYNAMIC_LANES
from headway.strategies.strategy import Strategy
from headway.traffic.endpoint_traffic import EndpointTraffic, endpoints_from_traces, read_endpoints
from headway.traffic.selection import DEFAULT_LOAD, Demand
from headway.traffic.workload import TOKEN_SCALE
from headway.yaml_values import number

NUMBERS = ("seconds", "rate", "load", "token_scale", "price_per_hour")  # of what is asked
NO_REPORT = "Broken off before any strategy ran: no report."
INTERRUPTED, TERMINATED = 130, 143  # exit statuses: Ctrl-C, and SIGTERM


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line's wishes."""

    model: str | None = None  # a checkpoint's folder or hub id; None: the embedded one
    traces: tuple[Path, ...] = ()  # each an endpoint, where there are no lanes
    lanes: Path | None = None  # YAML; None and no traces: the demo's four endpoints
    strategies: str = ""  # names with commas between, or a YAML file; empty: DEFAULT
    seconds: float = 45.0  # of the traces, where a rate is said; else of arrivals at LOAD
    rate: float = 0.0  # requests per second of all endpoints; 0: by load
    load: float = 0.0  # device-seconds per second at full batches; 0: LOAD
    like: Like | None = None  # a report's traffic, in place of both and of seconds
    repeat: int = 1
    seed: int = 0
    baseline: str = ""  # a strategy's name; empty: dynamic-lanes, or the first
    price_per_hour: float = 1.0
    token_scale: float = TOKEN_SCALE  # that the traces' token counts are divided by
    out: Path = Path("headway-compare")
    journals: Path | None = None  # an empty folder, or none yet: one of each run goes there


class Terminated(BaseException):
    """Somebody sent SIGTERM; as KeyboardInterrupt, no `except Exception` stops it."""


def run_compare(asked: Asked, console: Console) -> int:
    """The exit status. Raises a HeadwayError for what the user can mend."""
    services = services_of(asked)
    makes = read_strategies(asked.strategies or ",".join(DEFAULT_STRATEGIES))
    baseline(asked, makes)
    folder = writable(asked.out)
    if asked.journals is not None and list(writable(asked.journals).iterdir()):
        raise SettingError(f"{asked.journals} is not empty: name a new folder for the journals")

    def contest(testbed: Testbed) -> Contest:
        return Contest(prepare(testbed, asked, services), makes, asked, folder, console)

    return run_contest(asked, console, contest)


def run_contest(asked: Asked, console: Console, contest: Callable[[Testbed], "Contest"]) -> int:
    """Load the model, measure the machine, serve every strategy; return the exit status."""
    with terminable():
        try:
            console.print(Text("Loading the model and the text that prompts are cut from ..."))
            testbed = load_testbed(asked.model)
            if testbed.memory:
                console.print(Text(testbed.memory, style="dim"))
            console.print(Text("Measuring this machine: one request alone, and full batches ..."))
            made = contest(testbed)
        except (KeyboardInterrupt, Terminated) as end:
            console.print(Text(NO_REPORT, style="yellow"))
            return _status(end)
        return made.run()


def services_of(asked: Asked) -> list[EndpointTraffic]:
    """Empty: the demo's endpoints. SettingError, also where a number is none or has no end."""
    for name in NUMBERS:
        number(getattr(asked, name), f"--{name.replace('_', '-')}")
    if asked.lanes is not None and asked.traces:
        raise SettingError("say --lanes or --trace, not both: a lane names its own trace")
    if asked.rate and asked.load:
        raise SettingError("say --rate or --load, not both")
    if asked.lanes is not None:
        return read_endpoints(asked.lanes, asked.token_scale)
    if asked.traces:
        return endpoints_from_traces(asked.traces, asked.token_scale)
    if asked.rate or asked.token_scale != TOKEN_SCALE:
        raise SettingError("--rate and --token-scale need --lanes or --trace; --load does not")
    return []


def baseline(asked: Asked, names: Collection[str]) -> str:
    """The strategy that all others are held against."""
    wanted = asked.baseline or (DYNAMIC_LANES if DYNAMIC_LANES in names else next(iter(names)))
    if wanted not in names:
        said = f"the baseline {wanted} is not among the strategies"
        raise SettingError(f"{said}: {', '.join(names)}")
    return wanted


def prepare(testbed: Testbed, asked: Asked, services: list[EndpointTraffic]) -> Experiment:
    """Measure the machine, and choose what every strategy will be offered."""
    span, like = round(asked.seconds * 1e9), asked.like
    demand = Demand(asked.rate, 0.0 if asked.rate else asked.load or DEFAULT_LOAD)
    if like:
        like.check_names([each.name for each in services])
    if services:
        taken = like.extent if like else None
        made = custom_experiment(testbed, services, demand, span, asked.seed, taken)
    else:
        price = like.price if like else None
        made = demo_experiment(testbed, span, asked.seed, demand.load, price)
    if like:
        like.check({each.name: made.work.count(each.name) for each in made.endpoints})
    wishes = {"rate": demand.rate, "load": demand.load, "span_ns": span}
    wishes |= {"token_scale": asked.token_scale}
    return replace(made, about={**made.about, "asked": wishes})


@dataclass
class Contest:
    """All strategies, one after the other, as often as was asked for."""

    experiment: Experiment
    makes: Mapping[str, StrategyMaker]
    asked: Asked
    folder: Path
    console: Console
    runs: dict[str, tuple[Outcome, ...]] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)  # cores at work for them, by strategy
    command: str = "compare"  # whose report it is

    def __post_init__(self) -> None:
        refuse_nobody(self.experiment)
        self.strategies = tuple(
            make(self.experiment.strategy_inputs) for make in self.makes.values()
        )
        against = baseline(self.asked, self.makes)
        self.reporter = Reporter(
            self.experiment,
            self.strategies,
            against,
            self.asked.price_per_hour,
            self.console,
            command=self.command,
        )

    def run(self) -> int:
        """The exit status. Both reports are left by whatever ends it, but for a SIGKILL: that
        leaves report.json with the runs that had ended."""
        try:
            self._serve_all()
        except (KeyboardInterrupt, Terminated) as end:
            return self._broken_off(end)
        self.reporter.closing(self.runs, self.others, self.folder, complete=True)
        return 0

    def testbed(self, repeat: int) -> Testbed:
        """That a run is served on: one machine, whichever repeat it is."""
        return self.experiment.testbed

    def _serve_all(self) -> None:
        """Strategies alternate inside a repeat: what drifts, drifts for all of them."""
        self.reporter.opening()
        for repeat in range(self.asked.repeat):
            for strategy in self.strategies:
                said = f"{strategy.name} {repeat + 1}" if self.asked.repeat > 1 else strategy.name
                self._serve(strategy, said)
                self.reporter.keep(self.runs, self.others, self.folder, complete=False)

    def _serve(self, strategy: Strategy, said: str) -> None:
        """Its rows are kept, also of a run that is broken off."""
        experiment, others, name = self.experiment, Neighbours(), strategy.name
        requests, limit = experiment.work.requests, round(experiment.work.window * (1 + DRAIN))
        testbed = self.testbed(len(self.runs.get(name, ())))
        run = Run(testbed, strategy.policies, experiment.lanes, requests, limit)
        try:
            with (
                show_progress(self.console, said, len(requests), experiment.work.window) as watch,
                self._journal(said, run) as keep,
            ):
                run.serve(watch, keep)
        finally:
            self.runs[name] = (*self.runs.get(name, ()), run.outcome())
        self.others[name] = max(others.cores(), self.others.get(name, 0.0))

    @contextmanager
    def _journal(self, said: str, run: Run) -> Iterator[Callable[[Record], object]]:
        """Of one run, in the order in which they ran; or none was asked for."""
        if self.asked.journals is None:
            yield forgotten
            return
        testbed, number = run.testbed, sum(map(len, self.runs.values())) + 1
        name = f"{number:02}-{re.sub(r'[^0-9A-Za-z.-]+', '-', said)}.jsonl"
        about = {
            "model": testbed.model,
            "dtype": testbed.dtype,
            "device": testbed.device,
            "begun": date(),
            WARM_UP_NS: self.experiment.work.warm_up,
            FIRST_NS: min((each.arrived for each in run.requests), default=0),
        }
        with JournalFile(self.asked.journals / name, run.scheduler.settings, about) as file:
            yield file.keep

    def _broken_off(self, end: BaseException) -> int:
        if self.runs:
            self.reporter.closing(self.runs, self.others, self.folder, complete=False)
            half = [name for name, runs in self.runs.items() if not runs[-1].complete]
            name = half[0] if half else list(self.runs)[-1]
            ended = f"{len(self.runs[name][-1].requests)} of {len(self.experiment.work.requests)}"
            ended += f" requests of {name}"
            kept = f"The rows so far are in {self.folder / 'report.json'}."
            self.console.print(Text(f"Broken off: {ended} had ended. {kept}", style="yellow"))
        else:
            self.console.print(Text(NO_REPORT, style="yellow"))
        return _status(end)


def _status(end: BaseException) -> int:
    return TERMINATED if isinstance(end, Terminated) else INTERRUPTED


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM is raised as Terminated, where Python allows it: in the main thread."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
