"""The command `headway plan`: capacity questions, answered by formula and by simulation."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from headway.commands.plan.estimate.burstiness import Burstiness
from headway.commands.plan.estimate.checked_estimate import CheckedEstimate
from headway.commands.plan.estimate.checks import (
    check_at_rate,
    check_budget_rate,
    check_cost,
    check_memory,
    check_one_token,
    check_padding,
    check_tpot,
    check_ttft,
    measure_burstiness,
    overloaded,
    run_at_rate,
)
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic, steady, traced
from headway.commands.plan.estimate.shape import kv_or_why_not
from headway.commands.plan.estimate.simulated_machine import Machine
from headway.commands.plan.headline import headline, rates
from headway.commands.plan.tables import print_answers, print_burstiness, print_head
from headway.core.policies.join import Static
from headway.costing.calibration import Calibration, read_cost_file
from headway.errors import SettingError
from headway.report.formatting import duration
from headway.traffic.from_yaml import SHIPPED_TRACES
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.token_scale import count_raised_to_one
from headway.traffic.trace import read_shipped_trace, read_trace
from headway.yaml_values import number

NUMBERS = (
    "rate",
    "ttft",
    "tpot",
    "token_scale",
    "price_per_hour",
)  # options that must be finite numbers
LEAST_RATE = 1e-4  # requests per second; at lower rates a run outlasts the clock's range
MOST_BATCH = 10_000  # requests of a padded group in the simulator


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The command line's options."""

    cost: Path
    model: str | None = None  # its shape gives the KV per token; must be the cost file's model
    trace: str | None = None  # a file, or a shipped trace; None: use rate, prompt and answer
    rate: float = 0.0  # requests per second; 0: the trace's own
    prompt: int = 0  # tokens
    answer: int = 0  # tokens
    ttft: float = 0.0  # ms, limit of the mean; 0: no limit
    tpot: float = 0.0  # ms; 0: no limit
    buckets: str = ""  # widths, separated by commas
    batch: int = 16  # requests of a padded group
    price_per_hour: float | None = None  # None: the cost file's, if it states one
    token_scale: float = 1.0  # divides the trace's token counts
    seed: int = 0
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The plan to print: the headline, the answers by table title, and notes."""

    headline: list[str]
    answers: dict[str, list[CheckedEstimate]]
    notes: list[str]
    burstiness: Burstiness | None = None


def run_plan(options: PlanOptions, console: Console) -> int:
    """Print the plan and return 0. Raises SettingError for impossible options, with the remedy."""
    for name in NUMBERS:
        if (value := getattr(options, name)) is not None:
            number(value, f"--{name.replace('_', '-')}")
    if 0 < options.rate < LEAST_RATE:
        raise SettingError(f"--rate is {options.rate}; it must be {LEAST_RATE} or more")
    if options.batch > MOST_BATCH:
        raise SettingError(f"--batch must be at most {MOST_BATCH:,}, not {options.batch:,}")
    Static(options.batch, _buckets(options.buckets))  # fail before anything is simulated
    calibration = read_cost_file(options.cost)
    if not calibration.cost.is_known:
        raise SettingError(f"{options.cost.name} prices nothing: run headway calibrate")
    traffic, notes = _planned_traffic(options, calibration.context)
    machine = Machine(
        calibration.cost,
        calibration.slots,
        calibration.num_blocks,
        calibration.block_size,
        options.seed,
        calibration.fit,
        calibration.depth,
    )
    if options.price_per_hour is None and calibration.price_per_hour:
        options = replace(options, price_per_hour=calibration.price_per_hour)
    kv, left_out = kv_or_why_not(options.model, calibration)
    notes += [left_out] if left_out else []
    if doubt := calibration.doubt:
        notes.append(f"The cost file is unreliable: {doubt}")
    if options.as_json:
        planned = plan(machine, traffic, options, _print_progress)
        console.file.write(json.dumps(_json(calibration, traffic, planned, kv, notes)) + "\n")
        return 0
    with _progress(console) as show:
        planned = plan(machine, traffic, options, show)
    print_head(console, calibration, traffic, planned.headline, notes)
    for title, answers in {"KV memory": kv, **planned.answers}.items():
        print_answers(console, title, answers)
    if planned.burstiness is not None:
        print_burstiness(console, planned.burstiness)
    for note in planned.notes:
        console.print(note, markup=False, highlight=False)
    return 0


def _print_progress(phase: str) -> None:
    """Print the phase on stderr, since stdout may be piped."""
    print(f"headway plan: {phase} ...", file=sys.stderr, flush=True)


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], object]]:
    """A function that shows the phase: as a status line on a terminal, else as lines on stderr."""
    if not console.is_terminal:
        yield _print_progress
        return
    with console.status("") as status:
        yield status.update


def plan(
    machine: Machine, traffic: PlannedTraffic, options: PlanOptions, show: Callable[[str], object]
) -> PlanResult:
    """Answer every question that the options allow. show: called with each phase.

    Raises SettingError if the rate is too high or a budget cannot be kept.
    """
    ttft, tpot = round(options.ttft * 1e6), round(options.tpot * 1e6)
    answers, notes = dict[str, list[CheckedEstimate]](), list[str]()
    show("serving at the rate")
    load = check_at_rate(machine, traffic, run := run_at_rate(machine, traffic))
    served = overloaded(machine, traffic, run)
    show("serving one prompt a step")
    try:
        load.append(check_ttft(machine, traffic))
    except SettingError as error:
        notes.append(f"No mean TTFT with one prompt a step: {error}.")
    answers["At the rate"] = load
    show("filling the memory")
    answers["Batch that the KV memory allows"] = check_memory(machine, traffic)
    if tpot:
        answers["Batch that the TPOT allows"] = [check_tpot(machine, traffic, tpot)]
    show("padding groups")
    answers["Groups"] = [
        *check_padding(machine, traffic, options.batch, _buckets(options.buckets)),
        check_one_token(machine, traffic),
    ]
    full = burstiness = None
    if ttft:
        show("searching for the highest rate within the TTFT budget")
        full = check_budget_rate(machine, traffic, ttft)
        answers["Highest rate within the TTFT budget"] = [full]
        if traffic.times:
            show("speeding the trace up and slowing it down")
            try:
                burstiness = measure_burstiness(machine, traffic, ttft, full)
            except SettingError as error:
                notes.append(f"Bursts were not measured: {error}.")
    if options.price_per_hour is not None:
        answers["Cost"] = check_cost(traffic, options.price_per_hour, run, full)
    if not ttft:
        notes.append("Without --ttft, the highest rate and the effect of bursts are left out.")
    is_kept = run.ttft <= ttft and not served
    lines = rates(machine, traffic, ttft, full, burstiness, is_kept) if full else []
    return PlanResult(
        headline(machine, traffic, run, (ttft, tpot), lines, served), answers, notes, burstiness
    )


def _planned_traffic(options: PlanOptions, context: int) -> tuple[PlannedTraffic, list[str]]:
    """The traffic, and notes on how it was changed. Raises SettingError."""
    if options.trace is None:
        if not (options.rate > 0 and options.prompt > 0 and options.answer > 0):
            raise SettingError("give --trace, or --rate with --prompt and --answer, each above 0")
        if options.token_scale != 1:
            raise SettingError("--token-scale is of a trace, and there is none: leave it out")
        if options.prompt + options.answer > context:
            raise SettingError(
                f"{options.prompt} + {options.answer} tokens are more than {context}, the "
                "context of this cost file's engine: shorten them"
            )
        return steady(options.rate, options.prompt, options.answer), []
    if options.prompt or options.answer:
        raise SettingError("a trace has its own lengths: leave --prompt and --answer out")
    trace = _trace(options.trace, options.token_scale)
    name, arrivals = trace.name, trace.arrivals
    specs = list(trace.specs("default", options.seed, context)) if arrivals else []
    traffic, notes = traced(name, specs), list[str]()
    if trace.tick:
        notes.append(f"the trace's times are spread over each tick of {duration(trace.tick)}")
    whole = sum(a.prompt + a.answer for a in arrivals) / options.token_scale
    if not whole:
        raise SettingError(f"every token count of {name} is 0: nothing can be planned for it")
    lost = 1 - sum(a.prompt + a.answer for a in specs) / whole
    if zeros := count_raised_to_one(arrivals, options.token_scale):
        notes.append(f"{zeros} of the trace's token counts came to 0 and were raised to 1")
    if lost > 0.01:
        notes.append(
            f"{lost:.0%} of the trace's tokens were cut off at a context of {context}: "
            "--token-scale divides all of them instead"
        )
    if traffic.rate < LEAST_RATE and not options.rate:
        raise SettingError(
            f"{name} has {traffic.rate:.2g} requests per second; a plan needs {LEAST_RATE:g} or "
            "more: give a --rate"
        )
    if options.rate:
        notes.append(f"the trace's own rate is {traffic.rate:.4g} requests/s")
        traffic = replace(traffic, rate=options.rate)
    return traffic, notes


def _trace(named: str, scale: float) -> RecordedTrace:
    """The trace of this name or path, its times spread as in a comparison. Raises SettingError."""
    if scale <= 0:
        raise SettingError(f"the token scale must be more than 0, not {scale:g}")
    path = Path(named)
    arrivals = read_shipped_trace(named) if named in SHIPPED_TRACES else read_trace(path)
    return RecordedTrace(arrivals, path.name, scale)


def _buckets(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise SettingError(
            f"--buckets takes whole numbers separated by commas, not {text!r}"
        ) from None


def _json(
    calibration: Calibration,
    traffic: PlannedTraffic,
    planned: PlanResult,
    kv: list[CheckedEstimate],
    notes: list[str],
) -> dict[str, Any]:
    answers = [each for group in (kv, *planned.answers.values()) for each in group]
    about = {"model": calibration.model, "dtype": calibration.dtype, "device": calibration.device}
    return {
        "headway_plan": 1,
        "machine": {**about, "analytical": calibration.analytical},
        "work": {
            "name": traffic.name,
            "rate": traffic.rate,
            "prompt": traffic.prompt,
            "answer": traffic.answer,
        },
        "headline": planned.headline,
        "answers": [{**asdict(each), "difference": each.difference} for each in answers],
        "burst": None if planned.burstiness is None else asdict(planned.burstiness),
        "notes": [*notes, *planned.notes],
    }
