"""Each planted cause is named first, from a journal, a report, stored rows or a live server."""

import json
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from threading import Thread

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from headway.cli.app import app
from headway.commands.diagnose.causes.machine import SlowSteps
from headway.commands.diagnose.circumstances import circumstances
from headway.commands.diagnose.diagnosis import RULES, diagnose
from headway.commands.diagnose.diagnosis_report import DiagnosisReport
from headway.commands.diagnose.evidence import Evidence
from headway.commands.diagnose.missed import missed_requests
from headway.commands.diagnose.replayed import Replayed, replayed, simulated_settings
from headway.commands.diagnose.sources import server_look
from headway.commands.diagnose.sources.from_journal import journal_evidence
from headway.commands.diagnose.sources.from_ledger import ledger_evidence
from headway.commands.diagnose.sources.from_report import report_evidence
from headway.commands.diagnose.sources.from_server import server_diagnosis
from headway.commands.diagnose.sources.server_look import ServerLook
from headway.commands.diagnose.step_times import step_times
from headway.commands.diagnose.timeline import EmptyLine, Timeline
from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget
from headway.core.ledger import StepRow
from headway.core.policies.join import Continuous
from headway.core.request import NEVER, Finish, Request
from headway.errors import SettingError
from headway.journal import journal
from headway.report import report_json
from headway.server.config.config import ServerConfig
from headway.server.config.sections.lanes import LaneSettings
from headway.server.config.sections.strategy import NAMED, StrategySettings
from headway.strategies.strategy import Strategy
from tests.commands.diagnose import small_world
from tests.commands.diagnose.small_world import (
    CHAT,
    COST,
    FAULTS,
    MS,
    OFFLINE,
    SECOND,
    USUAL,
    served,
)
from tests.server.running_server import fake, serving


@pytest.fixture(scope="module")
def cases():
    """Evidence, rerun and diagnosis of each world."""

    @cache
    def case(name):
        evidence, rerun = served(name)
        return evidence, rerun, diagnose(evidence)

    return case


@pytest.mark.parametrize("cause", FAULTS)
def test_a_planted_fault_is_named_first(cases, cause):
    found = cases(cause)[2]
    assert found.hurts and found.first.cause == cause
    assert all("n = " in line or " of " in line for line in found.first.evidence)


def test_a_healthy_run_hurts_nowhere_and_says_why(cases):
    found = cases("healthy")[2]
    assert not found.hurts and found.first is None and found.findings == ()
    assert DiagnosisReport(found, "").sentence == (
        "Nothing hurts: 100 % of 150 requests met their limits, 0 missed one. 95 % are enough."
    )


def test_fewer_than_five_misses_are_called_possible_chance(cases):
    evidence = cases("window too long")[0]
    late = [each.row for each in missed_requests(evidence)[:4]]
    found = diagnose(replace(evidence, requests=tuple(late)))
    assert not found.hurts and DiagnosisReport(found, "").sentence == (
        "Nothing is known to hurt: 0 % of 4 requests met their limits, and fewer than 5 that did "
        "not may be chance."
    )


def test_without_a_cost_model_a_noisy_neighbour_is_found_and_drift_is_unknown():
    evidence, _ = journal_evidence(small_world.neighbour(StepCost()), StepCost())
    found = diagnose(evidence)
    assert found.first.cause == "noisy neighbour"
    assert "drift of the machine" in {each.cause for each in found.not_known}


