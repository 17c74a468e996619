"""benchmarks.trials: its traffic, its bounds, and the server on which it tries versions."""

import json
import sys
from dataclasses import asdict
from functools import partial
from math import comb
from queue import Queue
from time import monotonic_ns

import httpx2
import pytest

import benchmarks.trials.__main__ as trials
from benchmarks.server_overhead.served import serving
from benchmarks.trials import split
from benchmarks.trials.chance import at_most, binomial_bound, exact_interval
from benchmarks.trials.late import LateChannel, Planted
from benchmarks.trials.live import LiveTrial, config, proposal, start
from benchmarks.trials.paced import Machine, Tally
from benchmarks.trials.simulated import Result, Run
from benchmarks.trials.traffic import LOAD, NAMES, SECONDS, window
from headway.core.batch import Event
from headway.core.commands import Add, Retune
from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.load import Load
from headway.core.policies.policies import usual
from headway.core.request import Finish, Request
from headway.server.engine.messages import Step

SECOND = 1_000_000_000


@pytest.mark.parametrize("run, slow", [(0, 1.0), (1, 2.0)])
def test_every_window_offers_the_stated_load(run, slow):
    found = window(run, None, slow)
    times = [spec.at for spec in found.specs]
    assert abs(found.load - LOAD) < 0.001
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= SECONDS * SECOND
    assert times[-1] > 0.99 * SECONDS * SECOND
    assert {spec.lane for spec in found.specs} == set(NAMES)
    assert window(run, None, slow) == found and window(run + 1, None, slow) != found


def test_the_bounds_of_chance_are_those_of_the_binomial_distribution():
    assert at_most(1, 3, 0.5) == pytest.approx((1 + 3) / 8)
    most = binomial_bound(200)
    beyond = [
        sum(comb(200, n) * 0.05**n * 0.95 ** (200 - n) for n in range(least, 201))
        for least in (most, most + 1)
    ]
    assert beyond[0] > 0.05 >= beyond[1]
    low, high = exact_interval(0, 20)
    assert low == 0 and (1 - high) ** 20 == pytest.approx(0.025)
    assert exact_interval(5, 20)[0] < 0.25 < exact_interval(5, 20)[1]


class Pipe:
    """The other end of a channel. It puts each sent message into a queue."""

    def __init__(self, commands):
        self.commands, self.sent = commands, Queue()

    def recv(self):
        return self.commands

    def send(self, message):
        self.sent.put(message)


def ended(id, lane, arrived, first):
    """The row of a request whose queue was half of its wait."""
    times = arrived, (arrived + first) // 2, first, first, first
    return RequestRow(id, lane, Budget(), Finish.LENGTH, *times, 10, 1, 0, 0, 0, 1)


def test_only_the_planted_lane_waits_longer_and_only_under_the_planted_version():
    before = monotonic_ns() - SECOND // 2
    adds = [Add(Request(name, (1,), 1, before, name[:4])) for name in ("chat-1", "code-2")]
    early = Add(Request("chat-0", (1,), 1, before, "chat"))
    pipe = Pipe((early, Retune(2, usual(4), ()), *adds))
    channel = LateChannel(pipe, Planted("chat", 2, 1.2))
    channel.recv()
    names = ("chat-0", "chat-1", "code-2")
    now = monotonic_ns()
    rows = [ended(name, name[:4], before, now) for name in names]
    channel.send(Step([Event(name, (5,), Finish.LENGTH) for name in names], [], rows, Load(), 3))
    first, later = pipe.sent.get(timeout=60), pipe.sent.get(timeout=60)
    assert [event.id for event in first.events] == ["chat-0", "code-2"]
    assert first.requests == [rows[0], rows[2]]
    assert [event.id for event in later.events] == ["chat-1"] and later.taken == 3
    (late,) = later.requests
    waited = late.ttft / 1.2
    assert late.queue == int(rows[1].queue * 1.2)
    assert now - before <= waited <= monotonic_ns() - before
    assert late.finished == late.last_token == late.first_token <= monotonic_ns()


