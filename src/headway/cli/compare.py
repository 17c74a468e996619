"""`headway compare`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.executor_options import Executor, Vllm, read_vllm
from headway.cli.options import (
    Baseline,
    Enforce,
    Lanes,
    Load,
    Model,
    Rate,
    Repeat,
    Seconds,
    Seed,
    Strategies,
    TokenScale,
    Traces,
)
from headway.cli.screen import screen


def compare(
    model: Model = None,
    executor: Executor = "torch",
    vllm: Vllm = None,
    trace: Traces = None,
    lanes: Lanes = None,
    strategies: Strategies = "",
    baseline: Baseline = "",
    seconds: Seconds = 45.0,
    rate: Rate = 0.0,
    load: Load = 0.0,
    token_scale: TokenScale = 8.0,
    repeat: Repeat = 1,
    seed: Seed = 0,
    price_per_hour: Annotated[
        float, typer.Option(min=0, metavar="PRICE", help="What the machine costs per hour.")
    ] = 1.0,
    cost: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="A cost file of headway calibrate, for strategies that predict times. Default: "
            "cost.json here, if it is of this model and machine; else one is learned.",
        ),
    ] = None,
    enforce: Enforce = False,
    journals: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="An empty folder, in which each run leaves its journal."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report is written.")] = (
        Path("headway-compare")
    ),
) -> None:
    """Serve your traffic under every strategy, and report what each one did.

    All strategies see the same arrivals, prompts and lengths. Without options, the embedded model
    serves the demo's four endpoints, in a quarter of an hour. report.html and report.json show the
    latency of each endpoint, the cost of each strategy, and what it made better and worse.

    Example: headway compare --trace mine.csv --strategies static,dynamic-lanes
    """
    from headway.commands.compare.compare import CompareOptions, run_compare

    options = CompareOptions(
        model=model,
        executor=executor,
        vllm=read_vllm(vllm),
        traces=tuple(trace or ()),
        lanes=lanes,
        strategies=strategies,
        seconds=seconds,
        rate=rate,
        load=load,
        repeat=repeat,
        seed=seed,
        baseline=baseline,
        price_per_hour=price_per_hour,
        token_scale=token_scale,
        journals=journals,
        cost=cost,
        enforce=enforce,
        out=out,
    )
    raise typer.Exit(run_compare(options, screen()))
