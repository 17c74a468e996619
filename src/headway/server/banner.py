"""The banner that `headway serve` prints when it is ready, within 80 columns."""

from headway import __version__
from headway.server.config.config import ServerConfig
from headway.server.config.durations import format_duration
from headway.server.engine.messages import Welcome

LIMITS = ("ttft", "tpot", "e2e", "queue")


def served_at(host: str, port: int) -> str:
    """The base URL that clients are given."""
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def banner(config: ServerConfig, welcome: Welcome, port: int) -> str:
    """Version, model, URL, lanes with their budgets, notes, and memory; warnings are printed
    apart."""
    name = config.model.served_name
    lines = [
        f"headway {__version__} serves {name} ({welcome.dtype}, {welcome.device})",
        f"  on {served_at(config.server.host, port)}",
        *_lanes(config),
        *[f"  {note}" for note in config.notes],
        *[f"  {line}" for line in welcome.memory.splitlines()],
    ]
    return "\n".join(lines)


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
