"""headway tune: the search, its check, the file that it writes, and what it refuses."""

import json
from dataclasses import replace
from io import StringIO
from signal import SIGKILL, raise_signal
from types import SimpleNamespace

import pytest
from rich.console import Console

from headway.commands.tune import search, tuning
from headway.commands.tune.advice.legal_wait import legal_waits
from headway.commands.tune.advice.rule_of_thumb import BUDGETS, CHUNKS, FILLER, WHOLE, rule_of_thumb
from headway.commands.tune.advice.vllm_arguments import vllm_arguments
from headway.commands.tune.candidate import (
    Candidate,
    first_candidates,
    lane_neighbours,
    neighbours,
    sizes,
)
from headway.commands.tune.options import TuneOptions
from headway.commands.tune.ranking import by_cost, finalists
from headway.commands.tune.site import Site, read_back
from headway.commands.tune.trial import Score, Trial, longest_step, run_trial
from headway.commands.tune.tune import run_tune
from headway.commands.tune.tune_report import FIRST_LINE, check_outs, in_lines, write_json
from headway.core.lane import Budget, Lane, Share
from headway.core.ledger import StepRow
from headway.core.request import NEVER
from headway.costing.calibration import write_cost_file
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError, WorkerLostError
from headway.strategies.window import Window
from headway.traffic.endpoint import UnloadedLatency
from tests.commands.small_cost_model import CALIBRATION, LANES, lanes

MS = 1_000_000
FEW = [  # instead of the coarse grid, so that the tests end in seconds
    Candidate("continuous-mixed", 4, step_tokens=512),
    Candidate("first-come", 4, 64),
    Candidate("dynamic-lanes", 4, window=25),
]
CHAT = Lane("chat", Budget(ttft=100 * MS, tpot=30 * MS))
BATCH = Lane("batch", priority=1)


def search_few(patch):
    patch.setattr(tuning, "first_candidates", lambda most, context, lanes: FEW)
    patch.setattr(search, "ROUNDS", 1)


@pytest.fixture
def few(monkeypatch):
    search_few(monkeypatch)


def tuned(folder, **wishes):
    """Tune; return the exit status, the output, and the options."""
    cost = folder / "cost.json"
    if not cost.exists():
        write_cost_file(CALIBRATION, cost)
    usual = {"lanes": lanes(folder), "requests": 25, "workers": 1, "json": folder / "tune.json"}
    options = TuneOptions(cost, out=folder / "headway.yaml", **{**usual, **wishes})
    screen = Console(file=StringIO(), width=80)
    return run_tune(options, screen), screen.file.getvalue(), options


def site(*given, windows=None):
    return Site(given or (CHAT, BATCH), windows or {}, (64, 256), 2_048, 16, "cost.json", "")


# -- the whole command


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One tuning whose output is a symlink, beside a user's file; what `tuned` returned."""
    folder = tmp_path_factory.mktemp("tune")
    (folder / "kept.yaml").write_text(FIRST_LINE)
    (folder / "headway.yaml").symlink_to("kept.yaml")
    (folder / "headway.part").write_text("mine")
    with pytest.MonkeyPatch.context() as patch:
        search_few(patch)
        return tuned(folder, requests=15)


def test_the_written_configuration_is_the_one_found_and_a_server_reads_it(ran):
    status, said, options = ran
    assert status == 0
    text = options.out.read_text()
    assert text.startswith(FIRST_LINE) and "Held-out windows, first-come" in text
    found = json.loads(options.json.read_text())
    config = read_back(options.out)
    assert config.engine.slots == found["config"]["engine"]["slots"]
    assert config.engine.threads == CALIBRATION.threads == 3, "the step times hold for them alone"
    assert list(config.lanes) == ["chat", "voice"]
    assert config.lanes["voice"].ttft == 60 * MS
    held = found["held_out"]
    assert list(held) == ["recommended", "server's default", "first-come"]
    least = min(held["recommended"]["attainment"].values())
    assert least >= 0.95 and held["recommended"]["capacity"] > 0
    assert max(map(len, said.splitlines())) <= 80
    assert found["vllm"]["arguments"].startswith(f"--max-num-seqs {config.engine.slots} ")


