"""`headway tune`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import Cost, Lanes, Seed, TokenScale, Traces
from headway.cli.screen import screen
from headway.errors import SettingError

OF_PIPELINES = {"trace", "pipeline", "processes", "requests", "seed", "workers", "out", "json"}


def tune(
    context: typer.Context,
    cost: Cost = Path("cost.json"),
    trace: Traces = None,
    lanes: Lanes = None,
    rate: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="RATE",
            show_default=False,
            help="Requests per second that must be kept, at the least device time. Default: find "
            "the settings with the highest rate.",
        ),
    ] = 0.0,
    requests: Annotated[
        int, typer.Option(min=10, metavar="N", help="Requests of each of the four windows.")
    ] = 400,
    token_scale: TokenScale = 8.0,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            show_default=False,
            help="The cost file's model: a folder or hub id. Default: as the cost file names it.",
        ),
    ] = None,
    seed: Seed = 0,
    workers: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", show_default=False, help="Processes. Default: one per core."
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="The configuration to write. Default: headway.yaml; of a pipeline, "
            "tuned-pipeline.yaml.",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the evidence as JSON too.")
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live/--no-live",
            help="Serve a held-out window with the live model at the end, if the cost file was "
            "measured on this machine with the embedded model or with --model.",
        ),
    ] = True,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Size the stages of a pipeline instead: a YAML file of stages with what they "
            "cost, or module:name of a Plan or a Pipeline (docs/pipelines.md).",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            show_default=False,
            help="With --pipeline: processes of all stages together. Default: as the file has.",
        ),
    ] = 0,
) -> None:
    """Find a server's settings for recorded traffic, in virtual time.

    Searches strategy, slots, chunk, step tokens, windows and slot shares for the highest rate that
    keeps 95 % of every lane inside its budget, and checks the answer on windows of the trace that
    it was not chosen by, and on the live model if there is one. Writes headway.yaml with the
    evidence, and prints vLLM's arguments.

    With --pipeline: sizes, windows and processes of its stages, for the highest rate that keeps
    95 % of the workflows inside the whole deadline.

    Examples: headway tune --cost cost.json --lanes lanes.yaml;
    headway tune --pipeline stages.yaml
    """
    if pipeline is not None:
        from headway.commands.tune.pipeline.options import PipelineOptions
        from headway.commands.tune.pipeline.tune_pipeline import run_tune_pipeline

        _check_only_of_pipelines(context)
        asked = PipelineOptions(
            pipeline=pipeline,
            trace=_one_trace(trace or []),
            processes=processes,
            requests=requests,
            seed=seed,
            workers=workers,
            out=out or Path("tuned-pipeline.yaml"),
            json=json,
        )
        raise typer.Exit(run_tune_pipeline(asked, screen()))
    if processes:
        raise SettingError("--processes goes with --pipeline")
    if find_spec("pydantic_settings") is None:
        raise SettingError("headway tune writes a server's settings: pip install 'headway[server]'")
    from headway.commands.tune.options import TuneOptions
    from headway.commands.tune.tune import run_tune

    options = TuneOptions(
        cost=cost,
        model=model,
        traces=tuple(trace or ()),
        lanes=lanes,
        rate=rate,
        requests=requests,
        token_scale=token_scale,
        seed=seed,
        workers=workers,
        out=out or Path("headway.yaml"),
        json=json,
        live=live,
    )
    raise typer.Exit(run_tune(options, screen()))


def _check_only_of_pipelines(context: typer.Context) -> None:
    """SettingError for an option that means nothing to a pipeline."""
    for name in context.params:
        source = context.get_parameter_source(name)
        given = source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")
        if given and name not in OF_PIPELINES:
            raise SettingError(f"--{name.replace('_', '-')} does not go with --pipeline")


def _one_trace(traces: list[Path]) -> Path | None:
    if len(traces) > 1:
        raise SettingError("a pipeline has one trace of arrivals")
    return traces[0] if traces else None
