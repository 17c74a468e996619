"""`headway bench` against a server on loopback: its report, its errors, its exit status."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from io import StringIO
from itertools import count
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.client_accuracy.scheduled_server import Plan, by_length
from headway.commands.bench import bench_report
from headway.commands.bench.bench import run_bench
from headway.commands.bench.bench_offers import offers_of
from headway.commands.bench.bench_traffic import bench_lanes, bench_work
from headway.commands.bench.options import BenchOptions
from headway.commands.report.report import read_report
from headway.core.request import Finish
from headway.errors import SettingError
from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.difference.pairing import pair_reports
from headway.report.formatting import share
from headway.report.remote import client_doubts, client_tables
from headway.runs.remote.answer_stream import AnswerStream
from headway.runs.remote.caller import Caller
from headway.runs.remote.target import read_target
from headway.runs.remote.wording import Wording
from tests.runs.recorded_servers import MODEL, recorded
from tests.scheduled import scheduled
from tests.server.running_server import serving, until

LANES = """
chat:
  arrivals: {gamma: {cv: 2}}
  prompt: [16, 48]
  answer: {mean: 6, cv: 0.5}
  rate: 40
  budget: {ttft: 5000, e2e: 20000}
  headers: {x-tier: gold}
voice:
  arrivals: poisson
  prompt: 20
  answer: 4
  rate: 60
  cancel: 30%