def test_an_output_that_is_a_symlink_stays_a_symlink(ran):
    out = ran[2].out
    assert out.is_symlink()
    assert list(read_back(out.with_name("kept.yaml")).lanes) == ["chat", "voice"]


def test_the_baselines_have_no_more_slots_than_the_cost_file():
    for most, slots in ((8, 8), (64, 32)):
        made = SimpleNamespace(site=site(), most_slots=most)
        assert {each.slots for each in tuning.Tuning.others.fget(made).values()} == {slots}


@pytest.mark.evidence
def test_the_number_of_processes_does_not_change_the_answer(tmp_path, few):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    tuned(one, workers=1, requests=10)
    tuned(two, workers=2, requests=10)
    assert (
        json.loads((one / "tune.json").read_text())["held_out"]
        == (json.loads((two / "tune.json").read_text())["held_out"])
    )
    bodies = [
        (folder / "headway.yaml").read_text().replace(str(folder), "") for folder in (one, two)
    ]
    assert bodies[0] == bodies[1]


def test_tuning_at_a_given_rate_reports_the_cost_and_too_few_requests(tmp_path, few):
    status, said, options = tuned(tmp_path, rate=8.0, requests=10)
    found = json.loads(options.json.read_text())
    held = found["held_out"]["recommended"]
    assert (status, found["rate"], held["at_rate"]) == (0, 8.0, 8.0)
    assert "device-ms" in said and held["device_ms_per_request"] > 0
    assert held["n"] < 100
    assert f"by too few requests to be sure (n {held['n']} of " in " ".join(said.split())


def test_a_rate_that_no_settings_keep_is_refused(tmp_path, few):
    with pytest.raises(SettingError, match=r"no settings keep every lane: at 5e\+03 .* lower"):
        tuned(tmp_path, rate=5_000.0, requests=10)


def test_an_interrupted_search_keeps_the_best_so_far(tmp_path, few, monkeypatch):
    def broken(self, *given):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Search, "_descend", broken)
    status, said, options = tuned(tmp_path, requests=10)
    assert status == 130 and "was not checked" in " ".join(said.split())
    assert "NOT CHECKED" in options.out.read_text()
    read_back(options.out)


def dies(job):
    """Runs in the worker, and kills it as a system without memory does."""
    raise_signal(SIGKILL)


def test_a_killed_worker_raises_one_error_and_the_best_so_far_is_kept(tmp_path, few, monkeypatch):
    descended = search.Search._descend

    def descend(self, *given):
        monkeypatch.setattr(search, "_scored", dies)
        descended(self, *given)

    monkeypatch.setattr(search.Search, "_descend", descend)
    with pytest.raises(WorkerLostError, match="take fewer --workers"):
        tuned(tmp_path, workers=2, requests=10)
    assert "NOT CHECKED" in (tmp_path / "headway.yaml").read_text()


def test_a_search_interrupted_before_any_result_writes_no_file(tmp_path, few, monkeypatch):
    def broken(self, *given):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Search, "_ladder", broken)
    status, said, options = tuned(tmp_path, requests=10)
    assert status == 130 and "no file" in said and not options.out.exists()


@pytest.mark.parametrize(
    "text, why",
    [
        ("chat: {arrivals: poisson, prompt: 9, answer: 9}", "no lane of given.yaml has a budget"),
        (
            "Chat: {arrivals: poisson, prompt: 9, answer: 9, budget: {ttft: 90}}",
            "lanes.Chat should match pattern",
        ),
        (
            "chat: {arrivals: poisson, prompt: 9, answer: 9, rate: 2, budget: {ttft: 90}}",
            "every lane has a rate of its own",
        ),
    ],
)
def test_lanes_that_cannot_be_tuned_are_refused_in_one_line(tmp_path, text, why):
    path = tmp_path / "given.yaml"
    path.write_text(text)
    with pytest.raises(SettingError) as error:
        tuned(tmp_path, lanes=path)
    assert why in str(error.value) and "\n" not in str(error.value)


