"""`headway calibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.executor_options import Executor, Vllm, read_vllm
from headway.cli.options import Dtype, Quantize
from headway.cli.screen import screen


def calibrate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A checkpoint's folder or hub id; with --accelerator also a shape, such as "
            "llama-3.1-8b. Default: the embedded headway-tiny."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The cost file to write.")] = (
        Path("cost.json")
    ),
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default=False,
            help="Sequences that may decode at once. Default: 16; 256 with --accelerator.",
        ),
    ] = None,
    dtype: Dtype = "",
    quantize: Quantize = "",
    executor: Executor = "torch",
    vllm: Vllm = None,
    threads: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            show_default=False,
            help="Threads that compute. Default: one, or all if that is much faster.",
        ),
    ] = 0,
    seconds: Annotated[
        float, typer.Option(min=10, metavar="SECONDS", help="How long to measure.")
    ] = 100.0,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of the batches and of their order.")
    ] = 0,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Also find what bounds each batch size, and draw it in a .png beside OUT.",
        ),
    ] = False,
    price_per_hour: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="PRICE",
            show_default=False,
            help="What the machine costs per hour. Default: the data sheet's price, or none.",
        ),
    ] = 0.0,
    accelerator: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Measure nothing; work the costs out from a data sheet: h100-sxm, h200, "
            "a100-80gb, l4, rtx-4090 or mi300x.",
        ),
    ] = "",
    accelerators: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML with data sheets of your own.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Write the file even if its predictions are far off, and mark it so."
        ),
    ] = False,
) -> None:
    """Measure what a step costs: designed batches, a fit, and live traffic to check it.

    Takes about two minutes for a small model, on a machine that does nothing else. simulate, plan,
    tune, replay and serve read the cost file that it writes.

    Example: headway calibrate llama-3.1-8b --accelerator h100-sxm
    """
    from headway.commands.calibrate.calibrate import CalibrateOptions, run_calibrate
    from headway.executor.precision import with_quantize

    options = CalibrateOptions(
        model=model,
        out=out,
        slots=slots,
        dtype=with_quantize(dtype, quantize),
        executor=executor,
        vllm=read_vllm(vllm),
        threads=threads,
        seed=seed,
        seconds=seconds,
        profile=profile,
        price_per_hour=price_per_hour,
        accelerator=accelerator,
        accelerators=accelerators,
        force=force,
    )
    raise typer.Exit(run_calibrate(options, screen()))