def test_a_fit_to_slowed_steps_recovers_their_undisturbed_times(cases):
    evidence = cases("noisy neighbour")[0]
    fitted = step_times(replace(evidence, cost=StepCost()))
    given_ = step_times(evidence)
    assert fitted.is_fitted and not given_.is_fitted
    ratios = sorted(a / b for a, b in zip(fitted.expected, given_.expected, strict=True))
    assert ratios[len(ratios) // 10] == pytest.approx(1, abs=0.1)
    assert ratios[9 * len(ratios) // 10] == pytest.approx(1, abs=0.1)


def test_too_few_steps_leave_causes_in_step_times_unknown(cases):
    evidence = cases("drift of the machine")[0]
    found = diagnose(replace(evidence, steps=evidence.steps[:20], features=evidence.features[:20]))
    unknown = {each.cause: each.why for each in found.not_known}
    assert unknown["drift of the machine"] == "there are too few step rows to tell slow ones"
    assert found.first is None or found.first.cause not in unknown


# -- which requests count


def ended(cases, finish, lane=CHAT, every=10, below=6):
    """Diagnosis of a healthy run of which six of ten requests ended like this, without a token."""
    evidence = cases("healthy")[0]
    rows = [
        replace(row, finish=finish, lane=lane.name, budget=lane.budget, first_token=NEVER)
        if n % every < below
        else row
        for n, row in enumerate(evidence.requests)
    ]
    return diagnose(replace(evidence, requests=tuple(rows)))


@pytest.mark.parametrize("lane", [CHAT, OFFLINE])
def test_a_run_with_many_refused_or_failed_requests_hurts(cases, lane):
    refused, failed = (ended(cases, each, lane) for each in (Finish.REFUSED, Finish.ERROR))
    assert refused.hurts and failed.hurts and not refused.findings
    assert (refused.offered, refused.refused, failed.failed) == (150, 90, 90)
    assert DiagnosisReport(failed, "").sentence == (
        "It hurts: 40 % of 150 requests met their limits, 90 failed."
    )
    assert not ended(cases, Finish.REFUSED, lane, every=50, below=1).hurts


def test_an_expired_request_counts_as_missed_in_a_lane_without_limits(cases):
    found = ended(cases, Finish.EXPIRED, OFFLINE)
    assert (found.offered, found.missed, found.attainment) == (150, 90, pytest.approx(0.4))


def test_a_request_cancelled_before_its_first_token_is_not_counted(cases):
    patient = replace(CHAT, budget=Budget(ttft=60 * SECOND))
    found = ended(cases, Finish.CANCELLED, patient)
    said = DiagnosisReport(found, "")
    assert (found.offered, found.cancelled) == (60, 90) and "of 60 requests" in said.sentence
    assert said.left_out.startswith("Not counted: 90 cancelled before their first token")
    all_of_them = ended(cases, Finish.CANCELLED, patient, below=10)
    assert DiagnosisReport(all_of_them, "").sentence.startswith("Nothing is known to hurt")


def test_unfinished_requests_already_late_when_the_journal_ends_are_missed(tmp_path):
    crowd = [Request(f"c{n}", (n + 1,) * 200, 200, n * 5 * MS, "chat") for n in range(200)]
    whole = small_world.recorded(crowd)
    records = tuple(each for each in whole.records if each.now < 1_500 * MS)
    evidence, rerun = journal_evidence(replace(whole, records=records, cut=True), StepCost())
    found = diagnose(evidence)
    assert len(rerun.outcome.requests) == 1 and found.first.cause == "overload"
    assert found.offered + found.unfinished == 200 and found.missed > 100
    assert "that had not ended when the run did" in DiagnosisReport(found, "").left_out
    path = tmp_path / "report.json"
    report = report_json.Report({}, {"chat": CHAT}, {"mine": (rerun.outcome,)})
    report_json.write(report, [Strategy("mine", "", USUAL)], {}, path)
    evidence = report_evidence(report_json.read(path), "", "report.json")
    assert diagnose(evidence).unfinished == 199


def test_a_report_without_a_run_is_refused():
    with pytest.raises(SettingError, match=r"report\.json has no run"):
        report_evidence(report_json.Report({}, {"chat": CHAT}, {}), "", "report.json")


@pytest.mark.parametrize("gap", [0, 1_000])
def test_requests_that_arrive_at_one_moment_are_a_burst_with_a_finite_peak(gap):
    recording = small_world.recorded(
        [Request(f"c{n}", (n + 1,) * 100, 24, n * gap, "chat") for n in range(200)]
    )
    first = diagnose(journal_evidence(recording, StepCost())[0]).first
    assert first.cause == "burst"
    assert "0 ns of work usually come and 34.9 s at the peak" in first.evidence[1]


def test_a_report_does_not_say_how_many_may_wait(cases):
    evidence, rerun = cases("burst")[:2]
    limited = {"chat": replace(CHAT, max_waiting=300)}
    assert "(today 300 may wait)" in diagnose(replace(evidence, lanes=limited)).first.trial.words
    report = report_json.Report({}, {"chat": CHAT}, {"mine": (rerun.outcome,)})
    first = diagnose(report_evidence(report, "mine", "report.json")).first
    assert first.cause == "burst" and "may wait" not in first.trial.words


# -- causes outside the engine


def quick(cases):
    """Evidence of a healthy run, and the ids of its requests."""
    evidence = cases("healthy")[0]
    return evidence, [row.id for row in evidence.requests]


def test_a_slow_client_is_named_although_every_answer_was_in_time(cases):
    evidence, ids = quick(cases)
    waits = {id: 9 * SECOND if n % 3 == 0 else 0 for n, id in enumerate(ids)}
    found = diagnose(replace(evidence, client_waits=waits))
    assert found.first.cause == "slow client" and found.first.score == 1.0
    assert found.missed == 50


def test_a_last_byte_some_milliseconds_after_the_last_token_is_no_slow_client(cases):
    """Any last byte leaves a few milliseconds after the last token, whatever the client."""
    evidence, ids = quick(cases)
    rows = tuple(replace(row, finished=row.arrived + 2 * MS) for row in evidence.requests)
    rows = tuple(replace(row, budget=Budget()) for row in rows)
    found = diagnose(replace(evidence, requests=rows, client_waits=dict.fromkeys(ids, 3 * MS)))
    assert found.missed == 0 and not found.hurts


def test_a_slow_upload_is_not_taken_for_a_window_too_long(cases):
    """Each request arrives 700 ms before the engine has it, and nothing else runs."""
    recording = small_world.recorded(small_world.chats(40, 2 * SECOND))
    early = tuple(
        replace(
            record,
            commands=tuple(
                Add(replace(c.request, arrived=c.request.arrived - 700 * MS))
                if isinstance(c, Add)
                else c
                for c in record.commands
            ),
        )
        for record in recording.records
    )
    evidence, _ = journal_evidence(replace(recording, records=early), StepCost())
    found = diagnose(evidence)
    assert found.missed == 40 and "window too long" not in {each.cause for each in found.findings}


def test_a_slow_grammar_compile_is_named(cases):
    """Every third request arrives 600 ms before the engine has it."""
    evidence, ids = quick(cases)
    slow = frozenset(ids[::3])
    rows = tuple(
        replace(row, arrived=row.arrived - 600 * MS) if row.id in slow else row
        for row in evidence.requests
    )
    found = diagnose(replace(evidence, requests=rows, with_grammar=slow))
    assert found.first.cause == "grammar compile"
    plain = diagnose(replace(evidence, requests=rows, with_grammar=frozenset()))
    assert "grammar compile" not in {each.cause for each in plain.findings}


def test_a_missed_request_counts_against_its_first_missed_limit(cases):
    row = cases("healthy")[0].requests[0]
    budget = replace(CHAT.budget, queue=1 * MS, ttft=2 * MS, tpot=3 * MS, e2e=4 * MS)
    row = replace(
        row, budget=budget, arrived=0, first_scheduled=5 * MS, first_token=9 * MS,
        last_token=9 * MS + 23 * 8 * MS, finished=SECOND, generated=24,
    )  # fmt: skip

    def missed(**changed):
        (found,) = missed_requests(Evidence("", (replace(row, **changed),), {}))
        return found.limit, found.excess, found.span

    assert missed() == ("queue", 4 * MS, (0, 5 * MS))
    assert missed(first_scheduled=0) == ("ttft", 7 * MS, (0, 9 * MS))
    loose = replace(budget, queue=NEVER, ttft=NEVER)
    assert missed(budget=loose) == ("tpot", 23 * 5 * MS, (9 * MS, 193 * MS))
    assert missed(budget=replace(loose, tpot=NEVER)) == ("e2e", 996 * MS, (0, SECOND))
    never = {"first_token": NEVER, "first_scheduled": NEVER, "finish": Finish.EXPIRED}
    assert missed(**never) == ("queue", 999 * MS, (0, SECOND))
    assert not missed_requests(Evidence("", (replace(row, finish=Finish.REFUSED),), {}))


# -- parts


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(-9, 9)), max_size=9),
    st.lists(st.integers(-5, 99), min_size=3, max_size=3),
)
def test_the_parts_of_a_timeline_add_up_to_the_whole(spans, times):
    at, listed = 0, []
    for gap, length, amount in spans:
        listed.append((at + gap, at + gap + length, float(amount)))
        at += gap + length
    line, (a, b, c) = Timeline(listed), sorted(times)
    whole = sum(amount for _, _, amount in listed)
    assert line.signed(-9, at + 9) == pytest.approx(whole)
    assert line.signed(a, b) + line.signed(b, c) == pytest.approx(line.signed(a, c), abs=1e-9)
    assert line.signed(c, c) == 0