def test_missing_or_bad_input_is_refused_with_the_reason(tmp_path):
    empty = tmp_path / "empty.csv"
    empty.write_text("arrival_s,input_tokens,output_tokens\n")
    short = tmp_path / "short.csv"
    short.write_text("arrival_s,input_tokens,output_tokens\n0,9,9\n1,9,9\n")
    for wishes, why in (
        ({"lanes": None}, "give --lanes"),
        ({"lanes": None, "traces": (empty,)}, "the trace empty.csv has no arrivals"),
        ({"lanes": None, "traces": (short,)}, "4 windows need at least 8"),
        ({"model": "other"}, "this cost file is of handmade"),
        ({"rate": float("nan")}, "--rate is nan, not a number"),
    ):
        with pytest.raises(SettingError, match=why):
            tuned(tmp_path, **wishes)
    (tmp_path / "headway.yaml").write_text("engine: {slots: 3}\n")
    with pytest.raises(SettingError, match="is there already, and not by headway tune"):
        tuned(tmp_path)


def test_files_that_cannot_be_written_are_refused_before_the_search(tmp_path):
    (tmp_path / "folder.yaml").mkdir()
    yaml = tmp_path / "one.yaml"
    for out, json_path, why in (
        (yaml, yaml, "--out and --json are both"),
        (tmp_path / "folder.yaml", None, r"folder\.yaml is a folder: name a file in it"),
        (yaml, tmp_path, "is a folder"),
        (tmp_path / "none" / "one.yaml", None, "there is no folder"),
        (yaml, tmp_path / "none" / "one.json", "there is no folder"),
    ):
        with pytest.raises(SettingError, match=why):
            check_outs(out, json_path)


def test_inputs_and_files_that_tune_did_not_write_are_not_replaced(tmp_path):
    out, cost = tmp_path / "one.yaml", tmp_path / "cost.json"
    cost.write_text('{"headway_cost": 2}')
    out.write_text(f"{FIRST_LINE}: once an output\n")
    for given, json_path, inputs, why in (
        (out, None, [out], "--out .* would replace the input"),
        (tmp_path / "two.yaml", cost, [cost], "--json .* would replace the input"),
        (out, cost, [], "is there already, and not by headway tune: name another --json"),
    ):
        with pytest.raises(SettingError, match=why):
            check_outs(given, json_path, inputs)
    write_json({"headway_tune_pipeline": 1}, tmp_path / "found.json")
    check_outs(out, tmp_path / "found.json")


def test_the_cost_file_is_not_replaced_by_the_json(tmp_path, few):
    write_cost_file(CALIBRATION, tmp_path / "cost.json")
    before = (tmp_path / "cost.json").read_text()
    with pytest.raises(SettingError, match="would replace the input"):
        tuned(tmp_path, json=tmp_path / "cost.json")
    assert (tmp_path / "cost.json").read_text() == before


def test_a_users_part_file_beside_the_configuration_is_left_alone(ran):
    folder = ran[2].out.parent
    assert (folder / "headway.part").read_text() == "mine"
    assert sorted(path.name for path in folder.glob("*.part")) == ["headway.part"]


# -- candidates


def test_every_candidate_makes_a_configuration_that_a_server_accepts():
    place = site()
    for each in first_candidates(64, 2_048, 2):
        config = place.config(each)
        assert config.policies.slots == each.slots
        assert not each.chunk or config.policies.chunk.size == each.chunk
        if each.step_tokens:
            assert config.policies.step_tokens == each.slots + each.step_tokens


def test_neighbours_differ_in_one_setting_and_stay_in_range():
    middle = Candidate("first-come", 16, 256)
    found = neighbours(middle, 32, 2_048)
    assert found == [
        Candidate("first-come", 8, 256),
        Candidate("first-come", 16, 128),
        Candidate("first-come", 16, 512),
        Candidate("first-come", 32, 256),
    ]
    assert Candidate("dynamic-lanes", 4, window=10) in neighbours(
        Candidate("dynamic-lanes", 4, window=5), 4, 2_048
    )
    assert all(each.slots <= 32 for each in neighbours(replace(middle, slots=32), 32, 2_048))
    assert Candidate("budgets", 4, step_tokens=1_024) in neighbours(
        Candidate("budgets", 4), 4, 2_048
    )


