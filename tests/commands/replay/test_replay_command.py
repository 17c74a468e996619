"""A live run on the real executor, replayed row for row, and under other settings."""

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st
from rich.console import Console

import headway
from headway import LLM, Options
from headway.commands.replay.change import KEYS, Change, parse_change
from headway.commands.replay.recording import Recording, load
from headway.commands.replay.replay import ReplayOptions, run_replay
from headway.commands.replay.replay_report import CONTROL, RECORDED, WHAT_IF
from headway.commands.replay.rerun import rerun_journal
from headway.commands.replay.what_if import what_if
from headway.core.commands import Add, Cancel, Close, Refuse, Retune, Stop
from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import Rates, StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.ledger import RequestRow, StepRow
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Fixed
from headway.core.policies.defer import WithoutDeadline
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.core.policies.order import Priority
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane
from headway.core.policies.relegate import Hopeless
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.costing import calibration
from headway.costing.calibration import Calibration
from headway.errors import HeadwayError, JournalError, SettingError
from headway.journal import journal, origin
from headway.journal.file import JournalFile
from headway.report import report_json
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from tests.traces import COST, MS, THRASH, Case, ask, cases, run

PRICES = StepCost.of(4 * MS, per_token=150_000, per_pair=20)


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """A journal of the embedded model: more prompts than slots, a stop string, a client that left.

    Gives the journal and the rows of the live engine's own ledger.
    """
    path = tmp_path_factory.mktemp("journals") / "live.jsonl"
    steps, requests = list[StepRow](), list[RequestRow]()
    with LLM(dtype="float32", slots=2, journal=path) as llm:
        keep = llm._engine._rows

        def rows(more: list[StepRow], ended: list[RequestRow]) -> None:
            steps.extend(more)
            requests.extend(ended)
            keep(more, ended)

        llm._engine._rows = rows
        prompts = ["The json module", "A list is", "class", "If the file does not exist,"]
        llm.generate(prompts, Options(max_tokens=12, ignore_eos=True))
        stream = llm.stream("A longer one:", Options(max_tokens=1_500, ignore_eos=True))
        next(stream)
        stream.close()
        text = llm.generate("Return the", Options(max_tokens=20, ignore_eos=True))[0].text
        stopped = llm.generate("Return the", Options(40, ignore_eos=True, stop=text[8:11]))[0]
        assert stopped.finish is Finish.STOP
    return path, steps, requests


@pytest.fixture
def cost(tmp_path):
    """A cost file for the model that the journal names."""
    path = tmp_path / "cost.json"
    calibration.write_cost_file(made(), path)
    return path


def made(model="headway-tiny (embedded)", dtype="float32", slots=16, prices=PRICES):
    return Calibration(model, dtype, "cpu", {}, False, prices, 1_024, 512, 512, 16, 2_048, slots)


def told(path, **wishes):
    """The command's output and its exit status."""
    screen = Console(file=StringIO(), width=80, force_terminal=False)
    assert run_replay(ReplayOptions(path, **wishes), screen) == 0
    return screen.file.getvalue()


def plain(path, **wishes):
    return json.loads(told(path, as_json=True, **wishes))


def recorded(case, name="case.jsonl"):
    settings, records = journal.read(run(case).journal.splitlines())
    return Recording(name, {}, settings, tuple(records), cut=False)


def written(tmp_path, case=THRASH):
    path = tmp_path / "case.jsonl"
    path.write_text(run(case).journal)
    return path


def test_a_live_run_is_replayed_row_for_row(lived):
    path, steps, requests = lived
    again = rerun_journal(load(path))
    assert again.scheduler.ledger.requests == requests and len(requests) == 7
    assert again.scheduler.ledger.steps == steps and len(steps) > 20
    assert [row.finish for row in requests].count(Finish.CANCELLED) == 1
    assert again.recording.about["model"] == "headway-tiny (embedded)"
    assert again.recording.about["dtype"] == "float32" and again.recording.about["begun"][0] == "2"


