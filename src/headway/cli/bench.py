"""`headway bench`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import Lanes, Repeat, Seed, Traces
from headway.cli.screen import screen
from headway.errors import SettingError


def bench(
    url: Annotated[
        list[str], typer.Argument(metavar="URL...", help="http://HOST:PORT of each server.")
    ],
    trace: Traces = None,
    lanes: Lanes = None,
    poisson: Annotated[
        float,
        typer.Option(min=0, metavar="RATE", show_default=False, help="Poisson arrivals a second."),
    ] = 0.0,
    gamma: Annotated[
        str,
        typer.Option(
            metavar="RATE,CV",
            help="Gamma arrivals: requests a second, and the coefficient of variation of their "
            "gaps (1: Poisson; more: bursts).",
        ),
    ] = "",
    prompt: Annotated[
        str,
        typer.Option(
            metavar="TOKENS",
            help="With --poisson or --gamma: so many, or 16-48. Default: 128.",
        ),
    ] = "",
    answer: Annotated[
        str, typer.Option(metavar="TOKENS", help="The same of answers. Default: 64.")
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How much of each trace or process.")
    ] = 60.0,
    rate: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="RATE",
            show_default=False,
            help="Requests a second of all lanes without a rate of their own. Default: traces go "
            "at their own pace.",
        ),
    ] = 0.0,
    speed: Annotated[
        float, typer.Option(min=0.001, metavar="TIMES", help="Times the traces' own pace.")
    ] = 1.0,
    token_scale: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="FACTOR",
            show_default=False,
            help="Divide the traces' token counts by this. Default: 1.",
        ),
    ] = None,
    ttft: Annotated[
        float, typer.Option(min=0, metavar="MS", show_default=False, help="To the first text.")
    ] = 0.0,
    tpot: Annotated[
        float, typer.Option(min=0, metavar="MS", show_default=False, help="Per further token.")
    ] = 0.0,
    e2e: Annotated[
        float, typer.Option(min=0, metavar="MS", show_default=False, help="To the end.")
    ] = 0.0,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="The model's name there; repeat it for URLs with another each. Default: the only "
            "one.",
        ),
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Ask /v1/chat/completions.")] = False,
    text: Annotated[
        bool,
        typer.Option("--text", help="Send text, also where the server would take token ids."),
    ] = False,
    key_env: Annotated[
        str, typer.Option(metavar="NAME", help="The environment variable with the API key.")
    ] = "",
    retries: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Retries of a refused or failed request, after Retry-After."
        ),
    ] = 0,
    callers: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            show_default=False,
            help="A closed loop of so many callers in place of scheduled arrivals.",
        ),
    ] = 0,
    find_capacity: Annotated[
        float,
        typer.Option(
            metavar="PERCENT",
            show_default=False,
            help="Search for the highest rate at which so many percent of each lane's requests "
            "are inside its budget.",
        ),
    ] = 0.0,
    warm_up: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", show_default=False, help="Excluded. Default: a tenth."
        ),
    ] = None,
    drain: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Then what is unfinished is cut off.")
    ] = 30.0,
    repeat: Repeat = 1,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report is written.")] = (
        Path("headway-bench")
    ),
) -> None:
    """Measure a running server under your traffic, or several in turn.

    Any server with OpenAI's API. Requests are sent at their scheduled times, and every latency
    counts from there. The report has latencies, throughput, and each lane's share in budget.

    Example: headway bench http://127.0.0.1:8000 --poisson 4 --ttft 500 --tpot 80
    """
    if find_spec("httptools") is None:
        raise SettingError("headway bench needs httptools: pip install 'headway[bench]'")
    from headway.commands.bench.bench import run_bench
    from headway.commands.bench.options import BenchOptions

    options = BenchOptions(
        urls=tuple(url),
        models=tuple(model or ()),
        traces=tuple(trace or ()),
        lanes=lanes,
        poisson=poisson,
        gamma=gamma,
        prompt=prompt,
        answer=answer,
        ttft=ttft,
        tpot=tpot,
        e2e=e2e,
        seconds=seconds,
        rate=rate,
        speed=speed,
        token_scale=token_scale,
        find_capacity=find_capacity,
        warm_up=warm_up,
        drain=drain,
        retries=retries,
        callers=callers,
        repeat=repeat,
        seed=seed,
        chat=chat,
        text=text,
        key_env=key_env,
        out=out,
    )
    raise typer.Exit(run_bench(options, screen()))