def test_lane_neighbours_change_one_lanes_share_or_window_by_one_step():
    plain = Candidate("budgets", 16)
    assert lane_neighbours(plain, ["chat", "batch"]) == [
        replace(plain, most=(("batch", 75),)),
        replace(plain, most=(("chat", 75),)),
        replace(plain, least=(("batch", 10),)),
        replace(plain, least=(("chat", 10),)),
    ]
    both = replace(plain, least=(("chat", 10),), most=(("batch", 75),))
    found = lane_neighbours(both, ["chat", "batch"])
    assert replace(plain, most=(("batch", 75),)) in found, "back to none"
    assert replace(both, least=(("batch", 10), ("chat", 10))) in found
    assert replace(both, most=(("batch", 50),)) in found
    groups = Candidate("dynamic-lanes", 16, window=5)
    assert lane_neighbours(groups, ["chat"]) == [replace(groups, windows=(("chat", 10),))]
    wider = replace(groups, windows=(("chat", 10),))
    assert lane_neighbours(wider, ["chat"]) == [
        groups,
        replace(groups, windows=(("chat", 25),)),
    ]
    assert lane_neighbours(Candidate("length-classes", 4, window=5), ["chat"]) == []


def test_a_candidates_text_names_the_shares_and_windows_of_lanes():
    shares = Candidate("budgets", 16, least=(("chat", 10),), most=(("batch", 75),))
    assert shares.text == (
        "budgets, 16 slots, chat at least 10 % of the slots, batch at most 75 % of the slots"
    )
    windows = Candidate("dynamic-lanes", 16, window=5, windows=(("chat", 10),))
    assert windows.text == "dynamic-lanes, 16 slots, windows 5 %, window of chat 10 %"


def test_sizes_fall_by_a_factor_and_never_below_one():
    assert sizes(64, 4, 3) == [64, 16, 4]
    assert sizes(4, 4, 3) == [4, 1]


def test_lanes_get_shares_of_the_slots_and_a_users_own_share_is_kept():
    shares = Candidate("budgets", 16, least=(("chat", 10),), most=(("batch", 25),))
    lanes = site().plain(shares)["lanes"]
    assert (lanes["chat"]["slots"], lanes["batch"]["slots"]) == ({"least": 1}, {"most": 4})
    (chat, batch) = site().config(shares).core_lanes
    assert (chat.slots, batch.slots) == (Share(1), Share(0, 4))
    own = replace(BATCH, slots=Share(most=7))
    assert site(CHAT, own).open_lanes(shares) == ["chat"]
    assert site(CHAT, own).plain(Candidate("budgets", 16))["lanes"]["batch"]["slots"] == {"most": 7}
    few = site(CHAT, own).plain(Candidate("budgets", 4))
    assert few["lanes"]["batch"]["slots"] == {"most": 4}, "no more than there are"
    assert site(CHAT).open_lanes(shares) == [], "one lane has nobody to share with"
    reserved = replace(shares, strategy="first-come", chunk=256)
    assert not site().allows(reserved), "first come keeps no least"


def test_a_users_window_is_kept():
    given = site(CHAT, BATCH, windows={"chat": Window(7 * MS)})
    plain = given.plain(Candidate("dynamic-lanes", 4, window=25))["lanes"]
    assert plain["chat"]["window"] == "7ms" and "window" not in plain["batch"]
    voice = replace(CHAT, name="voice")
    beside = site(CHAT, voice, windows={"chat": Window(7 * MS)})
    assert beside.open_lanes(Candidate("dynamic-lanes", 4, window=25)) == ["voice"]
    assert not given.allows(Candidate("length-classes", 4, window=25)), "it has one for all"


def test_a_window_that_the_recommended_strategy_ignores_is_warned_of(tmp_path, few, monkeypatch):
    monkeypatch.setattr(tuning, "first_candidates", lambda most, context, lanes: FEW[:2])
    windowed = LANES.replace("  weight: 2", "  weight: 2\n  window: 25") + "  window: 10\n"
    path = tmp_path / "windowed.yaml"
    path.write_text(windowed)
    _, said, options = tuned(tmp_path, lanes=path, requests=10)
    found = json.loads(options.json.read_text())
    strategy = found["recommended"].split(",")[0]
    assert strategy != "dynamic-lanes"
    warning = f"The windows of chat, voice are not used: {strategy} holds no groups."
    assert found["warnings"] == [warning]
    assert warning in said and f"# {warning}" in options.out.read_text()