def test_unchanged_settings_give_every_request_its_recorded_tokens(lived):
    """Steps are so fast that the cancelled request gets all its known tokens.

    With slower steps the cancel may come before it has had them all.
    """
    rerun = rerun_journal(load(lived[0]))
    priced = what_if(rerun, rerun.recording.settings, StepCost.of(1_000))
    assert priced.tokens == rerun.sampled and priced.outcome.complete
    assert priced.ran_out == {"r4"}, "no more is known of the cancelled answer"
    assert {row.id: row.finish for row in priced.outcome.requests} == {
        row.id: row.finish for row in rerun.outcome.requests
    }
    assert counted(priced.outcome) == counted(rerun.outcome)
    stopped = [row for row in rerun.outcome.requests if isinstance(rerun.ends.get(row.id), Stop)]
    assert [row.finish for row in stopped] == [Finish.STOP]
    assert len(rerun.sampled[stopped[0].id]) == stopped[0].generated + stopped[0].discarded


def test_a_request_cancelled_while_waiting_gets_no_tokens_and_the_others_keep_theirs(lived):
    """Steps are so slow that both slots are still taken when the request is cancelled."""
    rerun = rerun_journal(load(lived[0]))
    slow = what_if(rerun, rerun.recording.settings, StepCost.of(10_000 * MS))
    assert slow.tokens["r4"] == () != rerun.sampled["r4"] and not slow.ran_out
    assert {row.id: row.finish for row in slow.outcome.requests}["r4"] is Finish.CANCELLED
    others = {*rerun.sampled} - {"r4"}
    assert {id: slow.tokens[id] for id in others} == {id: rerun.sampled[id] for id in others}
    assert counted(slow.outcome) == counted(rerun.outcome)


def counted(outcome):
    """Tokens of each answer but the cancelled one, whose length depends on the times."""
    return {row.id: row.generated for row in outcome.requests if row.id != "r4"}


def test_fewer_slots_lengthen_waits_and_change_no_answer(lived, cost):
    said = plain(lived[0], cost=cost, sets=("slots=1",))
    assert list(said["runs"]) == [RECORDED, CONTROL, WHAT_IF]
    assert said["runs"][WHAT_IF]["policies"]["join"]["size"] == 1
    rerun = rerun_journal(load(lived[0]))
    control, fewer = (
        what_if(rerun, each, PRICES).outcome
        for each in (rerun.recording.settings, parse_change("", ["slots=1"]).apply(rerun, PRICES))
    )
    before, after = ({row.id: row.queue for row in each.requests} for each in (control, fewer))
    batch = ["r0", "r1", "r2", "r3"]  # submitted together
    assert all(after[id] >= before[id] for id in batch)
    assert [after[id] > before[id] for id in batch] == [False, True, True, True]
    assert counted(fewer) == counted(control)


def patient(add):
    """The request without its deadlines: of an expired answer only the beginning would be known."""
    return Add(replace(add.request, start_by=NEVER, end_by=NEVER))


@settings(deadline=None)
@given(cases())
def test_a_what_if_without_a_change_repeats_a_simulated_run(case):
    """The journal loses nothing that the control needs: the same prices give the same rows."""
    bare = [(at, patient(each)) for at, each in case.timed if isinstance(each, Add)]
    case = replace(case, timed=bare, burst=1)
    first = run(case)
    settings, records = journal.read(first.journal.splitlines())
    rerun = rerun_journal(Recording("", {}, settings, tuple(records), cut=False))
    priced = what_if(rerun, settings, COST)
    assert priced.outcome.steps == rerun.outcome.steps
    assert priced.outcome.requests == rerun.outcome.requests
    assert priced.tokens == rerun.sampled
    refused = {row.id for row in first.scheduler.ledger.requests if row.finish is Finish.REFUSED}
    event(f"refused {bool(refused)}")
    assert set(rerun.ends) == refused and not priced.ran_out


@pytest.mark.evidence
@settings(deadline=None)
@given(cases(), cases())
def test_any_change_completes_and_gives_no_request_another_answer(case, other):
    rerun = rerun_journal(recorded(case))
    lanes = [replace(each, step_tokens=Share()) for each in rerun.recording.settings.lanes]
    try:
        changed = replace(
            rerun.recording.settings,
            lanes=tuple(lanes),  # not every strategy takes a minimum of step tokens
            policies=other.policies,
            num_blocks=other.blocks,
            cost=COST,
        )
    except SettingError:
        reject()  # for instance, a window that follows the load holds no lane with a budget
    priced = what_if(rerun, changed, COST)
    assert priced.outcome.complete
    assert {row.id for row in priced.outcome.requests} == set(rerun.requests)
    for id, said in priced.tokens.items():
        assert said == rerun.sampled[id][: len(said)]
    before = {row.id: row for row in rerun.outcome.requests}
    for row in priced.outcome.requests:
        broken = Finish.CANCELLED, Finish.REFUSED, Finish.EXPIRED
        if row.id not in rerun.ends and row.finish not in broken:
            assert (row.finish, row.generated) == (before[row.id].finish, before[row.id].generated)
        event(f"{before[row.id].finish}, then {row.finish}")