def step(number, waiting=0, nanoseconds=10):
    return StepRow(number, 10 * number, nanoseconds, 0, 1, 1, 1, 0, 0, 1, waiting, 9)


def test_a_delay_begins_where_the_line_was_last_empty():
    line = EmptyLine([step(0), step(1), step(2, waiting=1), step(3)])
    assert [line.before(time, -1) for time in (9, 10, 25, 39, 40)] == [-1, 10, 20, 20, 40]


def test_a_slowness_lasts_if_it_reaches_the_end_of_the_run(cases):
    evidence, _, _ = cases("drift of the machine")
    times, steps = circumstances(evidence).times, evidence.steps
    assert SlowSteps.of(steps, times).lasts
    assert not SlowSteps.of(cases("healthy")[0].steps, step_times(cases("healthy")[0])).lasts


def test_every_advised_headway_yaml_snippet_is_accepted_by_the_server(cases):
    checked = 0
    for cause in FAULTS:
        for finding in cases(cause)[2].findings:
            try:
                plain = yaml.safe_load(finding.trial.snippet)
            except yaml.YAMLError:  # a snippet for a proxy or a shell
                continue
            if not isinstance(plain, dict) or not {"engine", "lanes", "server"} & set(plain):
                continue
            for lane in plain.get("lanes", {}).values():
                lane.setdefault("ttft", "1s")
            if (engine := plain.get("engine", {})).pop("cost", None):
                engine.pop("strategy", None)
            strategy = engine.get("strategy")
            if isinstance(strategy, dict) and "window" in strategy:
                strategy["join"] = "dynamic"
            ServerConfig(**plain)
            checked += 1
    assert checked >= 8
    assert len({rule.cause for rule in RULES}) == len(RULES) == 13