def test_a_window_that_is_used_or_was_never_set_needs_no_warning():
    given = site(CHAT, BATCH, windows={"chat": Window(7 * MS)})
    assert given.unused_windows(Candidate("dynamic-lanes", 4, window=25)) == ()
    assert given.unused_windows(Candidate("budgets", 4)) == (
        "The window of chat is not used: budgets holds no groups.",
    )
    assert site().unused_windows(Candidate("budgets", 4)) == ()


def test_a_window_is_a_share_of_the_tightest_limit_including_the_queue_limit():
    place = site(replace(CHAT, budget=Budget(ttft=900 * MS, queue=100 * MS)), BATCH)
    config = place.config(Candidate("dynamic-lanes", 4, window=50))
    assert config.policies.join.windows["chat"] == 50 * MS
    config = place.config(Candidate("length-classes", 4, window=50))
    assert config.policies.join.window == 50 * MS


def test_a_lane_without_a_ttft_or_e2e_limit_has_no_window_to_search():
    groups, classes = (
        Candidate("dynamic-lanes", 4, window=25),
        Candidate("length-classes", 4, 0, 0, 25),
    )
    assert site().open_lanes(groups) == ["chat"], "batch has no budget"
    assert site().reduced(groups) == groups and site().reduced(classes) == classes
    queue = site(replace(CHAT, budget=Budget(queue=9 * MS)), BATCH)
    e2e = site(replace(CHAT, budget=Budget(e2e=900 * MS)), BATCH)
    given = site(CHAT, BATCH, windows={"chat": Window(7 * MS)})
    for place, each in ((queue, groups), (queue, classes), (e2e, classes), (given, groups)):
        bare = place.reduced(each)
        assert bare == replace(each, window=0)
        assert place.plain(bare) == place.plain(each) == place.plain(replace(each, window=5))
        assert place.open_lanes(bare) == ["chat"] * (place is e2e)
        assert all(near.window == 0 for near in neighbours(bare, 16, 2_048))


def test_one_lane_may_have_another_window_than_the_rest():
    voice = replace(CHAT, name="voice")
    one = Candidate("dynamic-lanes", 4, window=25, windows=(("voice", 5),))
    plain = site(CHAT, voice).plain(one)["lanes"]
    assert (plain["chat"]["window"], plain["voice"]["window"]) == ("25ms", "5ms")


def test_a_share_that_a_strategy_ignores_rules_that_strategy_out():
    reserved = site(replace(CHAT, slots=Share(2, 4)), BATCH)
    assert reserved.allows(Candidate("filler", 16, 256))
    assert not reserved.allows(Candidate("first-come", 16, 256))
    assert not reserved.allows(Candidate("dynamic-lanes", 16, window=25))


# -- ranking


def scored(cost, good=100):
    tallies = {"chat": ((100, good),) * 20}
    return Score(5.0, {"chat": good}, {"chat": 100}, tallies, cost, 100, 1)


def test_the_cost_per_request_counts_only_served_requests():
    score = replace(scored(6.0), offered={"chat": 100, "night": 900}, served=300)
    assert score.cost == 0.02, "700 of the backlog were answered in the warm-up"


def test_dropped_requests_do_not_lower_the_cost_per_request(tmp_path):
    """At a rate far beyond the capacity, most requests are dropped at their limit."""
    (tmp_path / "hurried.yaml").write_text(LANES.replace("{ttft: 60}", "{ttft: 60, queue: 50}"))
    write_cost_file(CALIBRATION, tmp_path / "cost.json")
    options = TuneOptions(tmp_path / "cost.json", lanes=tmp_path / "hurried.yaml", requests=200)
    tuned = tuning.prepare_tuning(options)
    setup = tuned.site.setup(Candidate("first-come", 2, 64))
    score = run_trial(Trial(tuned.course, setup, 200.0, (0,)))
    offered, good = sum(score.offered.values()), sum(score.good.values())
    assert good <= score.served < offered / 2
    assert score.cost == score.device_seconds / score.served


