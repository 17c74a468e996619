"""Options that several commands share, each declared once."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="A checkpoint's folder or hub id. Default: the embedded headway-tiny.",
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="DTYPE",
        help="float32 or bfloat16. Default: as stored, if this CPU is fast at it.",
    ),
]
Quantize = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help="int8: weights in 8 bits, by headway's own executor on a CPU. Default: weights in "
        "the dtype.",
    ),
]
Cost = Annotated[
    Path, typer.Option(metavar="FILE", help="A cost file, as headway calibrate writes it.")
]
PricePerHour = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="PRICE",
        show_default=False,
        help="What the machine costs per hour. Default: the cost file's price.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="Seed of everything random: the same seed, the same requests."
    ),
]

# What is offered to whom, in compare and simulate.
Traces = Annotated[
    list[Path] | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="A trace in Azure, BurstGPT, Mooncake or shared CSV form. Repeat the option for more; "
        "each is an endpoint.",
    ),
]
Lanes = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="YAML with the endpoints and their latency budgets."),
]
Strategies = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Names separated by commas, or a YAML file. Default: fifteen strategies.",
    ),
]
Baseline = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The strategy that the others are compared with. Default: dynamic-lanes.",
    ),
]
Seconds = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="How much traffic to offer. With --rate: this much of each trace. Else: as many "
        "requests as last this long at a load of 0.12.",
    ),
]
Rate = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="RATE",
        show_default=False,
        help="Requests per second, over all endpoints. Default: set by --load.",
    ),
]
Load = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="LOAD",
        show_default=False,
        help="Device-seconds of work offered per second. Default: 0.12, which overloads no "
        "strategy.",
    ),
]
Repeat = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="Runs of each strategy or server, to see the spread."),
]
Enforce = Annotated[
    bool,
    typer.Option(
        "--enforce",
        help="Refuse and drop requests by the endpoints' queue and e2e limits, and end those that "
        "a later one supersedes, as headway serve does. Default: limits are only counted.",
    ),
]
TokenScale = Annotated[
    float,
    typer.Option(min=0.001, metavar="FACTOR", help="Divide the traces' token counts by this."),
]