def test_a_what_if_run_applies_the_recorded_retune_of_version_and_lanes():
    """The TTFT budget of version 7 is 1 ns: its request is late under any strategy."""
    lanes = Lane("bulk"), Lane("chat", Budget(ttft=1), -1)
    timed = [
        (0, Add(ask("before", 4, 3, lane="chat"))),
        (MS, Retune(7, Policies(), lanes)),
        (50 * MS, Add(ask("after", 4, 3, 50 * MS, lane="chat"))),
    ]
    rerun = rerun_journal(recorded(Case(32, Policies(), timed)))
    fewer = parse_change("", ["slots=1"]).apply(rerun, COST)
    patient = [replace(each, max_waiting=3) for each in fewer.lanes]
    for changed in (fewer, replace(fewer, lanes=tuple(patient))):
        before, after = what_if(rerun, changed, COST).outcome.requests
        assert (before.version, after.version, before.good, after.good) == (0, 7, True, False)


def test_requests_arrive_when_the_engine_could_first_see_them():
    """The second request arrives during the first one's step; a faster step sees it sooner."""
    timed = [
        (0, Add(ask("a", 8, 4, lane="chat"))),
        (9 * MS, Add(ask("b", 8, 2, 9 * MS, lane="chat"))),
    ]
    slow = rerun_journal(recorded(Case(32, Policies(join=Continuous(2)), timed)))
    assert [(at, type(each)) for at, each in slow.commands[:2]] == [(0, Add), (9 * MS, Add)]
    quick = what_if(slow, slow.recording.settings, StepCost.of(MS)).outcome
    assert [row.queue for row in quick.requests if row.id == "b"] == [0]


def test_requests_taken_in_together_after_a_sleep_arrive_together():
    """A sleeping engine wakes for the first, so both arrived then, whatever their stamps."""
    head = Policies(join=Continuous(2))
    first = recorded(
        Case(32, head, [(50 * MS, Add(ask(id, 8, 2, 3 * MS, lane="chat"))) for id in "ab"])
    )
    assert [at for at, _ in rerun_journal(first).commands] == [50 * MS, 50 * MS, 50 * MS]


def test_a_cancel_comes_at_its_time_or_where_the_known_tokens_end():
    timed = [(0, Add(ask("a", 8, 60, lane="chat"))), (100 * MS, Cancel("a"))]
    rerun = rerun_journal(recorded(Case(32, Policies(), timed)))
    slow = what_if(rerun, rerun.recording.settings, StepCost.of(60 * MS))
    quick = what_if(rerun, rerun.recording.settings, StepCost.of(MS))
    assert slow.outcome.requests[0].finished == 120 * MS and not slow.ran_out
    known = len(rerun.sampled["a"])
    assert quick.outcome.requests[0].finished == known * MS and quick.ran_out == {"a"}
    assert [each.outcome.requests[0].finish for each in (slow, quick)] == [Finish.CANCELLED] * 2


def test_a_refused_request_that_a_what_if_admits_has_no_known_tokens(tmp_path, cost):
    """Eight blocks of four tokens hold 30 tokens; four blocks do not."""
    rerun = rerun_journal(recorded(Case(4, Policies(), [(0, Add(ask("a", 20, 10, lane="chat")))])))
    assert rerun.incomplete == {Finish.REFUSED: 1}
    larger = replace(rerun.recording.settings, num_blocks=8)
    priced = what_if(rerun, larger, COST)
    assert priced.outcome.requests[0].finish is Finish.CANCELLED and priced.ran_out == {"a"}
    path = written(tmp_path, Case(4, Policies(), [(0, Add(ask("a", 20, 10, lane="chat")))]))
    words = " ".join(told(path, cost=cost, sets=("num_blocks=8",)).split())
    assert "only the beginning of some answers: 1 refused." in words
    assert "which happened to 0 in 'as priced' and 1 in 'what if'" in words


