"""Commands about a cost model: calibrate, simulate, replay, plan."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.app import (
    PREDICT,
    Baseline,
    Lanes,
    Load,
    PricePerHour,
    Rate,
    Seconds,
    Strategies,
    TokenScale,
    Traces,
    app,
)

Cost = Annotated[Path, typer.Option(help="cost.json, as headway calibrate has left it.")]

Sweep = Annotated[
    str,
    typer.Option(
        help="rate=1,2,4 or rate=1..20:5; also load, seconds, token_scale, slots, chunk, "
        "step_tokens, window, num_blocks."
    ),
]
Workers = Annotated[
    int,
    typer.Option(min=0, show_default=False, help="Processes of a sweep. Default: one per core."),
]


@app.command(rich_help_panel=PREDICT)
def calibrate(
    model: Annotated[
        str | None,
        typer.Argument(help="A checkpoint's folder or hub id; with --accelerator also a shape."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The cost file to write.")] = Path("cost.json"),
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Rows that may decode at once. Default: 16; 256 with --accelerator.",
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(help="float32 or bfloat16. Default: as stored, if this CPU is quick at it."),
    ] = "",
    threads: Annotated[
        int,
        typer.Option(
            min=0,
            show_default=False,
            help="Threads of the model. Default: one, or all if that is much quicker.",
        ),
    ] = 0,
    seconds: Annotated[float, typer.Option(min=10, help="How long to measure.")] = 100.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the batches and their order.")] = 0,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Also find what bounds each batch size; draws it in a .png beside OUT.",
        ),
    ] = False,
    price_per_hour: Annotated[
        float,
        typer.Option(
            min=0,
            show_default=False,
            help="What the machine costs. Default: the data sheet's price, or none.",
        ),
    ] = 0.0,
    accelerator: Annotated[
        str,
        typer.Option(
            help="Measure nothing: a cost model from the data sheet of h100-sxm, h200, a100-80gb, "
            "l4, rtx-4090 or mi300x."
        ),
    ] = "",
    accelerators: Annotated[
        Path | None, typer.Option(help="YAML with data sheets of your own.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Write the file even if its predictions are far off; it is marked."
        ),
    ] = False,
) -> None:
    """Learn what a step costs: designed batches, a fit, and live traffic to hold it against.

    About two minutes for a small model, on a machine that does nothing else. simulate, plan and
    replay read the cost file that it leaves.

    Examples: headway calibrate; headway calibrate llama-3.1-8b --accelerator h100-sxm
    """
    from headway.commands.calibrate.calibrate import Asked, run_calibrate

    asked = Asked(
        model=model,
        out=out,
        slots=slots,
        dtype=dtype,
        threads=threads,
        seed=seed,
        seconds=seconds,
        profile=profile,
        price_per_hour=price_per_hour,
        accelerator=accelerator,
        accelerators=accelerators,
        force=force,
    )
    raise typer.Exit(run_calibrate(asked, Console()))


@app.command(rich_help_panel=PREDICT)
def simulate(
    cost: Cost = Path("cost.json"),
    model: Annotated[str | None, typer.Option(help="Refuse a cost file of any other.")] = None,
    trace: Traces = None,
    lanes: Lanes = None,
    strategies: Strategies = "",
    seconds: Seconds = 45.0,
    rate: Rate = 0.0,
    load: Load = 0.0,
    like: Annotated[
        Path | None,
        typer.Option(help="Offer the requests of this report.json, of compare or simulate."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each, with other residuals.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals and residuals.")] = 0,
    baseline: Baseline = "",
    price_per_hour: PricePerHour = 0.0,
    token_scale: TokenScale = 8.0,
    sweep: Sweep = "",
    capacity: Annotated[
        bool, typer.Option("--capacity", help="Find the rate that keeps 95 % in budget.")
    ] = False,
    workers: Workers = 0,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("headway-simulate"),
) -> None:
    """As compare, in virtual time: steps take what a cost model says, and nothing is computed.

    The real scheduler; the same seed gives the same bytes. Writes report.html and report.json; with
    --sweep or --capacity sweep.html and sweep.json: curves, and of rate or load knee and capacity.

    Example: headway simulate --cost cost.json --trace mine.csv --sweep rate=1..20:8
    """
    from headway.commands.compare.compare import Asked
    from headway.commands.simulate.simulate import Simulated, run_simulate
    from headway.costing import calibration

    asked = Asked(
        model=model,
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
        out=out,
    )
    wanted = Simulated(asked, calibration.read(cost), sweep, capacity, workers, like)
    raise typer.Exit(run_simulate(wanted, Console()))


@app.command(rich_help_panel=PREDICT)
def replay(
    journal: Annotated[
        Path,
        typer.Argument(
            help="As generate --journal, compare --journals or a server's engine.journal left it: "
            "the first file, if it has several."
        ),
    ],
    cost: Annotated[
        Path | None, typer.Option(help="cost.json: the price of each step. What if needs it.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="What if: slots, step_tokens, chunk, order, mix, window or num_blocks = a value.",
        ),
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="What if: a name, or a YAML file with one strategy.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for report.json.")] = None,
) -> None:
    """Repeat a recorded run, row for row; or say what other settings would have made of it.

    Example: headway replay incident.jsonl --cost cost.json --set slots=32 --set chunk=64
    """
    from headway.commands.replay.replay import ReplayOptions, run_replay

    options = ReplayOptions(journal, cost, strategy, tuple(sets or ()), as_json, out)
    raise typer.Exit(run_replay(options, Console()))


@app.command(rich_help_panel=PREDICT)
def plan(
    cost: Cost = Path("cost.json"),
    trace: Annotated[
        str | None, typer.Option(help="A trace file, azure2023-code or azure2023-conv.")
    ] = None,
    rate: Annotated[
        float,
        typer.Option(
            min=0, show_default=False, help="Requests a second. Default: the trace's own."
        ),
    ] = 0.0,
    prompt: Annotated[
        int, typer.Option(min=0, show_default=False, help="Tokens of a prompt, without a trace.")
    ] = 0,
    answer: Annotated[
        int, typer.Option(min=0, show_default=False, help="Tokens of an answer, without a trace.")
    ] = 0,
    ttft: Annotated[
        float, typer.Option(min=0, show_default=False, help="Budget of the mean TTFT, in ms.")
    ] = 0.0,
    tpot: Annotated[
        float, typer.Option(min=0, show_default=False, help="Budget of a decode step, in ms.")
    ] = 0.0,
    buckets: Annotated[
        str, typer.Option(help="Widths that groups are padded to: 256,512,1024.")
    ] = "",
    batch: Annotated[int, typer.Option(min=1, help="Requests of a padded group.")] = 16,
    price_per_hour: PricePerHour = 0.0,
    token_scale: Annotated[
        float, typer.Option(min=0.001, help="The trace's token counts are divided by this.")
    ] = 1.0,
    model: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="The cost file's model: its shape tells the KV per token. Needed only where the "
            "cost file's name does not tell the shape.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the arrivals and of how step times vary.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Answer capacity questions, by formula and by the simulator side by side.

    TPOT and TTFT at a rate, the highest rate within a TTFT budget, KV memory, largest batches,
    padding, cost, and by how much bursts lower that rate. The first lines are the answer. A long
    trace takes up to a minute; progress goes to stderr where the output is piped.

    Example: headway plan --cost cost.json --trace mine.csv --ttft 500 --tpot 40
    """
    from headway.commands.plan.plan import PlanOptions, run_plan

    options = PlanOptions(
        cost=cost,
        model=model,
        trace=trace,
        rate=rate,
        prompt=prompt,
        answer=answer,
        ttft=ttft,
        tpot=tpot,
        buckets=buckets,
        batch=batch,
        price_per_hour=price_per_hour,
        token_scale=token_scale,
        seed=seed,
        as_json=as_json,
    )
    raise typer.Exit(run_plan(options, Console()))
