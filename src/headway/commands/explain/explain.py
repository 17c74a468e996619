"""`headway explain`: where one request's time went, from a running server or a ledger."""

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from rich.console import Console
from rich.table import Table

from headway.commands.ledger.ledger_spend import money_text
from headway.commands.server_answers import refusal, unreachable
from headway.errors import SettingError
from headway.report.formatting import duration

KEY = "HEADWAY_API_KEY"
PATIENCE = 10.0  # seconds
OBJECT = "request.explanation"  # the type of the server's answer


def run_explain(id: str, url: str, ledger: str, as_json: bool, console: Console) -> int:
    """Print the explanation; return exit status 0. Raises SettingError."""
    if url and ledger:
        raise SettingError("--url asks a server and --ledger a store: give one of them")
    found = from_ledger(id, ledger) if ledger else from_server(id, url)
    if as_json:
        print(json.dumps(found))
        return 0
    _show(found, console)
    return 0


def from_server(id: str, url: str) -> dict[str, Any]:
    """The answer of GET /v1/requests/{id}, sent with $HEADWAY_API_KEY. Raises SettingError."""
    base = url.rstrip("/").removesuffix("/v1")
    try:
        asked = Request(f"{base}/v1/requests/{quote(id, safe='')}")
        if key := os.environ.get(KEY):
            asked.add_header("authorization", f"Bearer {key}")
        with urlopen(asked, timeout=PATIENCE) as answer:
            found = json.load(answer)
    except HTTPError as error:
        raise SettingError(f"{base}: {refusal(error, f'${KEY}')}") from None
    except (URLError, HTTPException, OSError, ValueError, RecursionError) as error:
        raise SettingError(f"{base} cannot be asked: {unreachable(error)}") from None
    if not isinstance(found, dict) or found.get("object") != OBJECT:
        raise SettingError(f"{base} does not answer as a server of headway does")
    return found


def from_ledger(id: str, where: str) -> dict[str, Any]:
    """The explanation from the ledger's rows, of any tenant. Raises SettingError."""
    try:
        from headway.server.ledger.explanation import explanation
        from headway.store.ledger.reading import LedgerReader, rows_of_call
    except ModuleNotFoundError as missing:
        raise SettingError(
            f"reading a ledger needs {missing.name}: pip install 'headway[server,ledger]'"
        ) from missing
    reader = LedgerReader(where)
    with reader.begin() as connection:
        rows = rows_of_call(connection, id)
    reader.close()
    if not rows:
        raise SettingError(f"there is no request {id[:200]!r} in the ledger {reader.name}")
    return explanation(rows)


def _show(found: dict[str, Any], console: Console) -> None:
    about = [found["id"], f"lane {found['lane'] or '-'}", found["model"], found["operation"]]
    console.print(" ".join([each for each in about if each]), highlight=False)
    if found["status"] != "ended":
        told = _promised(found["promised_ms"])
        said = f"{found['status']} for {found['age_ms']:g} ms; promised: {told}"
        return console.print(said, highlight=False)
    for choice in found["choices"]:
        console.print(_stage_table(choice))
        for line in _lines(choice, found["code"]):
            console.print(line, highlight=False)


def _stage_table(choice: dict[str, Any]) -> Table:
    wall = choice["wall_ns"]
    table = Table(title=f"{choice['id']}: {duration(wall)}", title_justify="left", width=80)
    table.add_column("stage", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("what")
    for each in choice["stages"]:
        part = f"{each['ns'] / wall:.1%}" if wall else ""
        table.add_row(each["stage"], duration(each["ns"]), part, each["what"])
    return table


def _promised(ms: dict[str, float | None]) -> str:
    """What was promised, in words. A vector has no first token."""
    times = ("first token in", ms.get("first")), ("end within", ms.get("end"))
    return ", ".join([f"{what} {each} ms" for what, each in times if each is not None]) or "nothing"


def _lines(choice: dict[str, Any], code: str | None) -> list[str]:
    tokens, cost = choice["tokens"], choice["cost"]
    ends = f"ended: {choice['finish']}{f' ({code})' if code else ''}"
    ends += ", inside its budget" if choice["good"] else ", not inside its budget"
    if choice["relegated"]:
        ends += ", relegated"
    if choice["preemptions"]:
        ends += f", preempted {choice['preemptions']} times"
    ran = [f"{e['lane']} {e['rows']} rows ({e['tokens']} tokens)" for e in choice["ran_before"]]
    is_unpriced = choice["device_ns"] and not cost["device"]
    device = "no price per hour" if is_unpriced else money_text(cost["device"])
    return [
        ends,
        f"ran while it waited: {', '.join(ran) or 'nothing'}",
        f"promised: {_promised(choice['promised_ms'])}",
        "tokens: " + ", ".join([f"{count} {name}" for name, count in tokens.items()]),
        f"cost: device {device} ({duration(choice['device_ns'])}), "
        f"charged {money_text(cost['charged'])}",
    ]