# -- what replay says


@pytest.mark.parametrize("cause", ["window too long", "slot starvation by a lane"])
def test_replay_predicts_the_gain_of_the_advised_change(cases, cause):
    evidence, rerun, found = cases(cause)
    said = replayed(found.first.trial, rerun, evidence.cost, is_fitted=False)
    assert isinstance(said, Replayed)
    assert said.after["chat"] > said.before["chat"] + 0.1
    assert said.words.startswith("simulated") and "the cost model" in said.words
    assert not said.is_worse and "worse" not in said.words and "beginning" not in said.words


@pytest.mark.parametrize("cause", ["slot starvation by a lane", "burst", "overload"])
def test_replay_simulates_the_settings_that_are_printed(cases, cause):
    """The run has twice the slots that a comparison gives a strategy of that name."""
    evidence = replace(cases(cause)[0], policies=replace(USUAL, join=Continuous(32)))
    trial = diagnose(evidence).first.trial
    plain = yaml.safe_load(trial.snippet)
    assert plain.get("lanes", {}) == trial.lanes
    rerun = cases(cause)[1]
    found = simulated_settings(trial, rerun, COST)
    lanes = {lane.name: lane for lane in found.lanes}
    for name, fields in trial.lanes.items():
        settings = LaneSettings(ttft="1s", **fields).to_lane(name)
        assert all(getattr(lanes[name], field) == getattr(settings, field) for field in fields)
    if trial.strategy:
        assert trial.strategy == plain["engine"]["strategy"]
        served = StrategySettings(**NAMED[trial.strategy])
        assert found.policies == served.policies(32, 0, {})
    else:
        assert found.policies == rerun.recording.settings.policies


def test_a_lanes_own_window_is_printed_as_it_is_simulated():
    """A lane's window overrides the strategy's, so a change of the latter alone has no effect."""
    plain = {
        "lanes": {"chat": {"ttft": "500ms", "window": "3s"}},
        "engine": {"slots": 16, "strategy": {"join": "dynamic", "order": "first-come"}},
    }
    config = ServerConfig(**plain)
    policies = replace(config.policies, step_tokens=4_096)
    requests = small_world.chats(40, 700 * MS, answer=3)
    recording = small_world.recorded(requests, tuple(config.core_lanes), policies)
    evidence, rerun = journal_evidence(recording, StepCost())
    trial = diagnose(evidence).first.trial
    printed = yaml.safe_load(trial.snippet)
    plain["engine"]["strategy"] |= printed["engine"]["strategy"]
    plain["lanes"]["chat"] |= printed["lanes"]["chat"]
    served = ServerConfig(**plain).policies.join
    simulated = simulated_settings(trial, rerun, COST).policies.join
    assert served.windows["chat"] == simulated.window == 125 * MS and not simulated.windows