def test_a_cost_gain_of_less_than_two_percent_does_not_change_the_ranking():
    usual = Candidate("first-come", 32, 256)
    other = Candidate("budgets", 8)
    ranked = sorted(
        [(other, scored(100.0)), (usual, scored(100.1))], key=lambda e: by_cost(*e, (usual,))
    )
    assert ranked[0][0] == usual
    cheaper = sorted(
        [(other, scored(80.0)), (usual, scored(100.1))], key=lambda e: by_cost(*e, (usual,))
    )
    assert cheaper[0][0] == other
    broken = sorted(
        [(other, scored(80.0, 90)), (usual, scored(100.1))], key=lambda e: by_cost(*e, (usual,))
    )
    assert broken[0][0] == usual


def test_finalists_are_of_different_strategies():
    ranked = [Candidate("a", 4), Candidate("a", 8), Candidate("b", 4)]
    assert finalists(ranked) == [Candidate("a", 4), Candidate("b", 4)]


# -- advice beside the settings


def step(nanoseconds, running):
    return StepRow(0, 0, nanoseconds, 0, 1, 1, 1, 0, 0, running, 0, 0)


def test_a_groups_longest_step_lasts_until_no_sequence_runs():
    rows = [step(5, 1), step(7, 0), step(1, 1), step(2, 0)]
    assert longest_step(rows, is_group=True) == 12
    assert longest_step(rows, is_group=False) == 7
    assert longest_step([], is_group=True) == 0


def test_the_legal_wait_is_the_limit_minus_service_and_the_running_step():
    alone = {"chat": UnloadedLatency(20 * MS, MS, 50 * MS)}
    tight = replace(CHAT, budget=Budget(ttft=100 * MS, e2e=90 * MS))
    waits = legal_waits([CHAT, BATCH, tight], alone, 10 * MS)
    assert [(each.limit, each.wait) for each in waits] == [
        ("ttft", 70 * MS),
        ("", NEVER),
        ("e2e", 30 * MS),
    ]
    queue = replace(CHAT, budget=Budget(ttft=100 * MS, queue=15 * MS))
    assert legal_waits([queue], alone, 10 * MS)[0].limit == "queue"


@pytest.mark.parametrize(
    "given, prompt, rule",
    [
        ([CHAT, BATCH], 100, FILLER),
        ([CHAT, Lane("voice", Budget(ttft=50 * MS))], 100, BUDGETS),
        ([CHAT], 1_000, CHUNKS),
        ([CHAT], 100, WHOLE),
    ],
)
def test_the_first_rule_of_thumb_that_fits_is_named(given, prompt, rule):
    assert rule_of_thumb(given, prompt, TokenCost(100_000, 1_000_000)) is rule


def test_vllm_arguments_cover_equivalent_settings_and_list_the_rest():
    chunked = vllm_arguments(site().config(Candidate("priority", 16, 256)))
    assert chunked.line == (
        "--max-num-seqs 16 --max-model-len 2048 --block-size 16 --max-num-batched-tokens 272 "
        "--enable-chunked-prefill --long-prefill-token-threshold 256 --scheduling-policy priority"
    )
    assert any("priorities" in each for each in chunked.without)
    whole = vllm_arguments(site(CHAT).config(Candidate("continuous-mixed", 8, step_tokens=512)))
    assert "--no-enable-chunked-prefill" in whole.arguments
    assert "--max-num-batched-tokens 2048" in whole.arguments
    grouped = vllm_arguments(site().config(Candidate("dynamic-lanes", 8, window=25)))
    assert grouped.without[0].startswith("groups and their windows")
    budgets = vllm_arguments(site().config(Candidate("budgets", 8)))
    assert len(budgets.without) == 6


def test_shares_of_many_lanes_have_a_line_each():
    two = "completion 96.5 %, chat 95.1 %"
    assert in_lines(two) == two
    assert in_lines(f"{two}, batch 100.0 %").split("\n") == [
        *("completion 96.5 %,", " chat 95.1 %,", " batch 100.0 %")
    ]
