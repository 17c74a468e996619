"""`headway ledger` and `headway explain`, on the ledger of a server that has run."""

import json
import os
import re
import socket
import subprocess
import sys
import threading

import httpx2
import pytest
from sqlalchemy import create_engine
from typer.testing import CliRunner

from headway.cli import app
from headway.commands.explain.explain import from_server
from headway.commands.ledger import analysis
from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.store.ledger.ledger_tables import METADATA, OUTCOMES, REQUESTS
from tests.server.running_server import fake, serving, until

PRICES = {"per_hour": 3.6, "per_million_prompt": 1.0, "per_million_answer": 2.0}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """A ledger with six requests of two prompt versions, and three outcomes."""
    where = str(tmp_path_factory.mktemp("ledger") / "ledger.db")
    config = ServerConfig(ledger={"url": where, "flush": "50ms"}, prices=PRICES)
    with serving(config, fake) as (url, front), httpx2.Client(base_url=url) as client:
        ids = []
        for number in range(6):
            said = {"x-headway-prompt-version": f"v{number % 2}", "x-headway-workflow": "w"}
            said |= {"x-request-id": f"mine-{number}"}
            body = {"prompt": "def f(", "max_tokens": 2 + number, "ignore_eos": True}
            ids.append(client.post("/v1/completions", json=body, headers=said).json()["id"])
        until(lambda: front.ledger.writers[0].written == 6)
        for id in (ids[0], ids[2]):
            client.post("/v1/outcomes", json={"request": id, "label": "resolved"})
        client.post("/v1/outcomes", json={"workflow": "w", "label": "accepted", "value": 2})
        asked = from_server(ids[0], f"{url}/v1")
        with pytest.raises(SettingError, match="there is no request 'nothing' of yours"):
            from_server("nothing", url)
    return where, ids, asked


def run(*given, columns="80"):
    return CliRunner().invoke(app, list(map(str, given)), env={"COLUMNS": columns})


@pytest.mark.parametrize(
    "said, why",
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "cannot be asked: SSH-2.0"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}", "cannot be asked: IncompleteRead"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 99\r\n\r\n{}", "status 500"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", "does not answer as a server of head"),
        (
            b'HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{"a":1}',
            "does not answer as a server of head",
        ),
    ],
)
def test_explain_refuses_an_answer_that_no_headway_server_gives(said, why):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            with listening.accept()[0] as connection:
                connection.recv(9_999)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SettingError, match=why):
            from_server("x", f"http://127.0.0.1:{listening.getsockname()[1]}")
        thread.join()


def test_explain_says_of_a_call_that_runs_what_it_was_promised():
    about = {"id": "cmpl-1", "object": "request.explanation", "status": "running", "lane": "chat"}
    about |= {"model": "m", "operation": "chat", "age_ms": 800.0}
    body = json.dumps(about | {"promised_ms": {"first": 120.5, "end": 3400.0}}).encode()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            with listening.accept()[0] as connection:
                connection.recv(9_999)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        text = run("explain", "cmpl-1", "--url", url).stdout
        thread.join()
    said = " ".join(text.split())
    assert "running for 800 ms; promised: first token in 120.5 ms, end within 3400.0 ms" in said


@pytest.mark.parametrize("url", ["http://127.0.0.1:80x", "nonsense", "http://127.0.0.1:1 "])
def test_explain_refuses_a_url_that_is_invalid(url):
    with pytest.raises(SettingError, match="cannot be asked: "):
        from_server("x", url)


