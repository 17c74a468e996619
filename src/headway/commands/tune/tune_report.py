"""Show a recommendation, and write it as a headway.yaml whose comments hold the evidence."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.commands.output_file import check_not_input, check_replaceable, replacing
from headway.commands.simulate.capacity_text import INTERVAL
from headway.commands.tune.recommendation import CHOSEN, UNIT, Recommendation
from headway.commands.tune.site import read_back
from headway.errors import SettingError

FIRST_LINE = "# Made by headway tune"
FIRST_OF_JSON = b'{\n "headway_tune'  # also of a pipeline's
WIDTH = 98  # of a comment
ROOM = 32  # letters of the table's last column, on 80 columns


def check_outs(path: Path, json_path: Path | None, inputs: Sequence[Path] = ()) -> None:
    """Raise SettingError if a file cannot be written, is an input, or is there and not from
    headway tune."""
    if json_path is not None and not json_path.parent.is_dir():
        raise SettingError(f"there is no folder {json_path.parent} for {json_path.name}")
    if not path.parent.is_dir():
        raise SettingError(f"there is no folder {path.parent} for {path.name}")
    if json_path is not None and json_path.resolve() == path.resolve():
        raise SettingError(f"--out and --json are both {path}: name two files")
    for each in (path, json_path):
        if each is not None and each.is_dir():
            raise SettingError(f"{each} is a folder: name a file in it")
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(
        FIRST_LINE
    ):
        raise SettingError(f"{path} is there already, and not by headway tune: name another --out")
    check_not_input(path, "--out", inputs)
    if json_path is not None:
        check_not_input(json_path, "--json", inputs)
        check_replaceable(json_path, "--json", [FIRST_OF_JSON], "by headway tune")


def keep(found: Recommendation, path: Path, json_path: Path | None) -> None:
    """Write headway.yaml, and the JSON if wanted."""
    write_config(found, path)
    if json_path is not None:
        write_json(found.as_json(), json_path)


def write_json(plain: Mapping[str, Any], path: Path) -> None:
    """Write the file whole or not at all; its first key is the one that `check_outs` looks for."""
    with replacing(path) as file:
        file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def write_config(found: Recommendation, path: Path) -> None:
    """Write the file whole or not at all, once the server's own reader has accepted it."""
    body = yaml.safe_dump(dict(found.plain), sort_keys=False, default_flow_style=None, width=100)
    with replacing(path) as beside:
        beside.write_text(f"{comments(found)}\n{body}", encoding="utf-8")
        read_back(beside)


def comments(found: Recommendation) -> str:
    """The evidence, as the file's first lines."""
    setting = found.setting
    lines = [f"Made by headway tune, seed {setting.seed}: {found.headline()}"]
    lines += [setting.about, setting.traffic, *setting.warnings]
    if not found.is_checked:
        lines.append("NOT CHECKED on other windows than those it was chosen by.")
    lines.append(f"Tuning windows: {found.said(found.tuned)}.")
    for name, rated in found.held.items():
        settings = "" if name == CHOSEN else f" ({found.others[name].text})"
        lines.append(f"Held-out windows, {name}{settings}: {found.said(rated)}.")
        at = f"{rated.score.rate:.3g} {UNIT}"
        lines.append(f"  Attainment at {at}: {found.attained(rated.score)}.")
    lines += found.live_lines()
    lines.append(f"Rule of thumb: {found.rule_text()}.")
    lines.append(
        "Longest legal wait (budget - service - what is left of the running step or group):"
    )
    lines += [f"  {found.wait_text(each)}" for each in found.waits]
    lines.append(f"vLLM: {found.vllm.line}")
    lines += [f"  vLLM has no argument for {each}." for each in found.vllm.without]
    return "\n".join(part for line in lines for part in _commented(line))


def _commented(line: str) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return [f"# {part}" for part in wrap(line, WIDTH, subsequent_indent=indent + "  ")]


def show(found: Recommendation, console: Console) -> None:
    """Print the answer first, then the evidence, in 80 columns."""
    console.print(Text(found.headline(), "bold"))
    for warning in found.setting.warnings:
        console.print(Text(warning, style="yellow"))
    if found.held:
        console.print(_table(found))
    for line in found.live_lines():
        console.print(Text(line, style="yellow" if found.live.broken else ""))
    console.print(Text(f"Rule of thumb: {found.rule_text()}."))
    console.print(Text("Longest legal wait, budget - service - what is left of the running:"))
    for each in found.waits:
        console.print(Text(f"  {found.wait_text(each)}"))
    console.print(Text(f"vLLM: {found.vllm.line}"))
    if found.vllm.without:
        console.print(Text(f"vLLM has no argument for: {'; '.join(found.vllm.without)}."))


def _table(found: Recommendation) -> Table:
    at_rate = bool(found.setting.rate)
    title = f"Held-out windows, {f'at {found.setting.rate:.3g} {UNIT}' if at_rate else UNIT}"
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0
    )
    table.add_column("settings", no_wrap=True)
    columns = ("device-ms", "n") if at_rate else ("capacity", INTERVAL, "n")
    for column in columns:
        table.add_column(f" {column}", justify="right", no_wrap=True)
    table.add_column(" lanes inside their budgets", overflow="fold")
    for name, rated in found.held.items():
        sure = rated.found.sure
        figures = (
            [f"{1e3 * rated.score.cost:.3g}"]
            if at_rate
            else [f"{rated.rate:.3g}", f" {sure.low:.3g} to {sure.high:.3g}"]
        )
        lanes = in_lines(found.attained(rated.score))
        row = [name, *figures, f" {sure.counted:,}", f" {lanes}"]
        table.add_row(*(Text(cell) for cell in row))
    return table


def in_lines(lanes: str) -> str:
    """The shares of lanes, a line each if they are too many for one: else a line would end between
    a number and its %."""
    return lanes if len(lanes) <= ROOM else lanes.replace(", ", ",\n ")
