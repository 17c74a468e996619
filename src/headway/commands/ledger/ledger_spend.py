"""`headway ledger spend`: what requests cost, by lane, tenant, version or prompt version."""

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from headway.commands.ledger.analysis import LedgerAnalysis
from headway.errors import SettingError

GROUPS = ("lane", "tenant", "version", "prompt_version", "key", "model")
ACCOUNTS = ("requests", "waste", "idle", "open", "unrecorded")
UNPRICED = (
    "Device time has cost nothing, because no price per hour was set: prices.per_hour of "
    "headway.yaml, for the requests to come."
)
NONE = "-"  # for a cost per unit if there are no units


@dataclass(frozen=True, slots=True)
class SpendRow:
    """The spend of one lane, tenant, version, ... Costs in units of currency."""

    group: str
    n: int  # requests
    good: int  # requests that ended inside every limit of their lane
    resolved: int  # requests and workflows with the outcome label
    device_cost: float  # of the requests' shares of steps
    charged: float
    per_good: float | None  # device cost
    per_resolved: float | None


@dataclass(frozen=True, slots=True)
class AccountRow:
    """The time and cost of one account, over all servers."""

    account: str
    nanoseconds: int
    cost: float


def run_spend(where: str, by: str, label: str, as_json: bool, console: Console) -> int:
    """Print the tables, or JSON; return exit status 0. Raises SettingError."""
    if by not in GROUPS:
        raise SettingError(f"--by is one of {', '.join(GROUPS)}, not {by!r}")
    analysis = LedgerAnalysis(where)
    rows, accounts = spend_rows(analysis, by, label), account_rows(analysis)
    analysis.close()
    if as_json:
        found = {"by": by, "label": label, "rows": [asdict(each) for each in rows]}
        print(json.dumps({**found, "accounts": [asdict(each) for each in accounts]}))
        return 0
    console.print(_spend_table(rows, by, label))
    console.print(_account_table(accounts, sum(row.good for row in rows)))
    if any(each.nanoseconds for each in accounts) and not any(each.cost for each in accounts):
        console.print(UNPRICED)
    return 0


def spend_rows(analysis: LedgerAnalysis, by: str, label: str) -> list[SpendRow]:
    """A row per group, the most expensive first. A workflow counts once in each group that has
    one of its requests."""
    _, found = analysis.query(
        f"""
        WITH labelled AS (
            SELECT tenant, kind, subject FROM outcomes WHERE label = ?
        ), done AS (
            SELECT
                r."{by}" AS grouped, count(DISTINCT (l.tenant, l.kind, l.subject)) AS resolved
            FROM requests r JOIN labelled l ON r.tenant = l.tenant AND (
                (l.kind = 'request' AND l.subject = r.call)
                OR (l.kind = 'workflow' AND l.subject = r.workflow)
            )
            GROUP BY 1
        )
        SELECT
            CAST("{by}" AS VARCHAR), count(*), count(*) FILTER (WHERE good),
            coalesce(any_value(done.resolved), 0), sum(device_money), sum(charged)
        FROM requests LEFT JOIN done ON done.grouped = requests."{by}"
        GROUP BY "{by}" ORDER BY sum(device_money) DESC, 1
        """,
        [label],
    )
    return [
        SpendRow(
            group or "(none)",
            n,
            good,
            resolved,
            int(device) / 1e9,
            int(charged) / 1e9,
            int(device) / 1e9 / good if good else None,
            int(device) / 1e9 / resolved if resolved else None,
        )
        for group, n, good, resolved, device, charged in found
    ]


def account_rows(analysis: LedgerAnalysis) -> list[AccountRow]:
    """Where all device time went, by account. The rows sum to it exactly."""
    _, found = analysis.query(
        "SELECT account, sum(nanoseconds), sum(money) FROM minutes GROUP BY 1"
    )
    sums = {account: (int(ns), int(money)) for account, ns, money in found}
    return [
        AccountRow(each, sums[each][0], sums[each][1] / 1e9) for each in ACCOUNTS if each in sums
    ]


def _spend_table(rows: list[SpendRow], by: str, label: str) -> Table:
    table = Table(title=f"device cost by {by}", title_justify="left", width=80)
    table.add_column(by, overflow="fold")
    for name in ("n", "good", label, "cost", "charged", "per good", f"per {label}"):
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        costs = (row.device_cost, row.charged, row.per_good, row.per_resolved)
        counts = (str(row.n), str(row.good), str(row.resolved))
        table.add_row(row.group, *counts, *[money_text(each) for each in costs])
    return table


def _account_table(accounts: list[AccountRow], good: int) -> Table:
    total = sum(each.nanoseconds for each in accounts)
    cost = sum(each.cost for each in accounts)
    table = Table(title="all device time", title_justify="left", width=80)
    table.add_column("account")
    for name in ("seconds", "share", "cost"):
        table.add_column(name, justify="right")
    for each in accounts:
        part = f"{each.nanoseconds / total:.1%}" if total else NONE
        seconds = f"{each.nanoseconds / 1e9:,.3f}"
        table.add_row(each.account, seconds, part, money_text(each.cost))
    table.add_section()
    table.add_row("all", f"{total / 1e9:,.3f}", "100.0%", money_text(cost))
    whole = money_text(cost / good) if good else NONE
    table.add_row("per good request, waste and idle included", "", "", whole)
    return table


def money_text(amount: float | None) -> str:
    """Format an amount: below 100 with three significant digits, else with two decimals."""
    if amount is None:
        return NONE
    return f"{amount:,.2f}" if amount >= 100 else f"{amount:.3g}"