def test_replay_counts_the_answers_that_the_journal_holds_only_in_part():
    """A request that expired while waiting has no recorded tokens: no change seems to help it."""
    lane = replace(CHAT, budget=replace(CHAT.budget, queue=SECOND // 2))
    requests = [
        replace(each, start_by=each.arrived + SECOND // 2, end_by=each.arrived + SECOND // 2)
        for each in small_world.chats(40, 700 * MS, answer=3)
    ]
    policies = small_world.window().settings.policies
    recording = small_world.recorded(requests, (lane,), policies)
    evidence, rerun = journal_evidence(recording, StepCost())
    said = replayed(diagnose(evidence).first.trial, rerun, evidence.cost, is_fitted=False)
    expired = sum(row.finish is Finish.EXPIRED for row in evidence.requests)
    assert said.cut == expired > 30
    assert f"only the beginning of {expired} answers, which count as missed" in said.words


def test_a_change_that_makes_things_worse_is_called_worse():
    said = Replayed({"a": 0.9, "b": 0.5}, {"a": 0.8, "b": 0.6}, {"a": 30, "b": 10}, "")
    assert said.is_worse and "makes things worse" in said.words


def test_a_change_that_makes_things_worse_is_not_advised(cases):
    """A busy machine has no time for the extra steps of a smaller chunk."""
    evidence, rerun, found = cases("long prompts blocking")
    said = replayed(found.first.trial, rerun, evidence.cost, is_fitted=False)
    assert said.is_worse and DiagnosisReport(found, said).as_json["replay"]["is_worse"]
    console = Console(file=StringIO(), width=80)
    DiagnosisReport(found, said).print(console)
    text = console.file.getvalue()
    assert "No change is advised." in text and "worse here" in text and "chunk:" not in text


@pytest.mark.parametrize(
    "chats, gap, big, prompt, every", [(45, 70, 3, 1_250, 3), (30, 140, 8, 1_400, 1)]
)
def test_kv_thrash_by_long_prompts_advises_a_quarter_of_the_slots_at_least(
    chats, gap, big, prompt, every
):
    """Almost nothing runs beside a long prompt, so the mean number of running sequences is low:
    4.0 and 2.4."""
    long = [
        Request(f"big{n}", (10**6 + n,) * prompt, 24, every * (1 + n) * SECOND, "chat")
        for n in range(big)
    ]
    short = small_world.chats(chats, gap * MS, 300, 60)
    recording = small_world.recorded([*short, *long], blocks=90)
    evidence, rerun = journal_evidence(recording, StepCost())
    first = diagnose(evidence).first
    assert first.cause == "KV thrash" and first.trial.sets == {"slots": 4}
    assert not replayed(first.trial, rerun, evidence.cost, is_fitted=False).is_worse


def test_replay_says_where_it_cannot_help(cases):
    evidence, rerun, found = cases("noisy neighbour")
    said = replayed(found.first.trial, rerun, evidence.cost, is_fitted=False)
    assert said == "not possible by replay: the cause lies outside what a scheduler decides"


# -- the command


def written(recording, folder):
    path = folder / "small.jsonl"
    with path.open("w") as file:
        journal.begin(recording.settings, file)
        for record in recording.records:
            journal.write(record, file)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["diagnose", *map(str, arguments)])


def test_the_command_reads_a_journal(tmp_path):
    path = written(small_world.window(), tmp_path)
    said = run("--journal", path)
    assert said.exit_code == 1
    assert said.stdout.startswith("Likely cause: window too long.")
    assert "Replay: simulated" in said.stdout and "window: 125ms" in said.stdout
    assert max(map(len, said.stdout.splitlines())) <= 80
    plain = json.loads(run("--journal", path, "--json").stdout)
    assert plain["cause"] == "window too long" and plain["simulated"] and plain["hurts"]
    assert plain["replay"]["after"]["chat"] > plain["replay"]["before"]["chat"]


def test_the_command_reads_a_report_and_says_what_it_lacks(cases, tmp_path):
    outcome = cases("KV thrash")[1].outcome
    report = report_json.Report({}, {"chat": CHAT}, {"mine": (outcome,), "other": (outcome,)})
    strategies = [Strategy(name, "", USUAL) for name in ("mine", "other")]
    report_json.write(report, strategies, {}, tmp_path / "report.json")
    which = run("--report", tmp_path / "report.json").exception
    assert isinstance(which, SettingError) and "name one with --strategy: " in str(which)
    assert "[" not in str(which)
    said = run("--report", tmp_path / "report.json", "--strategy", "mine", "--json")
    plain = json.loads(said.stdout)
    assert plain["cause"] == "KV thrash" and not plain["simulated"]
    assert plain["replay"].startswith("not possible from a report")
    assert {"slow client", "grammar compile"} <= {each["cause"] for each in plain["not_known"]}


def test_the_command_refuses_several_sources_and_options_of_another_source():
    for arguments, words in (
        ((), "name one source"),
        (("--journal", "a", "--url", "http://b"), "name one source"),
        (("--url", "ftp://b"), "http://HOST:PORT"),
        (("--url", "http://127.0.0.1:9"), "cannot be read"),
        (("--report", "a", "--cost", "b"), "--cost goes with --journal"),
        (("--journal", "a", "--strategy", "b"), "names a run of a --report"),
        (("--journal", "a", "--model", "b"), "--model goes with --ledger or --url"),
    ):
        said = run(*arguments).exception
        assert isinstance(said, SettingError) and words in str(said)


def test_the_command_reads_a_live_server():
    with serving(ServerConfig(), fake) as (url, _):
        said = run("--url", url, "--seconds", "0.1", "--json")
    plain = json.loads(said.stdout)
    assert said.exit_code == 0 and not plain["hurts"]
    assert {each["cause"] for each in plain["not_known"]} >= {"cold cache", "noisy neighbour"}


METRICS = 'headway_steps_total{model_name="a",engine="0"} 3\n'
STATE = 'headway_engine_state{model_name="a",engine="0",state="%s"} %d\n'
LOADING = METRICS + STATE % ("loading", 1) + STATE % ("ready", 0)
DOWN = METRICS + STATE % ("loading", 0) + STATE % ("down", 1)


@pytest.mark.parametrize(
    "said, why",
    [
        ({}, "/metrics is not Prometheus text"),
        ({"/metrics": METRICS}, "/v1/lanes does not answer as a server of headway does"),
        ({"/metrics": METRICS, "/v1/lanes": "[]"}, "/v1/lanes does not answer as a server"),
        ({"/metrics": METRICS, "/v1/lanes": '{"data": [3]}'}, "/v1/lanes does not answer"),
        ({"/metrics": METRICS, "/v1/lanes": '{"data": []}'}, "has no lane of a for this key"),
        ({"/metrics": LOADING, "/v1/lanes": '{"data": []}'}, "the engine of a is loading"),
        ({"/metrics": DOWN, "/v1/lanes": '{"data": []}'}, "the engine of a is down"),
    ],
)
def test_a_url_that_cannot_be_diagnosed_is_refused_with_the_reason(said, why):
    class Site(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said.get(self.path, "<html>Welcome to nginx!</html>").encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        serves = Thread(target=server.serve_forever)
        serves.start()
        try:
            with pytest.raises(SettingError, match=why):
                server_look.look_at(f"http://127.0.0.1:{server.server_port}", "mine")
        finally:
            server.shutdown()
            serves.join()


def metrics(lines):
    return "\n".join(lines) + "\n"


@pytest.fixture
def two_models(monkeypatch):
    """The answers of a server with two healthy models, `one` with limits and `two` without. Three
    requests were refused before their model was known."""
    budget = {"ttft": 500.0, "tpot": 50.0, "e2e": None, "queue": None}
    said = {
        "/v1/lanes": json.dumps(
            {
                "data": [
                    {"id": "chat", "model": "one", "budget_ms": budget},
                    {"id": "chat", "model": "two", "budget_ms": dict.fromkeys(budget)},
                ]
            }
        )
    }
    shared = [(name, f'engine="0",model_name="{name}"') for name in ("one", "two")]
    said["/metrics"] = metrics(
        [
            'headway_requests_total{engine="0",model_name="",outcome="refused"} 3.0',
            *[
                f"{name}{{{labels}}} {value}"
                for model, labels in shared
                for name, value in (
                    ("headway_steps_total", 10.0),
                    ("headway_cost_drift_ratio", 1.0),
                    ("vllm:kv_cache_usage_perc", 0.5),
                    ("vllm:num_requests_waiting", 1.0),
                )
            ],
        ]
    )
    monkeypatch.setattr(server_look, "_get", lambda url, key: said[url.removeprefix("http://x")])


def test_a_live_server_with_several_models_is_looked_at_one_model_at_a_time(two_models):
    with pytest.raises(SettingError, match="several models: name one with --model: one, two"):
        server_look.look_at("http://x", "")
    with pytest.raises(SettingError, match="there is no model 'three'; there are one, two"):
        server_look.look_at("http://x", "", "three")
    looks = [server_look.look_at("http://x", "", "one") for _ in range(2)]
    seen = server_look.Between(*looks, 10.0)
    assert seen.now("headway_cost_drift_ratio") == 1.0, "ratios of two models are not summed"
    assert seen.now("headway_requests_total", outcome="refused") == 3.0
    assert looks[0].lanes["chat"]["budget_ms"]["ttft"] == 500.0
    assert server_diagnosis(*looks, 10.0, "x").findings == ()


def look(**values):
    """A look at a server with two lanes. values: samples of the lane chat, by a short name."""
    budget = {"ttft": 500.0, "tpot": 50.0, "e2e": None, "queue": None}
    lanes = {"chat": {"budget_ms": budget}, "bulk": {"budget_ms": dict.fromkeys(budget)}}
    samples = {}
    for name, value in values.items():
        name, _, label = name.partition("__")
        labels = tuple(sorted(tuple(each.split("_is_")) for each in label.split("__") if each))
        samples.setdefault(name, {})[labels] = value
    return ServerLook(samples, lanes)


def live(before, after):
    return server_diagnosis(look(**before), look(**after), 10.0, "a server")


def test_a_live_server_whose_time_goes_into_waiting_has_a_window_too_long():
    held = "headway_step_seconds_total__kind_is_waiting"
    late = "headway_requests_total__outcome_is_late"
    found = live({held: 5.0, late: 2.0}, {held: 11.0, late: 9.0})
    assert found.hurts and found.missed == 7
    assert found.first.cause == "window too long" and found.first.score == pytest.approx(0.6)
    assert "as far as counters show" in DiagnosisReport(found, "").sentence


def test_a_live_lane_that_holds_every_slot_is_diagnosed_as_slot_starvation():
    after = {
        "headway_batch_slots": 8.0,
        "headway_active_sequences__lane_is_bulk": 8.0,
        "headway_active_sequences__lane_is_chat": 0.0,
        "headway_oldest_wait_seconds__lane_is_chat": 3.0,
        "headway_waiting_requests__lane_is_chat": 5.0,
    }
    found = live({}, after)
    assert found.hurts and found.first.cause == "slot starvation by a lane"
    few = live({}, after | {"headway_waiting_requests__lane_is_chat": 4.0})
    assert not few.hurts and few.findings == ()
    without_lanes = [ServerLook(look(**each).samples, {}) for each in ({}, after)]
    assert not server_diagnosis(*without_lanes, 10.0, "x").hurts


def counts(good, late, lane="chat"):
    """Counters of good and of late requests of a lane."""
    name = f"headway_requests_total__lane_is_{lane}__outcome_is"
    return {f"{name}_good": good, f"{name}_late": late}


@pytest.mark.parametrize("drift, said", [(1.5, "1.50 times what"), (1.999, "2 times or more what")])
def test_a_drift_at_the_end_of_its_range_may_be_any_slower_machine(drift, said):
    slow = {"headway_cost_drift_ratio": drift}
    first = live(slow, slow | counts(0.0, 40.0)).first
    assert first.cause == "drift of the machine"
    assert first.evidence == (f"steps take {said} the cost model says, as a slow mean",)


def test_a_live_server_without_requests_is_not_called_healthy():
    found = live({}, {})
    assert not found.hurts and DiagnosisReport(found, "").sentence == (
        "Nothing is known to hurt: no request ended between the two looks."
    )


def test_a_live_server_where_nothing_hurts_gets_no_advice():
    lost = {"vllm:num_preemptions_total": 30.0, "headway_batch_slots": 64.0}
    for outcomes in (counts(400.0, 4.0), counts(0.0, 4.0)):
        found = live({}, outcomes | lost)
        assert not found.hurts and found.findings == ()
    assert [each.cause for each in live({}, counts(5.0, 5.0) | lost).findings] == ["KV thrash"]


def test_advised_slots_of_a_live_server_follow_all_its_steps_not_one_moment():
    """At the second look nothing runs."""
    after = counts(50.0, 50.0) | {
        "vllm:num_preemptions_total": 30.0,
        "vllm:num_requests_running": 0.0,
        "headway_batch_slots": 64.0,
    }
    assert live({}, after).first.trial.snippet == "engine:\n  slots: 48"
    sizes = {
        "headway_steps_total": 100.0,
        "headway_batch_size_sum__lane_is_chat": 4_000.0,
        "headway_batch_size_sum__lane_is_bulk": 1_200.0,
    }
    assert live({}, after | sizes).first.trial.snippet == "engine:\n  slots: 52"
    one = live({}, after | {"vllm:num_preemptions_total": 1.0})
    assert one.first is None, "one preemption is not why fifty were late"


@pytest.mark.parametrize("kind, cause", [("decode", "batch too large"), ("mixed", "long prompts")])
def test_fewer_than_20_slow_steps_of_a_live_server_are_no_finding(kind, cause):
    def asked(count, lane="chat"):
        name, of = "headway_step_duration_seconds", f"__kind_is_{kind}__rows_is_64"
        return live(
            {},
            counts(0.0, 9.0, lane)
            | {
                f"{name}_count{of}": count,
                f"{name}_bucket{of}__le_is_0.05": 0.0,
                f"{name}_bucket{of}__le_is_+Inf": count,
                "headway_batch_slots": 64.0,
            },
        )

    assert asked(19.0).hurts and asked(19.0).findings == ()
    assert asked(20.0).first.cause.startswith(cause)
    assert asked(20.0, "bulk").findings == (), "the limit is of a lane that had no requests"


# -- stored rows


def stored(row, **stages):
    """A row of ledger_requests, as the store has it."""
    return {
        "id": row.id, "lane": row.lane, "tenant": "", "arrived": row.arrived,
        "wall_ns": row.e2e + sum(stages.get(n, 0) for n in ("delivery", "sending")),
        "queue_ns": row.queue, "ttft_ns": row.ttft, "tpot_ns": row.tpot,
        "finish": str(row.finish), "relegated": False, "preemptions": row.preemptions,
        "fresh_tokens": row.prompt - row.cached, "cached_tokens": row.cached,
        "output_tokens": row.generated, "recomputed_tokens": row.recomputed, "version": 0,
        "discarded_tokens": row.discarded, "device_ns": row.nanoseconds,
        "stages": json.dumps(stages),
    }  # fmt: skip


def test_stored_rows_are_read_back_as_the_same_requests(cases):
    evidence = cases("healthy")[0]
    rows = [stored(row, tokenizing=3, inbox=4, sending=5) for row in evidence.requests]
    found = ledger_evidence(rows, evidence.lanes, "the store")
    again = {row.id: row for row in found.requests}
    for row in evidence.requests:
        same = again[row.id]
        assert (same.queue, same.ttft, same.tpot, same.e2e) == (
            row.queue,
            row.ttft,
            row.tpot,
            row.e2e,
        )
        assert same.good == row.good and same.prompt == row.prompt
        assert found.taken[row.id] == row.arrived + 7 and found.client_waits[row.id] == 5
    assert diagnose(found).first is None


def test_stored_rows_name_a_slow_client_and_leave_out_lanes_that_are_gone(cases):
    evidence = cases("healthy")[0]
    rows = [stored(row, sending=9 * SECOND) for row in evidence.requests]
    assert diagnose(ledger_evidence(rows, evidence.lanes, "")).first.cause == "slow client"
    assert ledger_evidence(rows, {}, "").requests == ()


def test_a_choice_that_waited_for_its_siblings_is_no_slow_client(cases):
    """The stage `delivery` of a choice lasts until the last choice of its call has ended."""
    evidence = cases("healthy")[0]
    rows = [stored(row, delivery=9 * SECOND, sending=1 * MS) for row in evidence.requests]
    found = ledger_evidence(rows, evidence.lanes, "")
    assert [row.finished for row in found.requests] == [row.finished for row in evidence.requests]
    assert not diagnose(found).hurts


def test_the_steps_of_a_healthy_small_world_take_what_its_cost_model_predicts(cases):
    evidence = cases("healthy")[0]
    priced = [COST.predict(each) for each in evidence.features]
    assert priced == [row.nanoseconds for row in evidence.steps]
