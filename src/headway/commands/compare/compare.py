"""`headway compare`: every strategy on the same arrivals, prompts and lengths, and its report."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from headway.commands.compare.cost_source import possible, predicting, runnable, with_cost
from headway.commands.compare.like import Like
from headway.commands.compare.ranges import check_ranges
from headway.commands.interruption import exit_status, terminable
from headway.commands.replay.recording import FIRST_NS, WARM_UP_NS
from headway.costing.machine import Neighbours
from headway.engine import forgotten
from headway.errors import SettingError
from headway.executor.load import TORCH, check_executor, traits_of
from headway.journal.file import JournalFile
from headway.journal.record import Record
from headway.live.clock import date
from headway.report.report_json import writable
from headway.report.reporter import DRAIN, Reporter
from headway.report.workload_summary import refuse_nobody
from headway.runs.experiment import Experiment, custom_experiment, demo_experiment
from headway.runs.live_testbed import load_testbed
from headway.runs.machine_speed import MachineSpeed
from headway.runs.outcome import Outcome
from headway.runs.progress import show_progress
from headway.runs.run import Run
from headway.runs.testbed import Testbed
from headway.strategies.from_yaml import StrategyMaker, read_strategies
from headway.strategies.registry import DEFAULT_STRATEGIES, DYNAMIC_LANES
from headway.strategies.strategy import Strategy
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.from_yaml import endpoints_from_traces, read_endpoints
from headway.traffic.selection import DEFAULT_LOAD, Demand
from headway.traffic.token_scale import TOKEN_SCALE
from headway.yaml_values import number

NUMBERS = ("seconds", "rate", "load", "token_scale", "price_per_hour")  # options that are numbers
ENFORCEABLE = "queue limit, an e2e limit, or a trace with a column supersede"
NO_REPORT = "Broken off before any strategy ran: no report."


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The options of the command line."""

    model: str | None = None  # a checkpoint's folder or hub id; None: the embedded one
    traces: tuple[Path, ...] = ()  # each trace is an endpoint, if there are no lanes
    lanes: Path | None = None  # YAML; None and no traces: the demo's four endpoints
    strategies: str = ""  # comma-separated names, or a YAML file; empty: DEFAULT_STRATEGIES
    seconds: float = 45.0  # of the traces if a rate is given; else of arrivals at DEFAULT_LOAD
    rate: float = 0.0  # requests per second of all endpoints; 0: by load
    load: float = 0.0  # device-seconds per second at full batches; 0: DEFAULT_LOAD
    like: Like | None = None  # a report's traffic; replaces rate, load and seconds
    repeat: int = 1
    seed: int = 0
    baseline: str = ""  # a strategy's name; empty: dynamic-lanes, or the first
    price_per_hour: float = 1.0
    token_scale: float = TOKEN_SCALE  # divides the traces' token counts
    out: Path = Path("headway-compare")
    journals: Path | None = None  # a new or empty folder, for the journal of each run
    cost: Path | None = None  # a cost file to predict with; None: see cost_source
    enforce: bool = False  # refuse and drop requests as headway serve does
    executor: str = TORCH
    vllm: Mapping[str, Any] = field(default_factory=dict)  # options of the vLLM executor


def run_compare(options: CompareOptions, console: Console) -> int:
    """Compare the strategies and return the exit status.

    Raises a HeadwayError for errors the user can fix.
    """
    services = services_of(options)
    makes = read_strategies(options.strategies or ",".join(DEFAULT_STRATEGIES))
    check_executor(options.executor, options.vllm)
    makes = runnable(makes, traits_of(options.executor), bool(options.strategies), console)
    makes = possible(makes, options.cost, bool(options.strategies), console)
    baseline(options, makes)
    check_ranges(services, makes)
    folder = writable(options.out)
    if options.journals is not None and list(writable(options.journals).iterdir()):
        raise SettingError(f"{options.journals} is not empty: name a new folder for the journals")

    def make_run(testbed: Testbed) -> ComparisonRun:
        measured = prepare(testbed, options, services)
        costed = with_cost(measured, predicting(makes), options.cost, console)
        return ComparisonRun(costed, makes, options, folder, console)

    return run_comparison(options, console, make_run)