def test_spend_shows_the_requests_outcomes_and_costs_of_each_group(ledger):
    where, _, _ = ledger
    done = run("ledger", "spend", "--ledger", where, "--by", "prompt_version", "--json")
    found = json.loads(done.stdout)
    rows = {row["group"]: row for row in found["rows"]}
    assert (rows["v0"]["n"], rows["v0"]["resolved"], rows["v1"]["resolved"]) == (3, 2, 0)
    assert rows["v0"]["per_resolved"] == pytest.approx(rows["v0"]["device_cost"] / 2)
    assert rows["v0"]["per_good"] == pytest.approx(rows["v0"]["device_cost"] / 3)
    assert rows["v1"]["per_resolved"] is None
    assert rows["v0"]["charged"] == pytest.approx(2e-6 * (2 + 4 + 6), abs=2e-5)
    accounts = {each["account"]: each["nanoseconds"] for each in found["accounts"]}
    assert accounts["requests"] > 0 and accounts["open"] == 0
    text = run("ledger", "spend", "--ledger", where, "--by", "lane", "--label", "accepted").stdout
    assert "accepted" in text and "standard" in text and "idle" in text
    assert "no price per hour" not in text
    assert max(map(len, text.splitlines())) <= 80
    (row,) = [line for line in text.splitlines() if "standard" in line]
    cells = [cell.strip() for cell in row.split("│")]
    assert cells[1:5] == ["standard", "6", "6", "1"], "a workflow counts once"


def test_a_ledger_without_a_price_per_hour_says_so_where_costs_would_be(tmp_path):
    where = str(tmp_path / "ledger.db")
    config = ServerConfig(ledger={"url": where, "flush": "50ms"})
    with serving(config, fake) as (url, front):
        said = {"x-request-id": "mine"}
        body = {"prompt": "def f(", "max_tokens": 2, "ignore_eos": True}
        httpx2.post(f"{url}/v1/completions", json=body, headers=said)
        until(lambda: front.ledger.writers[0].written == 1)
    text = " ".join(run("ledger", "spend", "--ledger", where).stdout.split())
    assert "because no price per hour was set: prices.per_hour" in text
    assert "cost: device no price per hour (" in run("explain", "mine", "--ledger", where).stdout


@pytest.fixture
def tenants(tmp_path):
    """A ledger of two tenants. Their workflows have the same name, and both are resolved."""
    where = tmp_path / "tenants.db"
    database = create_engine(f"sqlite:///{where}")
    METADATA.create_all(database)
    columns = [each for each in REQUESTS.columns if not each.nullable]
    row = {each.name: "" if each.type.python_type is str else 0 for each in columns}
    row |= {"lane": "[/x]chat", "workflow": "order-1", "good": True, "relegated": False}
    row |= {"device_money": 10**9, "stages": "{}", "ran_before": "[]"}
    with database.begin() as connection:
        for tenant in ("acme", "[red]bell"):
            mine = {"id": tenant, "call": tenant, "tenant": tenant, "request_id": "\\N"}
            connection.execute(REQUESTS.insert().values(row | mine))
            said = {"tenant": tenant, "kind": "workflow", "subject": "order-1", "at": 1}
            connection.execute(OUTCOMES.insert().values(label="resolved", **said))
    database.dispose()
    return where


def test_spend_keeps_apart_two_tenants_workflows_of_the_same_name(tenants):
    done = run("ledger", "spend", "--ledger", tenants, "--by", "tenant", "--json")
    rows = {row["group"]: row for row in json.loads(done.stdout)["rows"]}
    assert {name: row["resolved"] for name, row in rows.items()} == {"acme": 1, "[red]bell": 1}
    done = run("ledger", "spend", "--ledger", tenants, "--by", "lane", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["n"], row["resolved"], row["per_resolved"]) == (2, 2, 1.0)


def test_names_are_printed_as_they_are_and_not_read_as_markup(tenants):
    for by, name in (("tenant", "[red]bell"), ("lane", "[/x]chat")):
        assert name in run("ledger", "spend", "--ledger", tenants, "--by", by).stdout
    sql = "SELECT lane AS \"[/head]\", tenant, ':fire:' FROM requests"
    text = run("ledger", "query", sql, "--ledger", tenants, columns="120").stdout
    assert all(each in text for each in ("[/head]", "[/x]chat", "[red]bell", ":fire:"))
    assert "[/x]chat" in run("explain", "[red]bell", "--ledger", tenants).stdout


@pytest.mark.parametrize(
    "first, end, said",
    [
        (2_500_000, 9_000_000, "promised: first token in 2.5 ms, end within 9.0 ms\n"),
        (None, 9_000_000, "promised: end within 9.0 ms\n"),
        (None, None, "promised: nothing\n"),
    ],
)
def test_explain_says_what_was_promised_and_no_more(tenants, first, end, said):
    """An embedding has no first token."""
    database = create_engine(f"sqlite:///{tenants}")
    promised = {"promised_first_ns": first, "promised_end_ns": end}
    with database.begin() as connection:
        connection.execute(REQUESTS.update().values(promised))
    database.dispose()
    assert said in run("explain", "acme", "--ledger", tenants).stdout


