"""The command `headway check --config FILE`: whether the models of a server fit together here."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from headway.errors import MemoryPlanError
from headway.executor.torch.memory.memory_plan import human_bytes
from headway.server.config.config import ServerConfig
from headway.server.config.validate import check_files, check_memory, checkpoint_folder, shares_of


def run_check_together(path: Path, as_json: bool, console: Console) -> int:
    """Print what each model may take. Returns 0 if all fit, else 1, with the reason printed.

    Raises HeadwayError if the file, or something it names, is wrong.
    """
    config = ServerConfig.load(path)
    notes, shares, reason = check_files(config), dict[str, int](), ""
    try:
        shares = shares_of(config, checkpoint_folder)
        check_memory(config)
    except MemoryPlanError as error:
        reason = str(error)
    if as_json:
        report = {"fits": not reason, "reason": reason, "models": shares}
        console.file.write(json.dumps(report) + "\n")
        return int(bool(reason))
    if shares:
        console.print(_table(path.name, shares))
    for note in notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if reason:
        console.print(reason, highlight=False, markup=False, soft_wrap=True)
    return int(bool(reason))


def _table(name: str, shares: dict[str, int]) -> Table:
    table = Table("model", "memory that it may take", title=name, title_justify="left")
    for model, share in shares.items():
        table.add_row(model, human_bytes(share) if share else "all that is free: it is alone")
    return table
