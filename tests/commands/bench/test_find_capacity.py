"""`headway bench --find-capacity`, on a server whose answers are computed instead of waited for."""

import json
from io import StringIO

import pytest
from rich.console import Console

from headway.commands.bench import find_capacity
from headway.commands.bench.bench import run_bench
from headway.commands.bench.options import BenchOptions
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.errors import SettingError
from headway.runs.outcome import Outcome
from headway.runs.remote.client_row import ClientRow
from headway.runs.remote.client_run import ClientLoad
from tests.scheduled import scheduled

MS = 1_000_000


class ComputedRun:
    """Replaces ClientRun. TTFT is 50 ms up to `capacity` requests a second, and 900 ms above."""

    capacity, lag, broken_at = 50.0, 0, NEVER
    asked, gone_at, leave = (), NEVER, False
    refusal = "no connection: Connection refused"

    def __init__(self, wording, offers, lanes, manner):
        self.offers, self.lanes, self.load = offers, {e.name: e for e in lanes}, ClientLoad(0.1, ())
        self.rate = len(offers) * 1e9 / manner.window
        ComputedRun.asked = (*ComputedRun.asked, [offer.request.id for offer in offers])

    def serve(self, watch):
        if self.rate >= ComputedRun.broken_at:
            raise KeyboardInterrupt
        if self.rate >= ComputedRun.gone_at:
            return self._refused()
        late = self.rate > ComputedRun.capacity
        rows = [self._row(offer.request, 900 * MS if late else 50 * MS) for offer in self.offers]
        client = [
            ClientRow(row.id, ComputedRun.lag if late else 0, 1, 200, "", 2, ComputedRun.leave, ())
            for row in rows
        ]
        end = max(row.finished for row in rows)
        return Outcome({rows[0].lane: len(rows)}, (*rows,), (), end, True, (*client,))

    def _refused(self):
        rows = tuple(self._row(offer.request, 1, Finish.ERROR) for offer in self.offers)
        client = tuple(
            ClientRow(row.id, 0, 1, 0, ComputedRun.refusal, 2, False, ()) for row in rows
        )
        return Outcome({"poisson": len(rows)}, rows, (), rows[-1].finished, True, client)

    def _row(self, request, ttft, finish=Finish.LENGTH):
        at = request.arrived
        return RequestRow(
            request.id,
            request.lane,
            self.lanes[request.lane].budget,
            finish,
            at,
            NEVER,
            at + ttft,
            at + ttft,
            at + ttft,
            5,
            1,
            *(0, 0, 0, 0),
        )


@pytest.fixture
def search(monkeypatch, tmp_path):
    """Run a search; return the exit status, the output and capacity.json."""
    monkeypatch.setattr(find_capacity, "ClientRun", ComputedRun)
    for name, value in {
        "capacity": 50.0,
        "lag": 0,
        "broken_at": NEVER,
        "asked": (),
        "gone_at": NEVER,
    }.items():
        monkeypatch.setattr(ComputedRun, name, value)

    def run(count=1, **wishes):
        screen = Console(file=StringIO(), width=100, force_terminal=False)
        wishes = {"poisson": 20.0, "seconds": 10.0, "ttft": 500.0, "find_capacity": 95.0} | wishes
        with scheduled(tokenizes=False) as url, scheduled(tokenizes=False) as other:
            options = BenchOptions((url, other)[:count], out=tmp_path, **wishes)
            status = run_bench(options, screen)
        found = json.loads((tmp_path / "capacity.json").read_text())
        return status, " ".join(screen.file.getvalue().split()), found

    return run


def test_the_highest_kept_rate_is_bracketed_and_its_run_is_reported(search, tmp_path):
    status, said, plain = search()
    (found,) = plain.values()
    rates = {each["rate"]: each["attainment"]["poisson"] for each in found["tried"]}
    assert status == 0 and found["capacity"] <= 50 < min(r for r, kept in rates.items() if not kept)
    assert found["capacity"] >= 50 / 1.06 and rates[found["capacity"]] == 1
    assert sorted(rates) != list(rates) and all(each in (0, 1) for each in rates.values())
    assert all(ids == ComputedRun.asked[0] for ids in ComputedRun.asked), "the same requests"
    assert f"capacity at 95 % {found['capacity']:.3g} requests / s (90 % interval" in said
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["workload"]["requests_per_second"] == found["capacity"]