def test_a_value_that_would_control_the_terminal_is_escaped(tenants):
    sql = "SELECT 'a' || chr(155) || '31m' || chr(10) || chr(27) || '[2J' AS id"
    text = run("ledger", "query", sql, "--ledger", tenants).stdout
    assert r"a\x9b31m\n\x1b[2J" in text


def test_a_result_that_is_too_wide_for_the_screen_has_a_line_for_each_column(tenants):
    text = run("ledger", "query", "SELECT * FROM requests", "--ledger", tenants).stdout
    lines = [[each.strip() for each in line.split("│")] for line in text.splitlines()]
    assert [line for line in lines if line[0].startswith("row")] == [["row 1"], ["row 2"]]
    assert ["", "tenant", "[red]bell", ""] in lines and ["", "tenant", "acme", ""] in lines
    long = "sum(output_tokens) + sum(fresh_tokens) + sum(cached_tokens) + sum(discarded_tokens)"
    text = run("ledger", "query", f"SELECT {long}, 7.25 FROM requests", "--ledger", tenants).stdout
    assert "row 1" not in text and "7.25" in text


def names_of(ledger, **environment):
    """The tenants that `spend` names in a process with this environment."""
    given = "-m", "headway", "ledger", "spend", "--ledger", str(ledger), "--by", "tenant", "--json"
    done = subprocess.run(
        [sys.executable, *given],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
    )
    return {row["group"] for row in json.loads(done.stdout)["rows"]}


@pytest.mark.parametrize("name", ["größe", 'a "b", c', "a\r\nb"])
def test_names_are_read_as_they_are_with_any_locale_and_folder(tenants, tmp_path, name):
    database = create_engine(f"sqlite:///{tenants}")
    with database.begin() as connection:
        connection.execute(REQUESTS.update().values(tenant=name).where(REQUESTS.c.id == "acme"))
    database.dispose()
    folder = tmp_path / "it's here"
    folder.mkdir()
    ascii_only = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    assert names_of(tenants, TMPDIR=str(folder), **ascii_only) == {name, "[red]bell"}


def test_an_error_of_duckdb_while_it_copies_is_one_line(tenants, monkeypatch):
    monkeypatch.setattr(analysis, "VIEWS", {"requests": (REQUESTS, "no_such_column")})
    with pytest.raises(SettingError, match=r"tenants\.db cannot be copied to query it: .*no_such"):
        analysis.LedgerAnalysis(str(tenants))


def test_a_text_is_never_null_and_a_number_that_is_unknown_is(tenants):
    """Not even a text that stands for NULL elsewhere, nor an empty one."""
    sql = "SELECT DISTINCT request_id, code, ttft_ns IS NULL AS unknown FROM requests"
    done = run("ledger", "query", sql, "--ledger", tenants, "--json")
    assert json.loads(done.stdout) == {"request_id": "\\N", "code": "", "unknown": True}


def test_nan_and_infinity_are_null_in_json(tenants):
    sql = "SELECT 'nan'::DOUBLE AS a, ['inf'::DOUBLE, 1] AS b, {'x': '-inf'::DOUBLE} AS c, 2.5 AS d"
    done = run("ledger", "query", sql, "--ledger", tenants, "--json")
    assert json.loads(done.stdout) == {"a": None, "b": [None, 1.0], "c": {"x": None}, "d": "2.5"}