"""


def bench(folder, *urls, **wishes):
    """Run the benchmark; return the exit status, the output and the analysed report."""
    screen = Console(file=StringIO(), width=80, force_terminal=False)
    options = BenchOptions(urls, out=folder, **{"seconds": 1.0} | wishes)
    status = run_bench(options, screen)
    found = Analysis(report_json.read(folder / "report.json"))
    return status, screen.file.getvalue(), found


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """A late client makes no run invalid, so a busy machine breaks no test."""
    monkeypatch.setattr(client_doubts, "MOST_LAG", 10**12)


@pytest.fixture
def lanes(tmp_path):
    path = tmp_path / "lanes.yaml"
    path.write_text(LANES)
    return path


def test_sessions_share_a_prefix_and_send_their_prompts_as_text(tmp_path):
    heard, path = [], tmp_path / "lanes.yaml"
    path.write_text(
        "talk:\n  arrivals: poisson\n  rate: 10\n  prompt: [2, 9]\n  answer: 3\n"
        "  sessions: {turns: 3, think: 0.05, prefix: 40}\n"
    )

    def plan(body, headers):
        heard.append(body)
        return Plan((0.001, 0.002, 0.003))

    with scheduled(plan) as url:
        status, said, found = bench(tmp_path / "out", url, lanes=path, seconds=2.0)
        path.write_text(path.read_text() + "  budget: {ttft: 50}\n")
        with pytest.raises(SettingError, match="the same requests at each rate: no sessions"):
            bench(tmp_path / "out", url, lanes=path, find_capacity=95.0)
    prompts = [body["prompt"] for body in heard if body["max_tokens"] == 3]
    assert status == 0 and all(isinstance(each, str) for each in prompts)
    assert len({" ".join(each.split()[:40]) for each in prompts}) == 1
    assert len({" ".join(each.split()[:58]) for each in prompts}) > 10
    (name,) = found.strategies
    rows = found.report.runs[name][0].requests
    firsts = [row.id for row in rows if "." not in row.id]
    assert len(rows) > 2 * len(firsts) and all(row.prompt > 40 for row in rows)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "sessions of 3 turns, 0.05 s of thought, 40 shared tokens" in page
    assert f" sessions / s: {len(firsts)} sessions in 2 s." in said
    assert f" sessions / s, {len(firsts)} in all" in page
    assert f"talk: {len(firsts)} synthetic sessions" in page
    assert found.report.about["workload"]["sessions"] == len(firsts)


def test_session_prompts_are_cut_so_that_prefix_and_answer_fit_the_context(tmp_path):
    path = tmp_path / "lanes.yaml"
    path.write_text(
        "talk:\n  arrivals: poisson\n  rate: 9\n  prompt: 20\n  answer: 20\n"
        "  sessions: {prefix: 140}\n"
    )
    options = BenchOptions(("http://h",), lanes=path)
    work = bench_work(lanes := bench_lanes(options), options, 160)
    assert {(spec.prompt, spec.answer) for spec in work.specs} == {(10, 10)}
    assert work.about["cut_to_context"]["requests"] == len(work.specs)
    wording = Wording(read_target("http://h"), "m", text=range(10_000))
    offers = offers_of(work, lanes, wording, 0)
    assert {len(each.request.prompt) + each.request.max_tokens for each in offers} == {160}
    named = "talk: sessions: a prefix of 140 tokens leaves no room .* in the 141 that"
    with pytest.raises(SettingError, match=named):
        bench_work(lanes, options, 141)
    assert bench_work(lanes, options, 142).specs


def test_the_opening_of_mixed_lanes_counts_the_requests_that_begin_a_session(tmp_path):
    path = tmp_path / "lanes.yaml"
    lane = "  arrivals: poisson\n  rate: 10\n  prompt: 3\n  answer: 2\n"
    path.write_text(f"talk:\n{lane}  sessions: {{turns: 2}}\nplain:\n{lane}")
    with scheduled(lambda body, headers: Plan((0.001, 0.002))) as url:
        _, said, found = bench(tmp_path / "out", url, lanes=path)
    work = found.report.about["workload"]
    assert 0 < work["sessions"] < work["requests"]
    assert (
        f" requests / s: {work['requests']} requests in 1 s, {work['sessions']} of which begin a "
        "session." in " ".join(said.split())
    )


def test_servers_that_got_different_requests_have_their_own_n_on_the_page(tmp_path):
    def answering(seconds):
        return scheduled(lambda body, headers: Plan((seconds, seconds)))

    same = "2 servers, the same requests"
    with answering(0.001) as fast, answering(0.4) as slow:
        wishes = {"poisson": 200.0, "answer": "2", "ttft": 5_000.0}
        _, _, found = bench(tmp_path, fast, slow, callers=2, **wishes)
        page = (tmp_path / "report.html").read_text()
        bench(tmp_path / "open", fast, slow, **{**wishes, "poisson": 20.0})
        assert same in (tmp_path / "open" / "report.html").read_text()
    counts = [found.latency[name]["poisson"][0].offered for name in found.strategies]
    assert counts[0] > counts[1] > 0 and same not in page and "2 servers<" in page
    for n in counts:
        assert f"100 % n {n:,}</text>" in page


def test_the_tables_follow_from_the_rows_of_the_json(tmp_path):
    with scheduled() as url:
        status, said, found = bench(tmp_path, url, poisson=60.0, answer="3", ttft=20_000.0)
    assert status == 0 and "keeps every budget." in said
    plain = json.loads((tmp_path / "report.json").read_text())
    (server,) = plain["strategies"]
    assert plain["command"] == "bench" and server["client"]["columns"][0] == "id"
    head, ((lane, name, n, good, kept, sure, *_),) = client_tables.budgets(found)
    least = 0.05 ** (1 / int(n))  # the share that gives n of n in one of twenty cases
    assert (lane, n, good, kept) == ("poisson", n, n, "100 %")
    assert sure == f"{share(least)} to 100 %"
    counted = found.counted[name][0]
    assert int(n) == len(counted.requests) == counted.offered["poisson"]
    head, rows = client_tables.latency(found, "poisson", ranges=True)
    assert [row[0] for row in rows] == ["TTFT", "TPOT", "ITL", "E2E"] and head[2:4] == ["n", "p50"]
    ttft = sorted(row.ttft for row in counted.requests)
    median = ttft[-(-len(ttft) // 2) - 1]
    assert rows[0][3].startswith(f"{median / 1e6:,.0f} (")
    (cells,) = client_tables.throughput(found)[1]
    seconds = counted.nanoseconds / 1e9
    begin, asked = found.report.warm_up, found.report.runs[name][0].requests
    ended = [row for row in asked if row.finished >= begin]
    assert cells[4] == f"{len(ended) / seconds:.2f}"
    assert cells[6] == f"{sum(row.generated for row in ended) / seconds:,.0f}"


def test_several_servers_get_the_same_requests_and_are_compared_in_one_report(tmp_path):
    def slow(body, headers):
        plan = by_length(body, headers)
        return Plan(tuple(at + 2.2 for at in plan.times)) if body["max_tokens"] > 1 else plan

    with scheduled() as fast, scheduled(slow) as other:
        status, said, found = bench(
            tmp_path, fast, other, gamma="90,2", answer="2", ttft=2_000.0, repeat=2, seconds=0.6
        )
    assert status == 0 and len(found.strategies) == 2
    (first, second) = found.strategies
    assert [len(each) for each in found.report.runs.values()] == [2, 2]
    ids = [[row.id for row in run.requests] for runs in found.report.runs.values() for run in runs]
    assert ids[0] == ids[1] == ids[2] == ids[3], "the same requests"
    assert f"{first} keeps every budget." in said and f"{second} has 0 % of gamma" in said
    assert f"{second} against {first}" in " ".join(said.split()) and "TTFT p" in said
    assert "What each server relieves and creates" in (tmp_path / "report.html").read_text()


def test_each_server_may_have_a_model_of_its_own(tmp_path):
    with recorded("vllm") as (first, _), recorded("llama.cpp") as (second, heard):
        wishes = {"poisson": 20.0, "answer": "2"}
        _, _, found = bench(tmp_path, first, second, models=(MODEL, f"{MODEL}@x"), **wishes)
        assert [each["model"] for each in found.report.about["servers"]] == [MODEL, f"{MODEL}@x"]
        assert {body["model"] for body in heard if body.get("stream")} == {f"{MODEL}@x"}
        with pytest.raises(SettingError, match="has no model other; it has"):
            bench(tmp_path, first, second, models=(MODEL, "other"), **wishes)


def test_refusals_are_counted_and_a_retry_is_counted_apart(tmp_path):
    seen = set()

    def busy(body, headers):
        key = str(body["prompt"])
        if body["max_tokens"] > 1 and key not in seen and not seen.add(key):
            return Plan(status=429, headers={"retry-after-ms": "20"})
        return Plan((0.01, 0.02))

    with scheduled(busy) as url:
        status, said, _ = bench(tmp_path / "a", url, poisson=50.0, answer="2")
    assert status == 1 and "429: as planned" in said and "did not serve" in said
    seen.clear()
    with scheduled(busy) as url:
        status, said, found = bench(tmp_path / "b", url, poisson=50.0, answer="2", retries=1)
    (name,) = found.strategies
    figures = found.client(name, "poisson")[0]
    assert status == 0 and figures.retried == len(found.first(name).requests)
    assert figures.attempts == 2 * figures.retried and not figures.errors


def test_answers_that_end_early_are_counted_on_terminal_and_page(tmp_path):
    with scheduled(lambda body, headers: Plan((0.01, 0.02))) as url:
        status, said, found = bench(tmp_path, url, poisson=20.0, answer="2-3")
    (name,) = found.strategies
    (figures,) = found.client(name, "poisson")
    rows = found.counted[name][0].client
    assert status == 0 and 0 < figures.short == sum(row.asked == 3 for row in rows) < len(rows)
    text = f"{name} ended {figures.short} of {len(rows)} answers with fewer tokens"
    assert text in " ".join(said.split()) and text in (tmp_path / "report.html").read_text()
    assert "The tables have its own counts of tokens" in " ".join(said.split())


def test_a_closed_loop_is_labelled_on_terminal_and_page(tmp_path):
    with scheduled(lambda body, headers: Plan((0.01, 0.02))) as url:
        status, said, found = bench(tmp_path, url, poisson=40.0, answer="2", callers=2)
    assert status == 0 and "A closed loop of 2 callers" in said
    assert "A closed loop of 2 callers" in (tmp_path / "report.html").read_text()
    (name,) = found.strategies
    assert len(found.report.runs[name][0].requests) > 20, "all were asked, one after another"
    plain = json.loads((tmp_path / "report.json").read_text())
    plain["asked"]["callers"], plain["servers"][0]["model"] = 3, "another"
    (tmp_path / "other.json").write_text(json.dumps(plain))
    both = [read_report(tmp_path / file) for file in ("report.json", "other.json")]
    loop, server = pair_reports(both[0], both[1], ("one", "other")).others
    assert loop.startswith("Loop in one: CLOSED: 2 callers")
    assert "; in other: CLOSED: 3 callers" in loop
    assert server.startswith(f"{name} in one: {url}") and ", another. Prompts" in server


def test_a_closed_loop_that_runs_out_of_requests_says_after_how_long(tmp_path):
    with scheduled(lambda body, headers: Plan((0.001, 0.002))) as url:
        wishes = {"poisson": 2.0, "answer": "2", "callers": 2, "ttft": 5_000.0}
        status, said, found = bench(tmp_path, url, seconds=20.0, warm_up=18.0, **wishes)
    (name,) = found.strategies
    (load,) = found.report.about["clients"][name]
    assert 0 < load["ran_out_ns"] < 18e9 and not found.counted[name][0].requests and status == 1
    text = f"end of the 20 s: {name} after {load['ran_out_ns'] / 1e9:.3g} s. A higher rate is more"
    assert text in " ".join(said.split()) and text in (tmp_path / "report.html").read_text()
    assert "All requests with a budget arrived in the warm-up" in " ".join(said.split())
    assert "No endpoint" not in said


def test_a_run_whose_client_was_late_is_not_valid(tmp_path, monkeypatch):
    from headway.runs.remote.caller import Caller

    ask = Caller.ask

    async def late(self, offer, request, due):
        return await ask(self, offer, request, due - 20_000_000)

    monkeypatch.setattr(Caller, "ask", late)
    monkeypatch.setattr(client_doubts, "MOST_LAG", 10_000_000)
    with scheduled() as url:
        status, said, _ = bench(tmp_path, url, poisson=50.0, answer="2")
    assert status == 1 and "Not valid: the client sent its requests late" in said
    assert "Not valid" in (tmp_path / "report.html").read_text()


def test_server_errors_are_made_printable_and_a_failed_page_keeps_the_old(tmp_path, monkeypatch):
    odd = r'{"error": {"message": "half \ud83d here, \u001b[2Jcleared"}}'

    def refusing(body, headers):
        return Plan((0.001,)) if body["max_tokens"] == 1 else Plan(status=500, body=odd)

    with scheduled(refusing) as url:
        status, said, _ = bench(tmp_path, url, poisson=20.0, answer="2")
        assert status == 1 and "500: half ? here, [2Jcleared" in said and "\x1b" not in said
        before = (tmp_path / "report.html").read_text()
        assert "half ? here, [2Jcleared" in before
        monkeypatch.setattr(bench_report, "page", lambda found: "half \ud83d")
        with pytest.raises(UnicodeEncodeError):
            bench(tmp_path, url, poisson=20.0, answer="2")
    assert (tmp_path / "report.html").read_text() == before


def test_a_run_without_descriptors_is_not_valid_and_the_soft_limit_is_raised(tmp_path):
    program = (
        "import resource, sys\n"
        "from headway.cli import main\n"
        "hard = int(sys.argv.pop(1))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 30), hard))\n"
        "main()\n"
    )
    said, statuses = [], []

    def open_for_a_second(body, headers):
        return Plan((1.0, 1.001) if body["max_tokens"] > 1 else (0.001,))

    with scheduled(open_for_a_second) as url:
        for hard in (30, 1_000):
            wishes = [url, "--poisson", "60", "--seconds", "1", "--answer", "2", "--text"]
            done = subprocess.run(
                [sys.executable, "-c", program, str(hard), "bench", *wishes, "--out", tmp_path],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "COLUMNS": "200"},
            )
            said.append(" ".join(done.stdout.split()))
            statuses.append(done.returncode)
    assert statuses[0] == 1 and "Not valid: the client could not send" in said[0]
    assert "(Too many open files)" in said[0] and "answered none of the last" not in said[0]
    assert "could not send" not in said[1] and "Too many open files" not in said[1]


def test_a_server_that_breaks_off_its_answers_leaves_all_rows_and_a_reason(tmp_path):
    asked = [0]

    def dying(body, headers):
        asked[0] += 1
        return Plan((0.001,)) if asked[0] < 60 else Plan((0.001, 0.002), breaks_after=1)

    with scheduled(dying) as url:
        status, said, found = bench(tmp_path, url, poisson=120.0, answer="1")
    (name,) = found.strategies
    outcome = found.report.runs[name][0]
    assert status == 0 and outcome.complete and "What went wrong" in said
    assert 30 < sum(row.is_whole for row in outcome.requests) < 60 < len(outcome.requests)


def test_a_server_that_stops_answering_is_named_with_the_time(tmp_path):
    with scheduled(lambda body, headers: Plan((0.001, 0.002))) as url:
        _, said, found = bench(tmp_path, url, poisson=30.0, answer="2")
    assert "answered none of the last" not in said
    path = tmp_path / "report.json"
    plain = json.loads(path.read_text())
    (server,) = plain["strategies"]
    columns = server["client"]["columns"]
    for row in server["client"]["rows"][-4:]:
        row[columns.index("status")] = 0
        row[columns.index("error")] = "no connection: Connection refused"
    path.write_text(json.dumps(plain))
    cut = Analysis(report_json.read(path))
    (name,) = found.strategies
    since = cut.first(name).requests[-4].arrived / 1e9
    assert client_doubts.gone(cut) == (
        f"{name} answered none of the last 4 requests, from {since:.3g} s on (no connection: "
        "Connection refused)."
    )
    assert client_doubts.gone(cut) in client_doubts.doubts(cut)


def tail_of(found, *ends):
    """The run whose last requests end so: (error, whether the run was over, the caller left)."""
    (name,) = found.strategies
    run = found.report.runs[name][0]
    pairs = sorted(zip(run.requests, run.client, strict=True), key=lambda pair: pair[0].arrived)
    requests, client = map(list, zip(*pairs, strict=True))
    for k, (error, over, left) in zip(range(-len(ends), 0), ends, strict=True):
        finish = Finish.EXPIRED if over else Finish.CANCELLED if left else Finish.ERROR
        requests[k] = replace(requests[k], finish=finish)
        client[k] = client[k]._replace(status=0, error=error, left=left)
    changed = replace(run, requests=requests, client=client)
    return name, Analysis(replace(found.report, runs={name: (changed,)}))


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    with scheduled(lambda body, headers: Plan((0.001, 0.002))) as url:
        options = BenchOptions([url], out=tmp_path_factory.mktemp("answered"), seconds=1.0)
        run_bench(replace(options, poisson=30.0, answer="2"), Console(file=StringIO()))
    return Analysis(report_json.read(options.out / "report.json"))


REFUSED, OVER = ("Connection refused", False, False), ("the run was over", True, False)
LEFT = ("", False, True)


def test_callers_that_left_do_not_hide_a_dead_server(answered):
    name, cut = tail_of(answered, LEFT, REFUSED, LEFT, REFUSED, REFUSED, LEFT)
    since = cut.report.runs[name][0].requests[-5].arrived / 1e9
    assert client_doubts.gone(cut) == (
        f"{name} answered none of the last 5 requests, from {since:.3g} s on (Connection refused)."
    )
    assert client_doubts.gone(tail_of(answered, LEFT, LEFT, LEFT, LEFT, REFUSED)[1]) == ""


def test_requests_cut_off_by_the_end_of_the_run_have_a_sentence_of_their_own(answered):
    name, cut = tail_of(answered, OVER, LEFT, OVER, OVER)
    since = cut.report.runs[name][0].requests[-4].arrived / 1e9
    assert client_doubts.gone(cut) == (
        f"{name} had not answered the last 4 requests, from {since:.3g} s on, when the run was "
        "over."
    )
    run = cut.report.runs[name][0]
    ended = replace(run, requests=run.requests[::-1], client=run.client[::-1])
    assert client_doubts.gone(Analysis(replace(cut.report, runs={name: (ended,)}))) == (
        client_doubts.gone(cut)
    ), "rows are in the order of their ends"
    died = client_doubts.gone(tail_of(answered, OVER, REFUSED, REFUSED, REFUSED)[1])
    assert "answered none of the last 4 requests" in died and "(Connection refused)" in died


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_benchmark_stopped_by_a_signal_writes_an_incomplete_report(tmp_path, number, status):
    asked, several = [0], threading.Event()

    def counted(body, headers):
        asked[0] += 1
        if asked[0] == 6:
            several.set()
        return by_length(body, headers)

    with scheduled(counted) as url:
        command = [sys.executable, "-m", "headway", "bench", url, "--poisson", "20"]
        process = subprocess.Popen(
            [*command, "--answer", "2", "--out", str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        for line in process.stdout:
            if "requests arrive within" in line:
                break
        assert several.wait(60)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == status and "Broken off: " in said, said
    outcome = report_json.read(tmp_path / "report.json").outcomes
    (rows,) = outcome.values()
    assert not rows.complete


@pytest.mark.parametrize("amid", ["a callback of the parser", "a task"])
def test_sigterm_is_obeyed_whatever_the_event_loop_does(tmp_path, monkeypatch, amid):
    place = (AnswerStream, "feed") if amid != "a task" else (Caller, "_wait")
    before, calls = getattr(*place), count(1)

    def call(*given):
        if next(calls) == 60:
            os.kill(os.getpid(), signal.SIGTERM)
        return before(*given)

    monkeypatch.setattr(*place, call)
    with scheduled(lambda body, headers: Plan((0.001, 0.002))) as url:
        status, said, found = bench(tmp_path, url, poisson=240.0, answer="2", seconds=5.0)
    assert status == 143 and "Broken off: " in said
    (outcomes,) = found.report.runs.values()
    assert outcomes[0].requests and not outcomes[0].complete


@pytest.mark.parametrize(
    "wishes, named",
    [
        ({}, "say who asks, by one of --trace, --lanes, --poisson, --gamma: for instance"),
        ({"poisson": 1.0, "gamma": "1,1"}, "not --poisson and --gamma"),
        ({"poisson": 1e9}, "50,000 are the most: lower the rate, or the seconds"),
        ({"poisson": float("nan")}, "--poisson is nan"),
        ({"gamma": "3"}, "--gamma is RATE,CV, not 3"),
        ({"gamma": "4,1e-200"}, "--gamma: cv is 1e-200; it must be 0, for even gaps, or"),
        ({"gamma": "0,1"}, "--gamma: a rate is more than 0"),
        ({"poisson": 1.0, "prompt": "many"}, "--prompt is tokens, such as 128 or 16-48, not many"),
        ({"poisson": 1.0, "answer": "9-3"}, "--answer: 9 is more than 3"),
        ({"poisson": 1.0, "speed": 2.0}, "--speed is of traces"),
        ({"poisson": 1.0, "rate": 2.0}, "--rate: the lanes have rates of their own"),
        ({"poisson": 0.1, "warm_up": 60.0}, "all .* arrive in the warm-up of 60 s"),
        ({"poisson": 1.0, "token_scale": 2.0}, "--token-scale is of traces, and there is none"),
        ({"traces": (Path("a.csv"),), "answer": "9"}, "--prompt and --answer are of --poisson"),
        ({"poisson": 1.0, "models": ("a", "b")}, r"once for each URL \(1\), not 2 times"),
        ({"poisson": 1.0, "chat": True, "text": True}, "--text is of completions"),
        ({"poisson": 1.0, "key_env": "HEADWAY_NO_SUCH_KEY"}, "has no key in HEADWAY_NO_SUCH_KEY"),
    ],
)
def test_contradicting_or_impossible_options_are_refused_in_one_line(tmp_path, wishes, named):
    with scheduled(tokenizes=False) as url, pytest.raises(SettingError, match=named) as refused:
        bench(tmp_path, url, **wishes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "line, named",
    [
        ("slots: {most: 3}", "chat: slots: the server's own settings decide that"),
        ("tenants: {a: 1}", "chat: tenants: give each tenant a lane of its own"),
        ("budget: {queue: 5}", "a client cannot see the queue"),
        ("budget: {ttft: 5 x}", "say milliseconds"),
        ("cancle: 3%", "'cancle' is not known; did you mean cancel"),
    ],
)
def test_a_lane_setting_that_a_client_cannot_obey_is_refused(tmp_path, line, named):
    path = tmp_path / "lanes.yaml"
    path.write_text(f"chat:\n  arrivals: poisson\n  prompt: 1\n  answer: 1\n  rate: 1\n  {line}\n")
    with pytest.raises(SettingError, match=named):
        bench_lanes(BenchOptions(("http://h",), lanes=path))


def test_a_file_without_lanes_is_refused(tmp_path):
    path = tmp_path / "lanes.yaml"
    path.write_text("{}")
    with pytest.raises(SettingError, match=r"^lanes\.yaml has no lanes$"):
        bench_lanes(BenchOptions(("http://h",), lanes=path))


def test_the_lanes_of_the_documentation_are_read(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "bench.md").read_text()
    path = tmp_path / "lanes.yaml"
    path.write_text(page.partition("<!-- lanes -->")[2].split("```")[1].removeprefix("yaml"))
    options = BenchOptions(("http://h",), lanes=path, rate=3.0)
    chat, voice, assistant = lanes = bench_lanes(options)
    assert assistant.calling.sessions.words == (
        "sessions of 2 to 6 turns, 5 s of thought, 200 shared tokens"
    )
    assert chat.calling.headers == {"x-headway-lane": "standard"} and voice.calling.cancel == 0.03
    assert {spec.lane for spec in bench_work(lanes, options, 0).specs} == {
        "assistant",
        "chat",
        "voice",
    }


def test_lanes_that_are_there_at_once_are_counted_without_a_warm_up(tmp_path):
    path = tmp_path / "lanes.yaml"
    path.write_text("a: {arrivals: at-once, prompt: 4, answer: 4, rate: 2}\n")
    options = BenchOptions(("http://h",), lanes=path)
    with pytest.raises(SettingError, match="more --seconds, or say --warm-up 0"):
        bench_work(bench_lanes(options), options, 0)
    options = replace(options, warm_up=0.0)
    assert {spec.at for spec in bench_work(bench_lanes(options), options, 0).specs} == {0}


def test_the_same_server_twice_and_a_trace_with_a_bad_row_are_refused(tmp_path):
    with pytest.raises(SettingError, match="h:1 is named twice"):
        bench(tmp_path, "http://h:1", "http://h:1/v1", poisson=1.0)
    bad = tmp_path / "bad.csv"
    bad.write_text("arrival_s,input_tokens,output_tokens\n0,5,x\n")
    coarse = tmp_path / "coarse.csv"  # each arrival lies anywhere in its tick of ten seconds
    coarse.write_text("arrival_s,input_tokens,output_tokens\n" + "0,5,5\n" * 2 + "10,5,5\n" * 2)
    said = "coarse: no request in the first 0.01 s; take more --seconds"
    with scheduled() as url, pytest.raises(SettingError, match=said):
        bench(tmp_path, url, traces=(coarse,), seconds=0.01)
    with pytest.raises(SettingError, match=r"bad.csv, line 2: output_tokens is 'x'"):
        bench(tmp_path, "http://127.0.0.1:1", traces=(bad,))


def test_a_traces_supersede_key_is_sent_as_a_header(tmp_path):
    trace, sent = tmp_path / "mine.csv", []
    lines = ["k,0,10,2\n", ",0.1,11,2\n", "k,0.2,12,2\n", "é ü,0.3,13,2\n"]
    trace.write_text("".join(["supersede,arrival_s,input_tokens,output_tokens\n", *lines]))

    def noting(body, headers):
        if body["max_tokens"] == 2:
            sent.append(headers.get("x-headway-supersede"))
        return Plan((0.01, 0.02))

    with scheduled(noting) as url:
        bench(tmp_path / "a", url, traces=(trace,), warm_up=0.0)
    first, none, again, other = sent
    assert none is None and first == again != other
    assert first.isalnum() and other.isalnum()


def test_a_trace_goes_at_its_own_pace_or_faster_or_at_a_rate(tmp_path):
    trace = tmp_path / "mine.csv"
    lines = [f"{at},{10 + at},5\n" for at in range(100)]
    trace.write_text("".join(["arrival_s,input_tokens,output_tokens\n", *lines]))

    def work(**wishes):
        options = BenchOptions(("http://h",), traces=(trace,), **{"seconds": 40.0} | wishes)
        return bench_work(bench_lanes(options), options, 0)

    own, fast, rated = work(), work(speed=4.0), work(rate=2.0)
    assert [len(each.specs) for each in (own, fast, rated)] == [40, 40, 40]
    assert [each.window // 10**9 for each in (own, fast, rated)] == [40, 10, 20]
    assert [spec.at // 10**9 for spec in own.specs] == list(range(40))
    assert [spec.at for spec in fast.specs] == [at * 250_000_000 for at in range(40)]
    assert [spec.prompt for spec in own.specs] == [10 + at for at in range(40)]
    assert work(warm_up=5.0).warm_up == 5 * 10**9 and own.warm_up == 4 * 10**9


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_a_trace_shorter_than_the_seconds_goes_at_its_own_pace_and_ends_earlier(tmp_path, speed):
    traces = tmp_path / "short.csv", tmp_path / "long.csv"
    for path, many in zip(traces, (11, 99), strict=True):
        lines = [f"{at},9,5\n" for at in range(many)]
        path.write_text("".join(["arrival_s,input_tokens,output_tokens\n", *lines]))

    def work(*named):
        options = BenchOptions(("http://h",), traces=named, speed=speed, seconds=60.0)
        return bench_work(bench_lanes(options), options, 0)

    for made in (work(traces[0]), work(*traces)):
        short = [spec.at for spec in made.specs if spec.lane == "short"]
        assert short == pytest.approx([at * 1e9 / speed for at in range(11)], abs=9)
        assert made.about["lanes"]["short"]["time_scale"] == pytest.approx(speed)
    assert work(traces[0]).window == pytest.approx(10e9 / speed, abs=2)
    assert work(*traces).window == 60e9 / speed


def test_two_lanes_are_measured_on_a_server_with_the_embedded_model(tmp_path, lanes):
    with serving() as (url, front):
        status, said, found = bench(tmp_path / "out", url, lanes=lanes, text=True, seconds=1.4)
        until(lambda: front.model.engine.load.running == 0)  # also requests whose callers left
    assert status == 0
    (name,) = found.strategies
    rows, counted = found.report.runs[name][0], found.counted[name][0]
    assert rows.complete and len(rows.requests) == len(rows.client) > 100
    left = [row for row in rows.client if row.left]
    assert 5 < len(left) < 40 and all(row.id.startswith("voice") for row in left)
    whole = [
        (row, client)
        for row, client in zip(rows.requests, rows.client, strict=True)
        if not client.left
    ]
    assert all(row.is_whole and row.generated == client.asked for row, client in whole)
    assert all(client.status == 200 and client.attempts == 1 for _, client in whole)
    assert sum(counted.offered.values()) == len(counted.requests) < len(whole)
    assert "127.0.0.1" in said and "Latency of chat in milliseconds" in said
    assert max(map(len, said.splitlines())) <= 80
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Latency of voice" in page and "ignore_eos" in page
    shown = re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]*>", "", page, flags=re.DOTALL)
    assert "strateg" not in shown and "strateg" not in said