def test_a_search_that_uses_up_its_trace_advises_a_longer_one(search, tmp_path):
    path = tmp_path / "short.csv"
    rows = "".join(f"{k},80,16\n" for k in range(20))
    path.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    _, said, _ = search(poisson=0.0, traces=(path,), rate=10.0, seconds=60.0)
    assert "too few requests" in said and "take a longer trace" in said
    assert "take --seconds" not in said[said.index("capacity at") :]


@pytest.mark.parametrize(
    "wishes, source",
    [
        ({}, "synthetic: poisson, {:.3g} requests / s"),
        (
            {"poisson": 0.0, "gamma": "20,2", "seconds": 60.0},
            "synthetic: gamma, {:.3g} requests / s, cv 2",
        ),
    ],
)
def test_the_report_states_the_rate_that_was_run(search, tmp_path, wishes, source):
    _, _, plain = search(**wishes)
    (found,) = plain.values()
    stated = json.loads((tmp_path / "report.json").read_text())["endpoints"][0]["source"]
    assert stated == source.format(found["capacity"])


def test_the_report_states_the_pace_of_a_trace_that_was_run(search, tmp_path):
    trace = tmp_path / "mine.csv"
    lines = [f"{at},5,5\n" for at in range(400)]
    trace.write_text("".join(["arrival_s,input_tokens,output_tokens\n", *lines]))
    _, _, plain = search(poisson=0.0, traces=(trace,), seconds=400.0, rate=20.0)
    (found,) = plain.values()
    report = json.loads((tmp_path / "report.json").read_text())
    lane = report["workload"]["lanes"]["mine"]
    assert lane["time_scale"] == pytest.approx(found["capacity"], rel=0.01)
    assert lane["portion"]["within"] == report["workload"]["window_ns"]
    assert f"sped up {lane['time_scale']:.1f} times" in (tmp_path / "report.html").read_text()


def test_the_page_draws_latency_and_throughput_against_the_rate_apart(search, tmp_path):
    _, _, plain = search()
    (found,) = plain.values()
    report = json.loads((tmp_path / "report.json").read_text())
    tried = {each["rate"]: each for each in found["tried"]}
    assert {each["rate"]: each["lanes"] for each in report["rates"]} == {
        rate: each["lanes"] for rate, each in tried.items()
    }
    for rate, each in tried.items():
        lane = each["lanes"]["poisson"]
        assert lane["ttft_p50"] == (50 * MS if rate <= 50 else 900 * MS)
        assert lane["good"] / lane["offered"] == each["attainment"]["poisson"]
        assert each["requests_per_second"] == pytest.approx(rate, rel=0.35)
    text = (tmp_path / "report.html").read_text()
    latency, amounts = (
        text.split(f'id="{name}"')[1].split("</section>")[0]
        for name in ("rates", "rates-throughput")
    )
    assert "budget 500 ms" in latency and "this run" in latency and "tokens" not in latency
    assert "output tokens / s" in amounts and "milliseconds" not in amounts
    assert latency.count("<tr><td") == amounts.count("<tr><td") == len(tried)
    assert amounts.count("<svg") == 2 and latency.count("<svg") == 1, "answers of one token"


def test_several_servers_have_a_row_each(search, tmp_path):
    status, said, plain = search(count=2)
    assert status == 0 and len(plain) == 2 and "Capacity at 95 %, requests / s" in said
    assert len(list(tmp_path.glob("127.0.0.1-*/report.html"))) == 2


def test_a_lane_whose_callers_all_leave_has_no_capacity(search, monkeypatch):
    monkeypatch.setattr(ComputedRun, "leave", True)
    status, said, plain = search()
    (found,) = plain.values()
    assert status == 0 and not found["capacity"] and "requests / s: nobody counts" in said