def test_a_trial_is_void_where_the_machine_or_the_client_was_late():
    ended = partial(LiveTrial, 1, "", outcome="ended")
    assert ended(tally=Tally(10, 5.0, 0.4)).void == ""
    assert "lost 12%" in ended(tally=Tally(10, 5.0, 0.6)).void
    assert "3 requests failed" in ended(failed=3).void
    assert "the client was late" in ended(lag=1.6).void
    assert "not ended" in LiveTrial(1, "").void


def short(figures):
    return {each.name for each in figures if each.falls_short}


@pytest.mark.parametrize("caught", [0, 3, 4])
def test_live_trials_that_catch_too_few_fall_short(caught, monkeypatch):
    """Five trials run. If none is caught, there is no figure of minutes."""

    def made(wanted, together, folder):
        for number, (run, lane) in enumerate(wanted):
            found = {"outcome": "tripped", "why": f"ttft_p95 of lane {lane} is more", "minutes": 9}
            yield LiveTrial(run, lane, **(found if number < caught else {"outcome": "ended"}))

    monkeypatch.setattr(trials, "live_trials", made)
    found = trials.live(range(5), 4, True, None)
    assert short(found) == (set() if caught == 4 else {"live_caught"})
    assert ("live_minutes_until_caught" in {each.name for each in found}) == (caught > 0)


def test_simulated_trials_of_unfinished_runs_count_as_missing(monkeypatch):
    ended = Result(0, "", "ended", 1_800.0, "", "")
    caught = Result(0, "chat", "tripped", 600.0, "ttft_p95", "chat")
    runs = [Run(LOAD, 0.9, 9_000, (ended, ended, caught))]
    monkeypatch.setattr(trials, "measured", lambda *_: iter(runs))
    monkeypatch.setattr(trials, "switched", lambda *_: 0)
    assert short(trials.simulated(range(1), 2, 1, 60.0, None)) == set()
    assert short(trials.simulated(range(20), 2, 20, 60.0, None)) == {
        "trials_of_equals",
        "trials_planted",
    }
    runs.clear()
    names = {each.name for each in trials.simulated(range(20), 2, 20, 60.0, None)}
    assert not names & {"minutes_until_caught", "minutes_of_the_slowest_95", "least_load"}


def test_split_trials_of_unfinished_runs_count_as_missing():
    equal = split.Result(0, split.EQUAL, "", "ended", 1_800.0, "", 0.1)
    caught = split.Result(0, split.PLANTED, "chat", "tripped", 600.0, "chat", 0.1)
    assert short(split.figures([equal, caught], 1, 1)) == set()
    counts = {"split_trials_of_equals", "split_trials_planted"}
    assert short(split.figures([equal, caught], 20, 10)) == counts
    names = {each.name for each in split.figures([], 20, 10)}
    assert not names & {"minutes_until_caught", "spread_of_a_pair"}


def test_the_server_whose_device_is_a_clock_tries_a_proposed_version(tmp_path):
    told = tmp_path / "tally.json"
    machine = json.dumps(asdict(Machine(8, 2.0, 4.0, str(told))))
    command = (sys.executable, "-m", "benchmarks.trials.served", machine)
    given = config(tmp_path / "versions.db")
    with (
        serving(given, tmp_path, log=tmp_path / "log", command=command) as served,
        httpx2.Client(base_url=f"http://{served.host}:{served.port}", timeout=60) as client,
    ):
        assert client.post("/v1/versions", json=proposal()).json()["number"] == 2
        begun = client.post("/v1/versions/2/start", json=start(7)).json()
        plan = begun["events"][-1]["details"]["plan"]
        assert (plan["slice"], plan["wash_out"]) == (3 * SECOND // 2, 3 * SECOND // 8)
        asked = {"prompt": [5] * 40, "max_tokens": 7, "ignore_eos": True}
        headers = {"x-headway-lane": "chat"}
        answer = client.post("/v1/completions", json=asked, headers=headers).json()
        assert answer["usage"]["completion_tokens"] == 7
        client.post("/v1/versions/2/rollback", json={})
    assert Tally(**json.loads(told.read_text())).steps >= 7
