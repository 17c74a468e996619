"""`headway simulate`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import (
    Baseline,
    Cost,
    Enforce,
    Lanes,
    Load,
    PricePerHour,
    Rate,
    Repeat,
    Seconds,
    Seed,
    Strategies,
    TokenScale,
    Traces,
)
from headway.cli.screen import screen

Sweep = Annotated[
    str,
    typer.Option(
        metavar="SETTING",
        help="rate=1,2,4 or rate=1..20:5. Also load, seconds, token_scale, slots, chunk, "
        "step_tokens, window, num_blocks.",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        show_default=False,
        help="Processes of a sweep. Default: one per core.",
    ),
]


def simulate(
    cost: Cost = Path("cost.json"),
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Refuse a cost file of any other model."),
    ] = None,
    trace: Traces = None,
    lanes: Lanes = None,
    strategies: Strategies = "",
    baseline: Baseline = "",
    seconds: Seconds = 45.0,
    rate: Rate = 0.0,
    load: Load = 0.0,
    token_scale: TokenScale = 8.0,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Offer the same requests as this report.json, of compare or simulate.",
        ),
    ] = None,
    repeat: Repeat = 1,
    seed: Seed = 0,
    price_per_hour: PricePerHour = None,
    enforce: Enforce = False,
    sweep: Sweep = "",
    capacity: Annotated[
        bool, typer.Option("--capacity", help="Find the rate that keeps 95 % in budget.")
    ] = False,
    workers: Workers = 0,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report is written.")] = (
        Path("headway-simulate")
    ),
) -> None:
    """Compare strategies in virtual time: a cost model says how long each step takes.

    The scheduler is the real one, no model runs, and the same seed gives the same bytes. Writes
    report.html and report.json. With --sweep or --capacity it writes sweep.html and sweep.json
    instead: curves, and for rate or load the knee and the capacity.

    Example: headway simulate --trace mine.csv --sweep rate=1..20:8
    """
    from headway.commands.compare.compare import CompareOptions
    from headway.commands.simulate.simulate import SimulateOptions, run_simulate
    from headway.costing import calibration

    comparison = CompareOptions(
        traces=tuple(trace or ()),
        lanes=lanes,
        strategies=strategies,
        baseline=baseline,
        seconds=seconds,
        rate=rate,
        load=load,
        token_scale=token_scale,
        repeat=repeat,
        seed=seed,
        model=model,
        enforce=enforce,
        out=out,
    )
    options = SimulateOptions(
        comparison,
        calibration.read_cost_file(cost),
        sweep,
        capacity,
        workers,
        like,
        price_per_hour,
    )
    raise typer.Exit(run_simulate(options, screen()))