def test_queries_read_the_ledger_and_nothing_else(ledger, tmp_path):
    where, ids, _ = ledger
    sql = "SELECT lane, count(*) AS n, sum(output_tokens)::BIGINT AS t FROM requests GROUP BY 1"
    done = run("ledger", "query", sql, "--ledger", where, "--json")
    assert json.loads(done.stdout) == {"lane": "standard", "n": 6, "t": sum(range(2, 8))}
    assert ids[0] in run("ledger", "query", "SELECT call FROM requests", "--ledger", where).stdout
    times = "SELECT time, queue_ns, code FROM requests WHERE queue_ns IS NOT NULL AND code = ''"
    assert len(run("ledger", "query", times, "--ledger", where, "--json").stdout.splitlines()) == 6
    for bad, why in (
        (f"COPY requests TO '{tmp_path}/x.csv'", "the query fails"),
        ("SELECT * FROM read_csv('/etc/hostname')", "the query fails"),
        ("SELECT nothing FROM requests", "the query fails"),
        ("", "the query is empty"),
        ("/* nothing */", "the query is empty"),
    ):
        failed = run("ledger", "query", bad, "--ledger", where)
        assert isinstance(failed.exception, SettingError) and why in str(failed.exception)
    assert not list(tmp_path.iterdir())


def test_export_writes_parquet_and_refuses_an_unknown_view_or_a_missing_folder(ledger, tmp_path):
    import duckdb

    where, _, _ = ledger
    file = tmp_path / "ledger's.parquet"
    assert run("ledger", "export", "--ledger", where, "--to", file).exit_code == 0
    found = duckdb.connect().execute(
        "SELECT count(*), max(attempt) FROM read_parquet(?)", [str(file)]
    )
    assert found.fetchone() == (6, 0)
    wrong = run("ledger", "export", "--ledger", where, "--to", file, "--view", "keys")
    assert "--view is one of requests, minutes, outcomes" in str(wrong.exception)
    nowhere = run("ledger", "export", "--ledger", where, "--to", tmp_path / "no" / "a.parquet")
    assert "cannot be written" in str(nowhere.exception)


def test_an_export_replaces_a_parquet_file_but_no_other_file_and_not_the_ledger(ledger, tmp_path):
    where, _, _ = ledger
    mine = tmp_path / "mine.csv"
    mine.write_text("a,b")
    for to, why in (
        (where, "--to .* would replace the input"),
        (f"{where}-wal", "would replace the input"),
        (mine, "is there already, and not Parquet: name another --to"),
    ):
        failed = run("ledger", "export", "--ledger", where, "--to", to)
        assert failed.exit_code and re.search(why, str(failed.exception))
    assert mine.read_text() == "a,b"
    assert run("ledger", "check", "--ledger", where).exit_code == 0
    file = tmp_path / "a.parquet"
    for _ in range(2):  # the second export replaces the first
        assert run("ledger", "export", "--ledger", where, "--to", file).exit_code == 0


def test_ledger_check_reports_that_all_sums_are_exact(ledger):
    where, _, _ = ledger
    done = run("ledger", "check", "--ledger", where)
    assert (done.exit_code, done.stdout) == (0, "all sums are exact\n")


def test_explain_says_the_same_from_the_ledger_as_from_the_server(ledger):
    where, ids, asked = ledger
    kept = json.loads(run("explain", ids[0], "--ledger", where, "--json").stdout)
    assert kept == asked, "a server says the same as its ledger"
    text = run("explain", "mine-3", "--ledger", where).stdout
    assert ids[3] in text and "decode.own" in text and "inside its budget" in text
    assert "tokens:" in text and "cost: device" in text
    assert max(map(len, text.splitlines())) <= 80
    missing = run("explain", "nothing", "--ledger", where)
    assert "there is no request 'nothing'" in str(missing.exception)
    both = run("explain", "a", "--ledger", where, "--url", "http://127.0.0.1:1")
    assert "give one of them" in str(both.exception)
    closed = run("explain", "a", "--url", "http://127.0.0.1:1")
    assert "cannot be asked" in str(closed.exception)


def test_without_duckdb_the_extra_is_named(ledger, monkeypatch):
    where, _, _ = ledger
    monkeypatch.setitem(sys.modules, "duckdb", None)
    failed = run("ledger", "spend", "--ledger", where)
    assert "pip install 'headway[ledger]'" in str(failed.exception)


def test_spend_refuses_an_unknown_group(ledger):
    where, _, _ = ledger
    failed = run("ledger", "spend", "--ledger", where, "--by", "city")
    assert "--by is one of lane, tenant" in str(failed.exception)
