"""`headway check`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import AsJson, Dtype, Quantize
from headway.cli.screen import screen
from headway.errors import SettingError


def check(
    model: Annotated[
        str | None,
        typer.Argument(help="A checkpoint's folder or hub id. Default: the embedded headway-tiny."),
    ] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Tokens of a request's prompt. Default: 512, or what the context leaves.",
        ),
    ] = None,
    answer_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Tokens of a request's answer. Default: 128, or what the context leaves.",
        ),
    ] = None,
    dtype: Dtype = "",
    quantize: Quantize = "",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Check whether the models of this server's file fit together."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a checkpoint runs here: why not, its KV memory, and the largest batch.

    Reads the checkpoint's small files and the headers of the weights, nothing more. For a hub id
    whose weights are not here, it fetches only the config and tokenizer files, and says so. Exit
    status: 0 if the checkpoint would run; 1 if not, with every reason; 2 if the question itself is
    wrong.

    With --config it says what memory each model of a server may take, and which do not fit.

    Example: headway check ./my-model --answer-tokens 256
    """
    if config:
        if model or dtype or quantize or prompt_tokens is not None or answer_tokens is not None:
            raise SettingError("--config has its own models: nothing but --json goes with it")
        from headway.commands.check_together import run_check_together

        raise typer.Exit(run_check_together(config, as_json, screen()))
    from headway.commands.check import run_check
    from headway.executor.precision import with_quantize

    precision = with_quantize(dtype, quantize)
    raise typer.Exit(run_check(model, prompt_tokens, answer_tokens, precision, as_json, screen()))