def test_a_request_refused_at_the_door_counts_and_is_refused_in_every_run(tmp_path, cost):
    """Of three requests the first is refused. It arrives 1 ms after the run's beginning."""
    lane, path = Lane("chat", Budget(ttft=10**6 * MS)), tmp_path / "case.jsonl"
    times = {"a": 1 * MS, "b": 2 * MS, "c": 9 * MS}
    asked = {id: ask(id, 5, 3, arrived=at, lane="chat") for id, at in times.items()}
    commands = [Refuse(asked["a"]), Add(asked["b"]), Add(asked["c"])]
    timed = [(each.request.arrived, each) for each in commands]
    head, *rest = run(Case(8, Policies(), timed, lanes=(lane,))).journal.splitlines()
    about = {"warm_up_ns": 3 * MS, "first_arrival_ns": 1 * MS}
    path.write_text("\n".join([json.dumps(json.loads(head) | {"about": about}), *rest]) + "\n")
    rerun = rerun_journal(load(path))
    assert (rerun.start, rerun.refused, rerun.outcome.offered) == (0, 1, {"chat": 3})
    assert rerun.incomplete == {} and set(rerun.sampled) == {"b", "c"}
    found = plain(path, cost=cost, sets=("slots=1",))
    assert found["refused_at_the_door"] == 1 and found["known_in_part"] == {}
    assert {each["latency"]["chat"]["offered"] for each in found["runs"].values()} == {1}
    priced = what_if(rerun, rerun.recording.settings, PRICES).outcome
    assert {row.id: row.good for row in priced.requests} == {"a": False, "b": True, "c": True}
    words = " ".join(told(path, cost=cost).split())
    assert "for 3 requests, and the books balance. 1 of the 3 requests count." in words
    assert "Refused when they came: 1 of the 3 requests. They are refused again in every" in words


def test_the_replays_output_fits_80_columns(lived, cost, tmp_path):
    said = told(lived[0], cost=cost, sets=("chunk=4", "order=shortest-first"), out=tmp_path / "out")
    words = " ".join(said.split())
    assert "are identical to the recorded ones, row for row, for 7 requests" in words
    assert "what if: chunk=4, order=shortest-first, with the same cost model" in words
    assert "only the beginning of some answers: 1 cancelled." in words
    assert max(len(line.rstrip()) for line in said.splitlines()) <= 80 and "…" not in said
    found = report_json.read(tmp_path / "out" / "report.json")
    again = rerun_journal(load(lived[0])).outcome
    assert found.outcomes[RECORDED] == again
    assert list(found.outcomes) == [RECORDED, CONTROL, WHAT_IF]


def test_an_invalid_warm_up_is_refused(tmp_path):
    head, *rest = run(THRASH).journal.splitlines()
    begun = json.loads(head)
    begun["about"] = {"warm_up_ns": "2 s"}
    (tmp_path / "odd.jsonl").write_text("\n".join([json.dumps(begun), *rest]) + "\n")
    with pytest.raises(JournalError, match="warm_up_ns is '2 s', not nanoseconds"):
        told(tmp_path / "odd.jsonl")


def test_without_a_cost_file_only_the_measured_run_is_shown(lived):
    assert "priced" not in told(lived[0])
    assert list(plain(lived[0])["runs"]) == [RECORDED]


def test_a_change_takes_a_shipped_strategy_or_one_from_a_file(lived, cost, tmp_path):
    rerun = rerun_journal(load(lived[0]))
    static = parse_change("static", ["slots=3"]).apply(rerun, PRICES).policies
    assert static.join == Static(3)
    (tmp_path / "mine.yaml").write_text("mine: {join: {continuous: {size: 5}}, chunk: {fixed: 7}}")
    mine = parse_change(str(tmp_path / "mine.yaml"), []).apply(rerun, PRICES).policies
    assert (mine.join, mine.chunk) == (Continuous(5), Fixed(7))
    assert plain(lived[0], cost=cost, strategy="static")["change"]["strategy"] == "static"


@pytest.mark.parametrize("recorded_slots, slots", [(64, 64), (8, 8), (1, 16)])
def test_a_named_strategy_has_the_recorded_slots(recorded_slots, slots):
    """A journal of one request at a time does not say how many slots its engine had."""
    case = replace(THRASH, policies=Policies(Continuous(recorded_slots)))
    rerun = rerun_journal(recorded(case))
    made = {
        name: parse_change(name, []).apply(rerun, PRICES).policies
        for name in ("budgets", "continuous-chunk-256", "static")
    }
    assert {name: each.slots for name, each in made.items()} == {
        "budgets": slots,
        "continuous-chunk-256": slots,
        "static": min(16, slots),
    }
    assert made["continuous-chunk-256"].step_tokens == slots + 256


