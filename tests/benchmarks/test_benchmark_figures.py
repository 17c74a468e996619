"""Benchmarks fall short where something was not measured, not answered, or answered wrongly."""

import json
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf, nan

import httpx2
import pytest

from benchmarks import jobs
from benchmarks.hostile.others import Others
from benchmarks.lanes.__main__ import figures as figures_of_lanes
from benchmarks.lanes.load import Ask, Run, Seen
from benchmarks.report import Figure, finish
from benchmarks.server_overhead.served import Served


def finished(figures, capsys):
    """The exit status with --check, and the figures of the JSON line."""
    status = finish("some", "What?", 0, figures)
    lines = capsys.readouterr().out.splitlines()
    return status, json.loads(lines[-1], parse_constant=pytest.fail)["figures"] if lines else {}


@pytest.fixture(autouse=True)
def check(monkeypatch):
    monkeypatch.setattr("sys.argv", ["some", "--check"])


@pytest.mark.parametrize("samples", [[nan], [1.0, nan, 0.5], [inf]])
@pytest.mark.parametrize("aim", [{"most": 2.0}, {"least": 0.1}])
def test_a_figure_that_is_not_finite_falls_short_of_any_aim(samples, aim, capsys):
    figures = [Figure("a", samples, **aim), Figure("b", [1.0], **aim)]
    assert finished(figures, capsys) == (1, {"a": None, "b": 1.0})
    assert finished(figures[1:], capsys) == (0, {"b": 1.0})
    assert finished([Figure("a", samples)], capsys) == (0, {"a": None}), "it has no aim"


def test_a_run_without_figures_has_failed(capsys):
    assert finished([], capsys) == (1, {})


def laned(status=200, good=True, share=0.95):
    """A nightly job, then voice and chat requests. `share` of them end so, the rest in time."""
    seen = [Seen(Ask(0.5, "nightly", 1_900, ""), 200, 0.6, 20.0, True)]
    for number in range(100):
        due, lane = 2 + 0.16 * number, ("voice", "chat")[number % 2]
        if number < 100 * share:
            seen.append(Seen(Ask(due, lane, 9, ""), status, due + 0.02, due + 9, good))
        else:
            seen.append(Seen(Ask(due, lane, 9, ""), 200, due + 0.02, due + 0.2, True))
    return Run(seen, 0.0)


def short(figures):
    return [each.name for each in figures if each.falls_short]


def test_the_lanes_benchmark_counts_failed_requests_and_broken_budgets():
    well, failed, late = laned(), laned(500, False), laned(good=False)
    assert short(figures_of_lanes(laned(429, False), well, well, 0.005)) == []
    lost = ["voice_good", "chat_good", "told_no"]
    more = ["flooded_ttft_p95_more"]
    found = figures_of_lanes(well, failed, well, 0.005)
    assert short(found) == [f"after_{name}" for name in lost] + more
    assert {each.name: each.value for each in found}["after_ttft_p95"] == inf
    assert short(figures_of_lanes(well, well, failed, 0.005)) == [f"alone_{n}" for n in lost] + more
    found = figures_of_lanes(well, late, late, 0.005)
    both = [f"{run}_{lane}_good" for run in ("after", "alone") for lane in ("voice", "chat")]
    assert short(found) == both
    few = laned(500, False, share=0.03)
    assert short(figures_of_lanes(well, few, well, 0.005)) == ["after_told_no"]


@contextmanager
def answering(answer):
    """Gives a server's port; `answer` gives the status and the body of each call."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            status, said = answer()
            self.send_response(status)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_interactive_calls_that_fail_are_counted(monkeypatch):
    monkeypatch.setattr(jobs, "RATE", 400.0)
    token, end = b'data: {"choices": []}\n\n', b"data: [DONE]\n\n"
    kinds = [(429, b""), (500, b""), (200, 5 * token + end), (200, token + end)]
    kinds.append((200, 3 * token + b'data: {"error": {}}\n\n' + end))
    said, turn = [], threading.Lock()

    def answer():
        with turn:
            said.append(kinds[len(said) % len(kinds)])
            return said[-1]

    with answering(answer) as port, httpx2.Client(base_url=f"http://127.0.0.1:{port}") as client:
        run = jobs.Interactive(client, 0.1, 1)
    well = said.count(kinds[2])
    assert len(said) > 10 and len(run.firsts) == len(run.nexts) == well
    assert run.failed == len(said) - well


@pytest.mark.parametrize(
    "answers, same",
    [
        ([(500, b"")] * 3, [False, False]),
        ([(200, b'{"choices": [{"text": "a"}]}')] * 2 + [(500, b"")], [True, False]),
    ],
)
def test_a_failed_call_never_counts_as_the_same_answer(answers, same):
    said = iter(answers)
    with answering(lambda: next(said)) as port:
        others = Others(Served(os.getpid(), "127.0.0.1", port))
        others.call()
        others.call()
    assert others.same == same