def run_comparison(
    options: CompareOptions, console: Console, make_run: Callable[[Testbed], "ComparisonRun"]
) -> int:
    """Load the model, measure the machine, serve every strategy; return the exit status."""
    with terminable(), ExitStack() as closing:
        try:
            console.print(Text("Loading the model and the text that prompts are cut from ..."))
            testbed = load_testbed(options.model, options.executor, options.vllm)
            closing.callback(testbed.executor.close)
            if testbed.memory:
                console.print(Text(testbed.memory, style="dim"))
            console.print(Text("Measuring this machine: one request alone, and full batches ..."))
            comparison = make_run(testbed)
        except KeyboardInterrupt as end:
            console.print(Text(NO_REPORT, style="yellow"))
            return exit_status(end)
        return comparison.run()


def services_of(options: CompareOptions) -> list[EndpointTraffic]:
    """The endpoints that --lanes or --trace name; empty for the demo's.

    Raises SettingError for options that contradict each other, and for numbers that are not finite.
    """
    for name in NUMBERS:
        number(getattr(options, name), f"--{name.replace('_', '-')}")
    if options.lanes is not None and options.traces:
        raise SettingError("say --lanes or --trace, not both: a lane names its own trace")
    if options.rate and options.load:
        raise SettingError("say --rate or --load, not both")
    if options.lanes is not None:
        services = read_endpoints(options.lanes, options.token_scale)
        if options.enforce and not any(each.can_enforce for each in services):
            raise SettingError(
                f"--enforce: no endpoint of {options.lanes.name} has a {ENFORCEABLE}"
            )
        if options.token_scale != TOKEN_SCALE and not any(each.is_recorded for each in services):
            raise SettingError(f"--token-scale is of traces, and {options.lanes.name} has none")
        if (options.rate or options.load) and all(each.rate for each in services):
            raise SettingError(
                f"each endpoint of {options.lanes.name} has a rate of its own: "
                f"--{'rate' if options.rate else 'load'} would change nothing"
            )
        return services
    services = endpoints_from_traces(options.traces, options.token_scale) if options.traces else []
    if options.enforce and not any(each.can_enforce for each in services):
        raise SettingError(f"--enforce needs --lanes with endpoints that have a {ENFORCEABLE}")
    if services:
        return services
    if options.rate or options.token_scale != TOKEN_SCALE:
        raise SettingError("--rate and --token-scale need --lanes or --trace; --load does not")
    return []


def baseline(options: CompareOptions, names: Collection[str]) -> str:
    """The name of the strategy that all others are compared with."""
    wanted = options.baseline or (DYNAMIC_LANES if DYNAMIC_LANES in names else next(iter(names)))
    if wanted not in names:
        raise SettingError(f"the baseline {wanted} is not among the strategies: {', '.join(names)}")
    return wanted


def prepare(
    testbed: Testbed,
    options: CompareOptions,
    services: list[EndpointTraffic],
    speed: MachineSpeed | None = None,
) -> Experiment:
    """Measure the machine, and select the requests that every strategy is offered.

    speed: the machine's, if it was measured already.
    """
    span, like = round(options.seconds * 1e9), options.like
    demand = Demand(options.rate, 0.0 if options.rate else options.load or DEFAULT_LOAD)
    if like:
        like.check_names([each.name for each in services])
    if services:
        taken = like.extent if like else None
        experiment = custom_experiment(testbed, services, demand, span, options.seed, taken, speed)
    else:
        price = like.price if like else None
        experiment = demo_experiment(testbed, span, options.seed, demand.load, price, speed)
    if like:
        like.check({each.name: experiment.work.count(each.name) for each in experiment.endpoints})
    given = {"rate": demand.rate, "load": demand.load, "span_ns": span}
    given |= {"token_scale": options.token_scale}
    return replace(experiment, about={**experiment.about, "asked": given})