@pytest.mark.parametrize(
    "sets, slots, chunk, step_tokens",
    [
        (["chunk=256"], 16, 256, 272),
        (["slots=64"], 64, 64, 128),
        (["slots=64", "chunk=256"], 64, 256, 320),
        (["chunk=256", "slots=64"], 64, 256, 320),
        (["chunk=256", "step_tokens=100"], 16, 256, 100),
    ],
)
def test_a_step_keeps_its_room_if_the_chunk_or_the_slots_change(sets, slots, chunk, step_tokens):
    policies = Policies(Continuous(16), chunk=Fixed(64), step_tokens=80)
    rerun = rerun_journal(recorded(replace(THRASH, policies=policies)))
    made = parse_change("", sets).apply(rerun, PRICES).policies
    assert (made.slots, made.chunk, made.step_tokens) == (slots, Fixed(chunk), step_tokens)


def test_every_key_of_a_change_is_obeyed():
    rerun = rerun_journal(recorded(THRASH))
    values = ["slots=3", "step_tokens=9", "chunk=5", "order=priority", "mix=alternate"]
    tested = {each.split("=")[0] for each in values} | {"window", "num_blocks"}
    assert tested | {"preempt", "defer", "relegate"} == set(KEYS)
    made = parse_change("", [*values, "num_blocks=70"]).apply(rerun, PRICES)
    policies = made.policies
    assert (policies.join, policies.step_tokens, policies.chunk) == (Continuous(3), 9, Fixed(5))
    for more in (["slots=90", "step_tokens=95"], ["step_tokens=95", "slots=90"]):
        assert parse_change("", more).apply(rerun, PRICES).policies.step_tokens == 95
    with pytest.raises(SettingError, match="step_tokens 9 is less than the 10 sequences"):
        parse_change("", ["step_tokens=9", "slots=10"]).apply(rerun, PRICES)
    assert policies.order == Priority() and type(policies.mix).__name__ == "Alternate"
    assert made.num_blocks == 70 and made.lanes == rerun.recording.settings.lanes
    whole = parse_change("", ["chunk=whole"]).apply(rerun, PRICES).policies.chunk
    assert type(whole).__name__ == "Whole"
    for join in (Dynamic(2, 500 * MS, {"chat": 0}), Dynamic(2, 9 * MS)):
        windowed = rerun_journal(recorded(replace(THRASH, policies=Policies(join=join))))
        assert parse_change("", ["window=2.5"]).apply(windowed, PRICES).policies.join == Dynamic(
            2, 2_500_000
        )
    classes = parse_change("length-classes", ["window=4"]).apply(rerun, PRICES).policies.join
    assert classes.window == 4 * MS


def test_budget_policies_predict_with_the_recorded_cost_model_or_else_the_cost_files():
    rerun = rerun_journal(recorded(THRASH))
    assert not rerun.recording.settings.cost.is_known
    made = parse_change("budgets", []).apply(rerun, PRICES)
    assert made.policies.predicting == ("ByDeadline", "BySlack", "WithTimeToSpare", "Hopeless")
    assert made.cost == PRICES
    sets = ["order={deadline: {turn: 3}}", "chunk=slack", "relegate=hopeless", "preempt=by-lane"]
    made = parse_change("", [*sets, "defer=without-deadline"]).apply(rerun, PRICES).policies
    assert (made.order, made.chunk) == (ByDeadline(turn=3), BySlack())
    assert (made.preempt, made.defer) == (ByLane(), WithoutDeadline())
    assert made.relegate == Hopeless()
    known = replace(rerun.recording, settings=replace(rerun.recording.settings, cost=COST))
    assert parse_change("budgets", []).apply(replace(rerun, recording=known), PRICES).cost == COST


