"""The banner that `headway serve` prints when it is ready, within 80 columns."""

from collections.abc import Sequence

from headway import __version__
from headway.server.config.config import ServerConfig
from headway.server.config.durations import format_duration
from headway.server.engine.messages import Welcome

LIMITS = ("ttft", "tpot", "e2e", "queue")


def served_at(host: str, port: int) -> str:
    """The base URL that clients are given."""
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def banner(config: ServerConfig, welcomes: Sequence[Welcome], port: int) -> str:
    """The banner: version, models, URL, lanes with their budgets, notes, and memory. Warnings are
    printed separately. welcomes: the engines', in the order of the file."""
    if config.is_one and welcomes:
        (welcome,) = welcomes
        name = config.model.served_name
        head = [f"headway {__version__} serves {name} ({welcome.dtype}, {welcome.device})"]
        memory = [f"  {line}" for line in welcome.memory.splitlines()]
    else:
        names = ", ".join(model.served_name for model in config.models)
        kinds = {"model": len(config.entries), "function": len(config.functions)}
        many = " and ".join([_several(count, kind) for kind, count in kinds.items() if count])
        head = [f"headway {__version__} serves {names if len(config.models) == 1 else many}"]
        memory = _entries(config, welcomes)
    return "\n".join(
        [
            *head,
            f"  on {served_at(config.server.host, port)}",
            *_lanes(config),
            *[f"  {note}" for note in config.all_notes],
            *memory,
        ]
    )


def _several(count: int, kind: str) -> str:
    return f"{count} {kind}s" if count > 1 else f"1 {kind}"


def _entries(config: ServerConfig, welcomes: Sequence[Welcome]) -> list[str]:
    """A line for each engine and function. Below each engine: how it uses its memory."""
    lines, remaining = list[str](), iter(welcomes)
    for model in config.models:
        if model.function:
            lines.append(f"  {model.served_name}: the function {model.function}")
            continue
        for name in model.engine_names:
            welcome = next(remaining)
            lines.append(f"  {name}: {welcome.model} ({welcome.dtype}, {welcome.device})")
            lines += [f"    {line}" for line in welcome.memory.splitlines()]
    return lines


def _lanes(config: ServerConfig) -> list[str]:
    rows: list[tuple[str, ...]] = [("lane", *LIMITS)]
    for name, lane in config.lanes.items():
        rows.append((name, *[format_duration(getattr(lane, limit)) for limit in LIMITS]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        line = "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)])
        mark = "  (default)" if row[0] == config.default_lane else ""
        lines.append(f"  {line}{mark}".rstrip())
    return lines
