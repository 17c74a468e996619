"""Show the recommended stages, and write them to a file whose comments hold the evidence."""

from pathlib import Path
from textwrap import wrap

import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.commands.output_file import replacing
from headway.commands.tune.pipeline.found import Found, said
from headway.commands.tune.tune_report import FIRST_LINE, WIDTH, write_json
from headway.pipelines.simulated.plan import read_plan


def keep(found: Found, path: Path, json_path: Path | None) -> None:
    """Write the file whole or not at all, once it could be read back; and the JSON if wanted."""
    body = yaml.safe_dump(found.plan.plain, sort_keys=False, default_flow_style=None, width=100)
    with replacing(path) as beside:
        beside.write_text(f"{_comments(found)}\n{body}", encoding="utf-8")
        read_plan(beside)
    if json_path is not None:
        write_json(found.as_json(), json_path)


def _comments(found: Found) -> str:
    lines = [f"{FIRST_LINE[2:]} --pipeline, seed {found.seed}: {found.headline()}", *found.about()]
    lines.append(f"Tuning windows: {said(found.best)}.")
    for name, rated in found.held.items():
        lines.append(f"Held-out windows, {name}: {said(rated)}.")
    return "\n".join(f"# {part}" for line in lines for part in wrap(line, WIDTH))


def show(found: Found, console: Console) -> None:
    """Print the answer first, then the evidence, in 80 columns."""
    console.print(Text(found.headline(), "bold"))
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("stage", overflow="fold")
    for column in ("size", "window ms", "processes"):
        table.add_column(f" {column}", justify="right", no_wrap=True)
    sizings = found.sizings.values()
    for stage, new, old in zip(found.plan.stages, *sizings, strict=True):
        table.add_row(
            stage.name,
            _changed(f"{old.size}", f"{new.size}"),
            _changed(f"{1e3 * old.window:.3g}", f"{1e3 * new.window:.3g}"),
            _changed(f"{old.processes}", f"{new.processes}"),
        )
    console.print(table)
    for name, rated in found.held.items():
        console.print(Text(f"{name}: {said(rated)}."))
    for line in found.about():
        console.print(Text(line))


def _changed(old: str, new: str) -> str:
    return new if old == new else f" {old} -> {new}"