@pytest.mark.parametrize(
    "wishes, words",
    [
        ({"sets": ["relegate=hopeful"]}, "'hopeful' is not known; did you mean hopeless"),
        ({"sets": ["slot=3"]}, "'slot' is not known; did you mean slots"),
        ({"sets": ["slots"]}, "write slots=VALUE"),
        ({"sets": ["slots=3", "slots=4"]}, "slots is given twice"),
        ({"sets": ["slots=many"]}, "slots is 'many', not a number"),
        ({"sets": ["slots=0"]}, "slots is 0; it must be 1 or more"),
        ({"sets": ["slots=[1"]}, "the value is not valid YAML"),
        ({"sets": ["order=prioritys"]}, "'prioritys' is not known; did you mean priority"),
        ({"sets": ["window=5"]}, "Continuous has no window"),
        ({"strategy": "statik"}, "there is no strategy 'statik'; did you mean static"),
        ({"strategy": "static,first-come"}, "names 2 strategies, give one: static, first-come"),
    ],
)
def test_an_impossible_change_is_refused_with_the_cause(wishes, words, tmp_path, cost):
    wishes = {key: tuple(v) if key == "sets" else v for key, v in wishes.items()}
    with pytest.raises(SettingError, match=words):
        told(written(tmp_path), cost=cost, **wishes)


def test_a_what_if_needs_a_cost_file_of_the_journals_model_executor_and_dtype(lived, tmp_path):
    with pytest.raises(SettingError, match=r"add --cost cost.json, which headway calibrate writes"):
        told(lived[0], sets=("slots=1",))
    calibration.write_cost_file(made(model="other"), tmp_path / "other.json")
    with pytest.raises(SettingError, match="this cost file is of other in float32, not of headway"):
        told(lived[0], cost=tmp_path / "other.json")
    calibration.write_cost_file(replace(made(), executor="vllm"), tmp_path / "other.json")
    with pytest.raises(SettingError, match="of the executor vllm, not of torch"):
        told(lived[0], cost=tmp_path / "other.json")
    calibration.write_cost_file(made(dtype="bfloat16"), tmp_path / "other.json")
    with pytest.raises(SettingError, match=r"not of headway-tiny .* in float32"):
        told(lived[0], cost=tmp_path / "other.json")


def test_untrustworthy_prices_give_warnings(tmp_path):
    """The journal names no model. Its steps are several times faster and wider than the fit's."""
    calibration.write_cost_file(made(slots=2, prices=StepCost.of(100 * MS)), tmp_path / "cost.json")
    words = " ".join(told(written(tmp_path), cost=tmp_path / "cost.json").split())
    assert "The journal names no model" in words
    assert "fitted to steps of up to 2 rows; here are steps of 4" in words
    assert "or this one was disturbed" in words
    calibration.write_cost_file(made(prices=COST), tmp_path / "cost.json")
    said = plain(written(tmp_path), cost=tmp_path / "cost.json")
    assert said["pricing"] == 1.0 and len(said["warnings"]) == 1


def test_an_unreliable_cost_file_gives_a_warning(lived, tmp_path):
    errors = {"all": {"median": 320, "p90": 500, "total": 180}}
    calibration.write_cost_file(replace(made(), about={"errors": errors}), tmp_path / "cost.json")
    said = plain(lived[0], cost=tmp_path / "cost.json")["warnings"]
    assert any("unreliable" in each and "+32% in the median step" in each for each in said)


def test_a_step_after_a_sleep_includes_the_price_of_waking(tmp_path):
    timed = [(at * MS, Add(ask(f"r{at}", 8, 3, at * MS, lane="chat"))) for at in (0, 900)]
    case = Case(32, Policies(), timed)
    spent = sum(row.nanoseconds for row in run(case).scheduler.ledger.steps)
    calibration.write_cost_file(made(prices=replace(COST, wake=2 * MS)), tmp_path / "cost.json")
    said = plain(written(tmp_path, case), cost=tmp_path / "cost.json")
    assert said["pricing"] == pytest.approx((spent + 2 * 2 * MS) / spent)


def test_recorded_steps_are_priced_with_the_cost_files_padding(tmp_path):
    gathering, path = Gathering(4, at_once=40), written(tmp_path)
    cost = replace(COST, device=replace(COST.device, read=MS * 1_000), gathering=gathering)
    calibration.write_cost_file(made(prices=cost), tmp_path / "cost.json")
    spent = sum(row.nanoseconds for row in run(THRASH).scheduler.ledger.steps)
    padded = sum(map(cost.predict, rerun_journal(load(path), gathering).steps))
    assert plain(path, cost=tmp_path / "cost.json")["pricing"] == pytest.approx(padded / spent)
    assert padded > sum(map(cost.predict, rerun_journal(load(path)).steps))