def test_a_server_that_keeps_no_rate_has_no_capacity(search, monkeypatch, tmp_path):
    monkeypatch.setattr(ComputedRun, "capacity", 0.001)
    status, said, _ = search()
    assert status == 0 and "capacity at 95 % none: misses budgets at every rate tried" in said
    assert not (tmp_path / "report.json").exists()


def test_a_rate_at_which_the_client_is_late_is_dropped_and_ends_the_search(search, monkeypatch):
    monkeypatch.setattr(ComputedRun, "lag", 20 * MS)
    _, said, plain = search()
    (found,) = plain.values()
    assert all(each["attainment"]["poisson"] == 1 for each in found["tried"])
    assert "the client itself was late" in found["ended_by"] and "at least" in said


def test_a_dead_server_ends_the_search_and_refused_connections_do_not(search, monkeypatch):
    monkeypatch.setattr(ComputedRun, "gone_at", 30.0)
    status, _, plain = search()
    (found,) = plain.values()
    assert status == 0 and found["capacity"] < 30 < max(each["rate"] for each in found["tried"])

    async def gone(self):
        raise SettingError("h does not answer: no connection: Connection refused")

    monkeypatch.setattr(find_capacity.Contact, "check", gone)
    status, said, plain = search()
    (found,) = plain.values()
    assert status == 1 and all(each["rate"] < 30 for each in found["tried"]) and found["capacity"]
    assert found["ended_by"].endswith("h does not answer: no connection: Connection refused")
    assert f"The search ends: {found['ended_by']}." in said and "at least" in said


def test_a_client_without_descriptors_ends_the_search_and_is_not_overload(search, monkeypatch):
    monkeypatch.setattr(ComputedRun, "gone_at", 30.0)
    monkeypatch.setattr(ComputedRun, "refusal", "the client itself: Too many open files")
    _, said, plain = search()
    (found,) = plain.values()
    assert found["ended_by"].endswith("had too few descriptors or ports: Too many open files")
    assert found["tried"] and all(each["rate"] < 30 for each in found["tried"])
    assert "at least" in said and all(each["attainment"]["poisson"] for each in found["tried"])


def test_a_search_that_is_broken_off_keeps_the_rates_it_tried(search, monkeypatch):
    monkeypatch.setattr(ComputedRun, "broken_at", 30.0)
    status, _, plain = search()
    (found,) = plain.values()
    assert status == 130 and len(found["tried"]) == 3 and found["ended_by"] == "it was broken off"
    monkeypatch.setattr(ComputedRun, "broken_at", 1.0)
    status, _, plain = search()
    assert status == 130 and next(iter(plain.values()))["capacity"] is None


def test_the_first_servers_capacity_is_kept_if_the_second_cannot_be_asked(
    search, monkeypatch, tmp_path
):
    asked, offers_of = [], find_capacity.offers_of

    def offers(work, lanes, wording, seed):
        asked.append(wording.target.name)
        if wording.target.name != asked[0]:
            raise SettingError("the text is too short")
        return offers_of(work, lanes, wording, seed)

    monkeypatch.setattr(find_capacity, "offers_of", offers)
    with pytest.raises(SettingError, match="too short"):
        search(count=2)
    plain = json.loads((tmp_path / "capacity.json").read_text())
    assert list(plain) == [asked[0]] and plain[asked[0]]["capacity"] >= 50 / 1.06
    assert len(list(tmp_path.rglob("report.html"))) == 1


@pytest.mark.parametrize(
    "wishes, named",
    [
        ({"ttft": 0.0}, "no lane has a budget; for instance --ttft 500"),
        ({"find_capacity": 101.0}, "a share in percent, such as 95, not 101"),
        ({"callers": 3}, "in an open loop: no --callers, --repeat"),
    ],
)
def test_a_capacity_search_with_impossible_options_is_refused(search, wishes, named):
    with pytest.raises(SettingError, match=named):
        search(**wishes)