@dataclass
class ComparisonRun:
    """Serves every strategy in turn, `options.repeat` times, and reports on all of them."""

    experiment: Experiment
    makes: Mapping[str, StrategyMaker]
    options: CompareOptions
    folder: Path
    console: Console
    runs: dict[str, tuple[Outcome, ...]] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)  # other processes' cores, by strategy
    command: str = "compare"  # the command that the report names

    def __post_init__(self) -> None:
        refuse_nobody(self.experiment)
        self.strategies = tuple(
            make(self.experiment.strategy_inputs) for make in self.makes.values()
        )
        self.experiment.check(self.strategies)
        against = baseline(self.options, self.makes)
        self.reporter = Reporter(
            self.experiment,
            self.strategies,
            against,
            self.options.price_per_hour,
            self.console,
            command=self.command,
            enforced=self.options.enforce,
        )

    def run(self) -> int:
        """Serve all strategies, write both reports, and return the exit status.

        An interrupted comparison leaves both reports too, if a run had begun. A SIGKILL leaves
        report.json with the runs that had ended.
        """
        try:
            self._serve_all()
        except KeyboardInterrupt as end:
            return self._broken_off(end)
        self.reporter.closing(self.runs, self.others, self.folder, complete=True)
        return 0

    def testbed(self, repeat: int) -> Testbed:
        """The testbed of a run: the same one for every repeat."""
        return self.experiment.testbed

    def _serve_all(self) -> None:
        """Serve all repeats. Strategies alternate within each, so that drift affects all alike."""
        self.reporter.opening()
        repeats = self.options.repeat
        for repeat in range(repeats):
            for strategy in self.strategies:
                title = f"{strategy.name} {repeat + 1}" if repeats > 1 else strategy.name
                self._serve(strategy, title)
                self.reporter.keep(self.runs, self.others, self.folder, complete=False)

    def _serve(self, strategy: Strategy, title: str) -> None:
        """Serve one run and keep its rows, even if it is interrupted."""
        experiment, others, name = self.experiment, Neighbours(), strategy.name
        requests, limit = experiment.work.requests, round(experiment.work.window * (1 + DRAIN))
        testbed = self.testbed(len(self.runs.get(name, ())))
        rules = self.options.enforce, experiment.work.keys
        run = Run(testbed, strategy.policies, experiment.lanes, requests, limit, *rules)
        try:
            with (
                show_progress(self.console, title, len(requests), experiment.work.window) as watch,
                self._journal(title, run) as keep,
            ):
                run.serve(watch, keep)
        finally:
            self.runs[name] = (*self.runs.get(name, ()), run.outcome())
        self.others[name] = max(others.cores(), self.others.get(name, 0.0))

    @contextmanager
    def _journal(self, title: str, run: Run) -> Iterator[Callable[[Record], object]]:
        """A function that keeps a record of the run's journal, or forgets it without --journals.

        Journals are numbered in the order of the runs.
        """
        if self.options.journals is None:
            yield forgotten
            return
        testbed, number = run.testbed, sum(map(len, self.runs.values())) + 1
        name = f"{number:02}-{re.sub(r'[^0-9A-Za-z.-]+', '-', title)}.jsonl"
        about = {
            "model": testbed.model,
            "dtype": testbed.dtype,
            "device": testbed.device,
            "begun": date(),
            WARM_UP_NS: self.experiment.work.warm_up,
            FIRST_NS: min((each.arrived for each in run.requests), default=0),
        }
        with JournalFile(self.options.journals / name, run.scheduler.settings, about) as file:
            yield file.keep

    def _broken_off(self, end: KeyboardInterrupt) -> int:
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
        return exit_status(end)