def test_the_first_step_without_prompts_includes_its_extra_price(tmp_path):
    timed = [(0, Add(ask("one", 8, 3, 0, lane="chat")))]
    case = Case(32, Policies(), timed)
    spent = sum(row.nanoseconds for row in run(case).scheduler.ledger.steps)
    calibration.write_cost_file(made(prices=replace(COST, turn=2 * MS)), tmp_path / "cost.json")
    said = plain(written(tmp_path, case), cost=tmp_path / "cost.json")
    assert said["pricing"] == pytest.approx((spent + 2 * MS) / spent), "one of three steps"


def test_a_journal_that_ends_with_a_step_in_flight_is_priced_without_it(tmp_path):
    timed = [(0, Add(ask(id, 8, 9, lane="chat"))) for id in "ab"]
    path = written(tmp_path, Case(32, Policies(Continuous(2)), timed, cost=COST, depth=2))
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    rerun = rerun_journal(load(path))
    assert rerun.scheduler.steps > len(rerun.steps) == len(rerun.scheduler.ledger.steps) > 0
    calibration.write_cost_file(made(prices=COST), tmp_path / "cost.json")
    assert plain(path, cost=tmp_path / "cost.json")["pricing"] == 1.0


def served_at(cost, path):
    """Serve two answers with two steps in flight, at these prices, and write the journal."""
    requests = [ask(id, 8, 60, lane="chat") for id in "ab"]
    settings = Settings(99, 4, (Lane("chat"),), Policies(Continuous(2)), cost=cost, depth=2)
    clock, scheduler = VirtualClock(), Scheduler(settings)
    inbox, priced = TraceInbox(arrivals(requests), clock), PricedExecutor(cost, clock)
    engine = VirtualEngine(scheduler, priced, inbox, clock, priced)
    with JournalFile(path, settings, {}) as file:
        engine.keep = file.keep
        while not scheduler.finished:
            engine.step()


@pytest.mark.parametrize("host", [3, 40])
def test_steps_decided_while_another_is_computed_are_priced_without_the_hosts_time(tmp_path, host):
    """The device takes 12 ms a step. The host takes less, or more."""
    parts = {"host": Rates(step=host * MS * 1_000), "after": Rates(step=2 * MS * 1_000)}
    served_at(cost := replace(COST, **parts), path := tmp_path / "deep.jsonl")
    assert rerun_journal(load(path)).overlapped.count(True) > 50
    calibration.write_cost_file(made(prices=cost), tmp_path / "cost.json")
    said = plain(path, cost=tmp_path / "cost.json")
    assert said["pricing"] == pytest.approx(1, abs=0.02)
    assert not any("disturbed" in each for each in said["warnings"])


