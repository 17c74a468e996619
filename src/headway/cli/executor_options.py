"""`--executor` and `--vllm`, which several commands share."""

from typing import Annotated, Any

import typer
import yaml

from headway.errors import SettingError
from headway.yaml_values import load_yaml

Executor = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What computes: torch, headway's own executor, or vllm, vLLM's workers. Default: "
        "torch.",
        show_default=False,
    ),
]
Vllm = Annotated[
    list[str] | None,
    typer.Option(
        "--vllm",
        metavar="NAME=VALUE",
        help="An argument of vLLM's engine, by its own name, such as tensor_parallel_size=2. "
        "Repeat the option for more.",
    ),
]


def read_vllm(given: list[str] | None) -> dict[str, Any]:
    """The arguments by name; values are read as YAML. SettingError for one without a value."""
    arguments = dict[str, Any]()
    for each in given or ():
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise SettingError(f"--vllm must be NAME=VALUE, not {each!r}")
        try:
            arguments[name.replace("-", "_")] = load_yaml(value)
        except yaml.YAMLError:
            raise SettingError(f"--vllm {name}: {value!r} is not a value") from None
    return arguments
