"""Commands that run a model here: demo, compare, check, generate."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.app import (
    MEASURE,
    SERVE,
    Baseline,
    Lanes,
    Load,
    Model,
    Rate,
    Seconds,
    Strategies,
    TokenScale,
    Traces,
    app,
)


@app.command(rich_help_panel=MEASURE)
def demo(
    model: Model = None,
    out: Annotated[Path, typer.Option(help="Folder for report.json.")] = Path("headway-demo"),
    seconds: Annotated[
        float, typer.Option(min=5, max=600, help="Of arrivals, for each strategy.")
    ] = 40.0,
    seed: Annotated[int, typer.Option(min=0, help="Of prompts and arrivals.")] = 0,
) -> None:
    """Serve recorded traffic under static, dynamic and continuous batching, and compare.

    Four endpoints share one model: inline completion and support drafts from recorded Azure
    traffic, a sparse voice endpoint, and a backlog of nightly labelling. Prints, endpoint by
    endpoint, what each strategy bought and what it cost; report.json keeps the raw rows.
    """
    from headway.commands.demo import run_demo

    raise typer.Exit(run_demo(model, out, seconds, seed, Console()))


@app.command(rich_help_panel=MEASURE)
def compare(
    model: Model = None,
    trace: Traces = None,
    lanes: Lanes = None,
    strategies: Strategies = "",
    seconds: Seconds = 45.0,
    rate: Rate = 0.0,
    load: Load = 0.0,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each, for the spread.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of prompts and arrivals.")] = 0,
    baseline: Baseline = "",
    price_per_hour: Annotated[float, typer.Option(min=0, help="Of the machine.")] = 1.0,
    token_scale: TokenScale = 8.0,
    journals: Annotated[
        Path | None, typer.Option(help="An empty folder: each run leaves its journal there.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("headway-compare"),
) -> None:
    """Serve your traffic under every strategy: report.html and report.json say what each did.

    All see the same arrivals, prompts and lengths. Without options: the embedded model and the
    demo's four endpoints, in a quarter of an hour. The report shows latency per endpoint, cost per
    strategy, and a card of what each relieved and what it created.

    Example: headway compare --trace mine.csv --strategies static,dynamic-lanes,continuous-chunk-128
    """
    from headway.commands.compare.compare import Asked, run_compare

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
        journals=journals,
        out=out,
    )
    raise typer.Exit(run_compare(asked, Console()))


@app.command(rich_help_panel=SERVE)
def check(
    model: Annotated[
        str | None,
        typer.Argument(help="A checkpoint's folder or hub id. Default: the embedded headway-tiny."),
    ] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Of a request. Default: 512.")] = None,
    answer_tokens: Annotated[int | None, typer.Option(help="Of a request. Default: 128.")] = None,
    dtype: Annotated[
        str,
        typer.Option(help="float32 or bfloat16. Default: as stored, if this CPU is quick at it."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Would this checkpoint run here? Or why not; its KV memory, and the largest batch.

    Reads config.json and the headers of the weights, nothing more; of a hub id whose weights are
    not here, it fetches config and tokenizer files alone, and says so. Exit status: 0, it would
    run; 1, it would not, with every reason; 2, what was asked is broken.
    """
    from headway.commands.check import run_check

    raise typer.Exit(run_check(model, prompt_tokens, answer_tokens, dtype, as_json, Console()))


@app.command(rich_help_panel=SERVE)
def generate(
    prompts: Annotated[list[str], typer.Argument(help="One or more prompts, batched together.")],
    model: Model = None,
    max_tokens: Annotated[int, typer.Option(help="Generated at most, per prompt.")] = 128,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token.")] = 0.0,
    top_p: Annotated[
        float, typer.Option(help="Of the likeliest tokens, those that make up this share.")
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Same seed, same text, in any company.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A string that ends the text.")] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Through the model's chat template.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per prompt.")] = False,
    journal: Annotated[
        Path | None,
        typer.Option(help="A new file that keeps all the engine did; prompts and answers too."),
    ] = None,
) -> None:
    """Answer prompts offline, all in one batch.

    A prompt that fails costs the others nothing: its error is printed, and the exit status is 1.

    Example: headway generate "The json module" "A list is" --temperature 0.8
    """
    from headway.answer import Options
    from headway.llm import LLM, Ask
    from headway.text import Message

    options = Options(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    with LLM(model, journal=journal) as llm:
        print(llm.memory, file=sys.stderr)
        asked: list[Ask] = [
            [Message(role="user", content=prompt)] if chat else prompt for prompt in prompts
        ]
        answers = llm.generate(asked, options)
    for prompt, done in zip(prompts, answers, strict=True):
        if as_json:
            row = {"prompt": prompt, "text": done.text, "finish": done.finish}
            row["error"] = str(done.error or "")
            print(json.dumps({**row, "tokens": done.tokens, "row": asdict(done.row)}))
        elif not done.error:
            print(done.text if chat else prompt + done.text)
        if done.error:
            print(f"headway: {_short(prompt)}: {done.error}", file=sys.stderr)
    if any(done.error for done in answers):
        raise typer.Exit(1)


def _short(prompt: str) -> str:
    """As a message names it."""
    return repr(prompt if len(prompt) <= 40 else prompt[:37] + "...")