def test_a_killed_run_is_replayed_as_far_as_it_was_written(lived, cost, tmp_path):
    text = lived[0].read_text()
    lines = text.splitlines()
    path = tmp_path / "killed.jsonl"
    path.write_text("\n".join(lines[:9]) + "\n" + lines[9][:-7])
    words = " ".join(told(path, cost=cost).split())
    assert "The last line is cut off and left out; 8 records are complete." in words
    assert "The journal ends before the run does" in words and "unfinished" in words
    found = plain(path, cost=cost)
    assert found["cut"] and not found["complete"] and found["records"] == 8
    assert found["runs"][RECORDED]["engine"]["unserved"] == found["known_in_part"]["unfinished"]
    path.write_text("\n".join(lines[:9]) + "\n")
    assert not plain(path)["cut"]


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "bad.jsonl: line 1 is not JSON"),
        ("hello\nworld\n", "bad.jsonl: line 1 is not JSON"),
        ('{"headway_journal": 1}\n', "of version 1; headway .* reads version 10"),
        ('{"headway_jour', "bad.jsonl: line 1 is not JSON; was the run cut off there"),
        ("[]\n", "line 1 is not the head of a journal"),
    ],
)
def test_a_file_that_is_no_journal_is_refused(text, words, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(JournalError, match=words):
        told(path)


def test_a_damaged_journal_is_refused_with_its_line(tmp_path):
    lines = run(THRASH).journal.splitlines()
    path = tmp_path / "bad.jsonl"

    def damaged(at, line):
        path.write_text("\n".join([*lines[:at], *line, *lines[at + 1 :]]) + "\n")
        with pytest.raises(JournalError) as caught:
            told(path)
        return str(caught.value)

    assert "bad.jsonl: line 4 is not JSON" in damaged(3, ["[3, 17"])
    assert "the run has parted from its journal: step" in damaged(3, [])
    assert "two of its requests have the id 'r0'" in damaged(3, [lines[1], lines[3]])
    path.write_text(lines[0] + "\n")
    with pytest.raises(JournalError, match="a head and no complete record"):
        told(path)
    with pytest.raises(JournalError, match=r"nothing.jsonl cannot be read: No such file"):
        told(tmp_path / "nothing.jsonl")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(JournalError, match="is not a journal: it is not text"):
        told(path)


OTHERS = [  # what the head says of the run, and what the error says of the journal's writer
    ({"headway": "0.0.1"}, "headway 0.0.1 wrote it: replay it with that version"),
    (
        {"headway": "0.0.1", "begun": "2026-01-31T10:00:00Z"},
        r"headway 0.0.1 wrote it \(2026-01-31T10:00:00Z\): replay it with that version",
    ),
    ({"headway": headway.__version__}, "of other source code wrote it: replay it with that code"),
    (origin.own() | {"source": "0"}, "of other source code wrote it: replay it with that code"),
]


@pytest.mark.parametrize("about, words", OTHERS)
def test_a_rerun_that_differs_says_which_headway_wrote_the_journal(tmp_path, about, words):
    head, *lines = run(THRASH).journal.splitlines()
    old = json.dumps(json.loads(head) | {"about": about})
    path = tmp_path / "old.jsonl"
    path.write_text("\n".join([old, *lines[:2], *lines[3:]]))
    with pytest.raises(JournalError, match=f"old.jsonl: the run has parted .*; .*{words}"):
        told(path)
    path.write_text(
        "\n".join([old, *lines[:2], '[3, 1, [{"is": "Pause"}], 0, [], {}, 0, 0, 0]', ""])
    )
    with pytest.raises(JournalError, match=f"old.jsonl: line 4 has a 'Pause', .*{words}"):
        told(path)


@pytest.mark.parametrize("about", [{}, {"model": "tiny"}, {**origin.own(), "model": "tiny"}])
def test_the_error_names_no_other_writer_for_a_journal_of_this_headway(tmp_path, about):
    head, *lines = run(THRASH).journal.splitlines()
    path = tmp_path / "own.jsonl"
    own = json.dumps(json.loads(head) | {"about": about})
    path.write_text("\n".join([own, *lines[:2], *lines[3:]]))
    with pytest.raises(JournalError, match="has parted from its journal") as caught:
        told(path)
    assert "wrote it" not in str(caught.value)


def test_a_journal_of_an_older_headway_is_refused_in_one_line():
    """version7.jsonl: `headway generate "The json module" "A list is" --max-tokens 8`."""
    with pytest.raises(JournalError) as caught:
        told(Path(__file__).with_name("version7.jsonl"))
    assert str(caught.value) == (
        f"version7.jsonl: this is a journal of version 7; headway {headway.__version__} reads "
        "version 10: headway 0.1.0 of other source code wrote it (2026-11-23T14:32:55Z): replay it "
        "with that code"
    )


@settings(deadline=None)
@given(case=cases(), first=st.integers(0, 7))
def test_a_journal_with_any_line_missing_gives_a_readable_error(case, first):
    """Every eighth line is left out by itself. There is no error if it changed no row."""
    recording = recorded(case)
    for at in range(first, len(recording.records), 8):
        left = recording.records[:at] + recording.records[at + 1 :]
        try:
            rerun_journal(replace(recording, records=left))
        except HeadwayError as error:
            assert "case.jsonl" in str(error) and "\n" not in str(error)
        except IndexError:
            assert not left


def test_a_recorded_close_is_the_last_command_of_the_rerun():
    rerun = rerun_journal(recorded(THRASH))
    assert [each for _, each in rerun.commands][-1] == Close()
    assert (
        parse_change("", []) == Change()
        and str(parse_change("static", ["slots=2"])) == "static, slots=2"
    )


def test_replay_needs_no_torch():
    """A laptop can then replay what an accelerator served."""
    import subprocess

    code = "import headway.commands.replay.replay, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
