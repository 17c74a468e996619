"""`headway tune --pipeline`: sizes the stages of a pipeline, in virtual time."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headway.commands.interruption import exit_status, terminable
from headway.commands.tune.pipeline.found import GIVEN, RECOMMENDED, Found
from headway.commands.tune.pipeline.options import PipelineOptions
from headway.commands.tune.pipeline.report import keep, show
from headway.commands.tune.pipeline.search import Search
from headway.commands.tune.pipeline.sizing import sized, sizing_of
from headway.commands.tune.pipeline.trial import Course, drawn_windows, trace_windows
from headway.commands.tune.tune_report import check_outs
from headway.costing.machine import cores
from headway.errors import SettingError, WorkerLostError, first_line
from headway.pipelines.simulated.llm_stage import SimulatedLLM
from headway.pipelines.simulated.plan import Plan, read_plan
from headway.runs.process_pool import worker_pool
from headway.traffic.trace import read_trace


def run_tune_pipeline(options: PipelineOptions, console: Console) -> int:
    """Search, write the files, print the answer; return the exit status.

    1: the stages keep no rate on the tuning windows (then no file is written) or none on the
    held-out ones. Raises SettingError and WorkerLostError.
    """
    inputs = [Path(options.pipeline), *([options.trace] if options.trace else [])]
    check_outs(options.out, options.json, inputs)
    plan = plan_named(options.pipeline)
    if not plan.deadline:
        raise SettingError(f"{options.pipeline} has no deadline: there is nothing to keep")
    given = sum([stage.processes for stage in plan.stages])
    processes = options.processes or given
    if processes < len(plan.stages):
        raise SettingError(f"{processes} processes are too few for {len(plan.stages)} stages")
    if processes > given and all(isinstance(stage, SimulatedLLM) for stage in plan.stages):
        raise SettingError("an LLM is one engine: no stage could take more processes")
    if options.trace:
        windows = trace_windows(read_trace(options.trace), options.requests)
        traffic = f"arrivals of {options.trace.name}"
    else:
        windows = drawn_windows(options.requests, options.seed)
        traffic = "Poisson arrivals"
    course = Course(plan, tuple(windows), options.seed, 2 * fastest(plan, processes))
    workers = options.workers or cores()
    with terminable():
        try:
            with worker_pool(workers) as pool:
                search = Search(course, pool, console)
                found = _searched(search, processes, traffic)
        except KeyboardInterrupt as end:
            _break_off(search, processes, traffic, options, console)
            return exit_status(end)
        except WorkerLostError:
            _break_off(search, processes, traffic, options, console)
            raise
    if not found.best.rate:
        why = f"No rate keeps 95 % of the workflows within {1e3 * plan.deadline:g} ms"
        console.print(Text(f"{why}: no file.", "yellow"))
        return 1
    keep(found, options.out, options.json)
    show(found, console)
    console.print(Text(f"The stages are in {options.out}."))
    return 0 if found.is_kept else 1


def _searched(search: Search, processes: int, traffic: str) -> Found:
    plan = search.course.plan
    search.begin(processes, search.course.most / 8)
    search.climb()
    found = _found(search, processes, traffic)
    if not found.best.rate:
        return found
    others = {RECOMMENDED: found.best.sizing, GIVEN: sizing_of(plan)}
    return replace(found, held=search.checked(others), tried=search.tried)


def _found(search: Search, processes: int, traffic: str) -> Found:
    assert search.best is not None
    course = search.course
    best = sized(course.plan, search.best.sizing)
    requests = len(course.windows[0])
    return Found(
        course.plan, best, search.best, traffic, course.seed, requests, processes, search.tried
    )


def _break_off(
    search: Search, processes: int, traffic: str, options: PipelineOptions, console: Console
) -> None:
    """Keep the best so far."""
    if search.best is None:
        console.print(Text("Broken off before anything was measured: no file.", "yellow"))
        return
    keep(_found(search, processes, traffic), options.out, options.json)
    text = f"Broken off: the best so far is in {options.out}, and it was not checked."
    console.print(Text(text, "yellow"))


def fastest(plan: Plan, processes: int) -> float:
    """An upper bound of workflows per second: function stages share their processes perfectly, and
    each LLM stage is one engine."""
    rates, functions = list[float](), 0.0
    for stage, items in zip(plan.stages, plan.items, strict=True):
        if not isinstance(stage, SimulatedLLM):
            functions += items * stage.least_seconds
        else:
            processes -= 1
            rates += [1 / (items * stage.least_seconds)] if items else []
    return min([*rates, *([processes / functions] if functions else [])])


def plan_named(name: str) -> Plan:
    """Read the plan in a file, or import module:name, a Plan or a Pipeline. Raises SettingError."""
    module, colon, attribute = name.partition(":")
    if not colon or Path(name).exists():
        return read_plan(Path(name))
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the user's module may raise anything
        raise SettingError(f"{name} cannot be imported: {first_line(error)}") from error
    finally:
        sys.path.remove("")
    if isinstance(found, Plan):
        return found
    if hasattr(found, "learned"):
        plan: Plan = found.learned()
        return plan
    raise SettingError(f"{name} is a {type(found).__name__}, not a Plan or a Pipeline")
