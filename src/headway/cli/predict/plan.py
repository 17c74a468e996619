"""`headway plan`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import AsJson, Cost, PricePerHour, Seed, TokenScale
from headway.cli.screen import screen

PROMPT, ANSWER, TTFT, TPOT = (
    typer.Option(min=0, metavar=metavar, show_default=False, help=help)
    for metavar, help in (
        ("TOKENS", "Length of a prompt, if there is no trace."),
        ("TOKENS", "Length of an answer, if there is no trace."),
        ("MS", "Budget of the mean TTFT, in milliseconds."),
        ("MS", "Budget of a decode step, in milliseconds."),
    )
)


def plan(
    cost: Cost = Path("cost.json"),
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="TRACE", help="A trace file, or one that ships: azure2023-code, azure2023-conv."
        ),
    ] = None,
    rate: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="RATE",
            show_default=False,
            help="Requests per second. Default: the trace's own rate.",
        ),
    ] = 0.0,
    prompt: Annotated[int, PROMPT] = 0,
    answer: Annotated[int, ANSWER] = 0,
    ttft: Annotated[float, TTFT] = 0.0,
    tpot: Annotated[float, TPOT] = 0.0,
    buckets: Annotated[
        str,
        typer.Option(metavar="WIDTHS", help="Widths that groups are padded to: 256,512,1024."),
    ] = "",
    batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Requests of a padded group.")
    ] = 16,
    price_per_hour: PricePerHour = None,
    token_scale: TokenScale = 1.0,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            show_default=False,
            help="The cost file's model, whose shape says the KV memory per token. Needed only if "
            "the model's name in the cost file does not say it.",
        ),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Answer capacity questions, by formula and by the simulator side by side.

    TPOT and TTFT at a rate, the highest rate within a TTFT budget, KV memory, largest batches,
    padding, cost, and by how much bursts lower that rate. The answer comes in the first lines. A
    long trace takes up to a minute; if the output is piped, progress goes to stderr.

    Example: headway plan --trace mine.csv --ttft 500 --tpot 40
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
    raise typer.Exit(run_plan(options, screen()))
