"""`headway generate`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import Dtype, Model, Quantize


def generate(
    prompts: Annotated[list[str], typer.Argument(help="One or more prompts, batched together.")],
    model: Model = None,
    dtype: Dtype = "",
    quantize: Quantize = "",
    max_tokens: Annotated[
        int, typer.Option(metavar="N", help="Most tokens to generate, per prompt.")
    ] = 128,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="0: always the likeliest token.")
    ] = 0.0,
    top_p: Annotated[
        float,
        typer.Option(metavar="P", help="Sample from the likeliest tokens that make up this share."),
    ] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Same seed, same text, whatever else is in the batch."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End the answer before this text. May be repeated."),
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Use the model's chat template.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per prompt.")] = False,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A new file that records all the engine does, with prompts and answers.",
        ),
    ] = None,
) -> None:
    """Answer prompts offline, all in one batch.

    If a prompt fails, the others are still answered: its error is printed, and the exit status
    is 1.

    Example: headway generate "The json module" "A list is" --temperature 0.8
    """
    from headway.llm.llm import LLM
    from headway.llm.options import Options
    from headway.llm.request_builder import Ask
    from headway.text.tokenizer import Message

    options = Options(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    with LLM(model, dtype=dtype, quantize=quantize, journal=journal) as llm:
        print(llm.memory, file=sys.stderr)
        inputs: list[Ask] = [
            [Message(role="user", content=prompt)] if chat else prompt for prompt in prompts
        ]
        answers = llm.generate(inputs, options)
    for prompt, done in zip(prompts, answers, strict=True):
        if as_json:
            row = {"prompt": prompt, "text": done.text, "finish": done.finish}
            row["error"] = str(done.error or "")
            print(json.dumps({**row, "tokens": done.tokens, "row": asdict(done.row)}))
        elif not done.error:
            print(done.text if chat else prompt + done.text)
        if done.error:
            print(f"headway: {_shortened(prompt)}: {done.error}", file=sys.stderr)
    if any(done.error for done in answers):
        raise typer.Exit(1)


def _shortened(prompt: str) -> str:
    """The prompt as an error message names it."""
    return repr(prompt if len(prompt) <= 40 else prompt[:37] + "...")
