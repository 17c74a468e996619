"""`headway plan`: what it prints, and what it refuses."""

import json
from dataclasses import replace
from io import StringIO
from math import inf, nan
from random import Random

import pytest
from rich.console import Console

from headway.commands.plan import plan
from headway.commands.plan.estimate import checks
from headway.commands.plan.estimate.burstiness import Burstiness
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.commands.plan.estimate.simulated_machine import Machine
from headway.commands.plan.estimate.waiting import capacity
from headway.commands.plan.plan import PlanOptions, run_plan
from headway.commands.plan.tables import verdict
from headway.core.cost.step_cost import Rates, StepCost
from headway.costing.calibration import Calibration, read_cost_file, write_cost_file
from headway.errors import SettingError
from headway.models import display_name

COST = StepCost.of(3_000_000, 100_000, 20)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Short runs, because accuracy is not tested here."""
    monkeypatch.setattr(checks, "MOST", 100)
    monkeypatch.setattr(checks, "FEWEST", 80)


@pytest.fixture
def once(monkeypatch):
    """A plan that is printed twice, as a page and as JSON, is simulated once."""
    made, planned = {}, plan.plan

    def kept(machine, traffic, options, show):
        asked = machine, traffic, replace(options, as_json=False)
        if asked not in made:
            made[asked] = planned(machine, traffic, options, show)
        return made[asked]

    monkeypatch.setattr(plan, "plan", kept)


@pytest.fixture
def cost(tmp_path):
    def made(model="shape", context=1_024, fit=400, kv_bytes=9_216):
        calibration = Calibration(
            model=model,
            dtype="float32",
            device="cpu",
            machine={},
            analytical=False,
            cost=COST,
            kv_bytes=kv_bytes,
            num_blocks=400,
            fit=fit,
            block_size=16,
            context=context,
            slots=16,
            price_per_hour=2.0,
        )
        write_cost_file(calibration, tmp_path / "cost.json")
        return tmp_path / "cost.json"

    return made


@pytest.fixture
def trace(tmp_path):
    lines = ["arrival_s,input_tokens,output_tokens"]
    lines += [f"{n // 6 * 2 + n % 6 / 1e3},{100 + n % 5 * 30},{4 + n % 3}" for n in range(240)]
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "mine.csv")


def printed(asked):
    out = StringIO()
    assert run_plan(asked, Console(file=out, width=100)) == 0
    return out.getvalue()


def test_a_plan_for_a_rate_prints_its_tables_and_no_burstiness(cost):
    asked = PlanOptions(cost(), rate=5, prompt=120, answer=20, ttft=200, tpot=8, buckets="64,128")
    said = printed(asked)
    for title in ("At the rate", "Groups", "Highest rate within the TTFT budget", "Cost"):
        assert title in said
    assert "TPOT at this rate" in said and "Kelly" in said and "Simulator:" in said
    assert "Burstiness" not in said, "given a rate, arrivals are Poisson"


def test_the_plan_simulates_as_many_steps_in_flight_as_the_cost_file_says(cost):
    def tpot(depth):
        path = cost()
        hosted = replace(COST, host=Rates(step=2_000_000_000))
        write_cost_file(replace(read_cost_file(path), cost=hosted, depth=depth), path)
        asked = PlanOptions(path, rate=1, prompt=20, answer=8, as_json=True)
        return json.loads(printed(asked))["answers"][0]["simulated"]

    assert tpot(depth=2) < 0.7 * tpot(depth=1), "the host's 2 of 5 ms are hidden"


def test_answers_of_one_token_have_no_tpot_in_the_answer(cost):
    said = " ".join(printed(PlanOptions(cost(), rate=3, prompt=100, answer=1, tpot=40)).split())
    assert "and answers of one token have no TPOT (simulated with 16 slots" in said
    assert "0 ns" not in said.split("At the rate")[0]


def test_a_price_per_hour_of_0_overrides_the_price_of_the_cost_file(cost):
    def price(**wishes):
        asked = PlanOptions(cost(), rate=5, prompt=120, answer=20, as_json=True, **wishes)
        answers = json.loads(printed(asked))["answers"]
        return [each["estimate"]["value"] for each in answers if "cost" in str(each["estimate"])]

    own, free = price(), price(price_per_hour=0.0)
    assert own[-1] > 0 and free[-1] == 0 and len(own) == len(free)


def test_a_plan_for_a_trace_measures_its_bursts(cost, trace):
    plain = json.loads(printed(PlanOptions(cost(), trace=trace, ttft=200, as_json=True)))
    assert plain["work"]["rate"] == pytest.approx(240 / 78, rel=1e-3)
    assert plain["burst"]["formula"] > 0 and plain["burst"]["recorded"] > 0
    assert plain["burst"]["dispersion"]["1000000000"] == pytest.approx(3), (
        "half of the windows have 6 arrivals, half have 0"
    )
    questions_asked = [each["estimate"]["question"] for each in plain["answers"]]
    assert len(questions_asked) == len(set(questions_asked)) >= 10
    assert all(
        each["estimate"]["source"] and each["estimate"]["assumes"] for each in plain["answers"]
    )


def test_the_ticks_of_a_coarse_clock_are_not_taken_for_bursts(cost, tmp_path):
    """Poisson arrivals, whose clock tells only every third second."""
    draw, at, rows = Random(3), 0.0, list[str]()
    for n in range(240):
        at += draw.expovariate(4)
        rows.append(f"{at // 3 * 3},{100 + n % 5 * 30},4")
    lines = ["arrival_s,input_tokens,output_tokens", *rows]
    (tmp_path / "coarse.csv").write_text("\n".join(lines) + "\n")
    asked = PlanOptions(cost(), trace=str(tmp_path / "coarse.csv"), ttft=100, as_json=True)
    plain = json.loads(printed(asked))
    assert plain["burst"]["dispersion"]["1000000000"] == pytest.approx(1, abs=0.35)
    assert plain["burst"]["recorded"] == pytest.approx(plain["burst"]["poisson"], rel=0.2)
    assert "the trace's times are spread over each tick of 3 s" in " ".join(plain["notes"])


def test_the_answer_comes_first_then_why_other_estimates_differ(cost, trace, once):
    asked = PlanOptions(cost(), trace=trace, ttft=200, tpot=8)
    plain = json.loads(printed(replace(asked, as_json=True)))
    kept, formula = plain["burst"]["recorded"], plain["burst"]["formula"]
    first, second, third, *others = plain["headline"]
    assert first.startswith("At 3.077 requests/s the mean TTFT is ") and "the 200 ms asked" in first
    assert second.startswith(f"A mean TTFT of 200 ms is kept up to {kept:.4g} requests/s")
    assert "all 240 sped up or slowed down" in second and third.startswith("Other estimates")
    assert others[0].startswith(f"- {plain['burst']['poisson']:.4g} simulated with Poisson")
    assert others[1].startswith(f"- {formula:.4g} by the formula") and "16 slots" in others[1]
    rates = [each for each in plain["answers"] if each["estimate"]["unit"] == "requests/s"]
    assert [each["estimate"]["value"] for each in rates] == [formula], (
        "both tables have the same answer"
    )
    page = " ".join(printed(asked).split())
    assert page.startswith(first) and page.index(second) < page.index("KV memory")


def test_a_trace_of_requests_far_apart_is_refused_unless_a_rate_is_given(cost, tmp_path):
    path = tmp_path / "rare.csv"
    rows = [f"{at},100,9" for at in (0, 10**12, 2 * 10**12)]
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]))
    asked = PlanOptions(cost(), trace=str(path), as_json=True)
    with pytest.raises(SettingError, match=r"rare\.csv has .*e-12 requests per second; a plan"):
        printed(asked)
    assert json.loads(printed(replace(asked, rate=1.0)))


def test_a_plan_for_a_too_high_rate_says_that_one_machine_is_not_enough(cost):
    asked = PlanOptions(cost(), rate=20, prompt=300, answer=20, ttft=60, as_json=True)
    first, second, *_ = json.loads(printed(asked))["headline"]
    assert "(over the 60 ms asked for)" in first
    assert "one such machine is not enough" in second and "Poisson" in second


def test_a_rate_that_steps_of_all_waiting_prompts_keep_needs_no_second_machine(cost):
    """Of short prompts, one a step are 191 requests/s, and all waiting ones far more."""
    asked = PlanOptions(cost(), rate=220, prompt=20, answer=2, ttft=60, as_json=True)
    first, second, *_ = json.loads(printed(asked))["headline"]
    assert "(within the 60 ms asked for)" in first
    assert "one prompt a step. That is below the 220 asked about; steps that take all" in second
    assert "not enough" not in second


def test_the_plan_says_which_part_of_a_long_trace_was_simulated(cost, trace, monkeypatch):
    monkeypatch.setattr(checks, "PLAYED", 1)
    second = json.loads(printed(PlanOptions(cost(), trace=trace, ttft=200, as_json=True)))[
        "headline"
    ][1]
    assert "first 100 of 240 arrivals" in second and "(mean 1" in second and "whole trace" in second


@pytest.mark.parametrize("as_json", [False, True])
def test_off_a_terminal_progress_is_printed_on_stderr(cost, capsys, as_json):
    said = printed(PlanOptions(cost(), rate=5, prompt=120, answer=20, ttft=200, as_json=as_json))
    told = capsys.readouterr().err.splitlines()
    assert len(told) >= 5 and all(line.startswith("headway plan: ") for line in told)
    assert "headway plan: " not in said


class Lengths(tuple):
    read = 0

    def __iter__(self):
        Lengths.read += 1
        return super().__iter__()


def test_the_means_of_lengths_are_computed_once():
    """A plan asks for the means thousands of times; with a long trace that once took a minute."""
    traffic = PlannedTraffic("many", Lengths([(120, 20), (300, 40)] * 500), 1.0)
    Lengths.read = 0
    capacity(Machine(COST, 16), traffic, 200_000_000)
    assert 1 <= Lengths.read <= 10


def test_an_unreliable_cost_file_is_called_unreliable(cost, once):
    path = cost()
    marked = {"errors": {"all": {"median": -503, "p90": 700, "total": -410}}}
    write_cost_file(replace(read_cost_file(path), about=marked), path)
    said = " ".join(printed(PlanOptions(path, rate=5, prompt=120, answer=20)).split())
    assert "The cost file is unreliable" in said and "-50% in the median step" in said
    plain = json.loads(printed(PlanOptions(path, rate=5, prompt=120, answer=20, as_json=True)))
    assert any("unreliable" in note for note in plain["notes"])


def test_a_budget_that_no_rate_breaks_is_kept_up_to_what_the_machine_serves(
    cost, trace, once, monkeypatch
):
    """The formula is of a long run, so 100 requests are too few here."""
    monkeypatch.setattr(checks, "MOST", 250)
    said = " ".join(printed(PlanOptions(cost(), trace=trace, ttft=3_600_000)).split())
    assert "no rate up to that breaks the budget" in said
    plain = json.loads(printed(PlanOptions(cost(), trace=trace, ttft=3_600_000, as_json=True)))
    burst = plain["burst"]
    assert burst["poisson"] == burst["recorded"] == pytest.approx(burst["formula"], rel=0.05)
    assert f"is kept up to {burst['recorded']:.4g} requests/s: simulated with the trace" in said


def test_the_plan_reports_a_rate_that_the_slots_cannot_serve(cost):
    """The run's few requests all end, so their mean TTFT looks as if the machine kept up."""

    def lines(rate):
        path = cost()
        write_cost_file(replace(read_cost_file(path), slots=2), path)
        asked = PlanOptions(path, rate=rate, prompt=20, answer=40, as_json=True)
        return json.loads(printed(asked))["headline"]

    most = 2 / (39 * 3.2 + 2 * 2) * 1e3  # slots over a request's time in them, in milliseconds
    assert len(lines(0.8 * most)) == 1
    _, behind = lines(1.3 * most)
    served = float(behind.split()[4])
    assert served == pytest.approx(most, rel=0.03) and "grows without end" in behind


def test_bursts_are_not_measured_if_a_trace_begins_with_many_arrivals_at_one_moment(
    cost, tmp_path, monkeypatch
):
    monkeypatch.setattr(checks, "PLAYED", 1)
    lines = ["arrival_s,input_tokens,output_tokens", *["0,100,4"] * 110, "40,100,4"]
    (tmp_path / "crowd.csv").write_text("\n".join(lines) + "\n")
    said = " ".join(
        printed(PlanOptions(cost(), trace=str(tmp_path / "crowd.csv"), ttft=200)).split()
    )
    assert "Bursts were not measured: the first 100 requests of crowd.csv come at one" in said


def test_the_batch_that_memory_holds_uses_all_blocks_that_fit(cost):
    def memory(path):
        answers = json.loads(
            printed(PlanOptions(path, rate=2, prompt=100, answer=13, as_json=True))
        )
        found = [
            each for each in answers["answers"] if "all requests at their last token" in str(each)
        ]
        return found[0]["estimate"]["value"], found[0]["simulated"]

    assert memory(cost()) == (400 // 7, 400 // 7)
    assert memory(cost(fit=1_400)) == (1_400 // 7, 1_400 // 7)


def test_changes_to_a_trace_are_reported(cost, trace):
    said = printed(PlanOptions(cost(context=128), trace=trace, rate=2))
    assert "cut off at a context of 128" in said and "own rate is" in said
    assert "Without --ttft" in said and "raised to 1" not in said


def test_token_counts_of_0_are_reported_as_raised(cost, tmp_path):
    lines = ["arrival_s,input_tokens,output_tokens", *(f"{n},{n % 2 * 40},0" for n in range(20))]
    (tmp_path / "scores.csv").write_text("\n".join(lines) + "\n")
    said = " ".join(printed(PlanOptions(cost(), trace=str(tmp_path / "scores.csv"))).split())
    assert "30 of the trace's token counts came to 0 and were raised to 1" in said


def test_a_trace_without_any_tokens_is_refused(cost, tmp_path):
    (tmp_path / "none.csv").write_text("arrival_s,input_tokens,output_tokens\n0,0,0\n1,0,0\n")
    with pytest.raises(SettingError, match=r"every token count of none\.csv is 0"):
        printed(PlanOptions(cost(), trace=str(tmp_path / "none.csv")))


def test_the_kv_memory_of_the_embedded_model_is_counted(cost):
    pytest.importorskip("safetensors")
    name = display_name(None)
    asked = PlanOptions(cost(name), rate=2, prompt=100, answer=8, as_json=True)
    answers = json.loads(printed(asked))["answers"]
    kv = [each for each in answers if each["estimate"]["question"].startswith("KV per token")]
    assert len(kv) >= 2
    others = [each for each in kv if "if the model had" in each["estimate"]["question"]]
    assert others and all(each["difference"] == 0 for each in others), "the executor's own plan"


@pytest.mark.parametrize("model", [None, "llama-3.1-8b"])
def test_the_kv_memory_of_a_shipped_shape_is_counted_with_or_without_its_name(cost, model):
    pytest.importorskip("safetensors")
    asked = PlanOptions(cost("llama-3.1-8b", kv_bytes=262_144), model, rate=2, prompt=100, answer=8)
    plain = json.loads(printed(replace(asked, as_json=True)))
    kv = [each for each in plain["answers"] if each["estimate"]["question"].startswith("KV per")]
    assert [each["estimate"]["value"] for each in kv] == [1_048_576, 262_144, 32_768]
    assert all(each["difference"] == 0 for each in kv)
    assert not any("KV per token is left out" in note for note in plain["notes"])


def test_kv_per_token_of_an_unknown_shape_is_left_out_with_the_remedy(cost):
    said = " ".join(printed(PlanOptions(cost(), rate=2, prompt=100, answer=8)).split())
    assert "KV per token is left out; the shape of shape is not known here: say --model" in said


@pytest.mark.parametrize(
    "changes, said",
    [
        ({}, "give --trace, or --rate"),
        ({"rate": 1, "prompt": 10}, "give --trace, or --rate"),
        ({"batch": 1_000_000}, "--batch must be at most 10,000, not 1,000,000"),
        ({"rate": 1, "prompt": 1_000, "answer": 100}, "shorten them"),
        ({"trace": "none.csv"}, "none.csv cannot be read"),
        ({"trace": "azure2023-code", "prompt": 5}, "leave --prompt"),
        ({"trace": "azure2023-code", "token_scale": 0}, "token scale"),
        ({"rate": 1e5, "prompt": 100, "answer": 10}, "lower the rate"),
        ({"rate": 1, "prompt": 100, "answer": 10, "ttft": 0.1}, "ask for more"),
        ({"rate": 1, "prompt": 100, "answer": 10, "tpot": 0.1}, "ask for more"),
        ({"rate": 1, "prompt": 100, "answer": 10, "tpot": 1e8}, "limits no batch"),
        ({"rate": 1, "prompt": 100, "answer": 10, "buckets": "64,x"}, "whole numbers"),
        ({"rate": 1, "prompt": 100, "answer": 10, "buckets": "128,64"}, "ascending"),
        ({"rate": 1, "prompt": 100, "answer": 10, "token_scale": 8}, "is of a trace"),
        ({"rate": 1, "prompt": 100, "answer": 10, "batch": 0}, "1 or more"),
        ({"rate": 1, "prompt": 100, "answer": 10, "model": "other"}, "calibrate"),
        ({"rate": 1, "prompt": 100, "answer": 10, "ttft": inf}, "--ttft is inf, not a number"),
        ({"rate": 1, "prompt": 100, "answer": 10, "ttft": nan}, "--ttft is nan, not a number"),
        ({"rate": 1, "prompt": 100, "answer": 10, "tpot": nan}, "--tpot is nan, not a number"),
        ({"trace": "azure2023-code", "token_scale": nan}, "--token-scale is nan, not a number"),
        ({"trace": "azure2023-code", "token_scale": inf}, "--token-scale is inf, not a number"),
        ({"trace": "azure2023-code", "rate": -1}, "--rate is -1; it must be 0 or more"),
        ({"rate": 1e-9, "prompt": 9, "answer": 9}, "--rate is 1e-09; it must be 0.0001 or more"),
        ({"price_per_hour": nan}, "--price-per-hour is nan, not a number"),
    ],
)
def test_impossible_inputs_are_refused_with_the_remedy(cost, changes, said):
    with pytest.raises(SettingError, match=said):
        run_plan(PlanOptions(cost(), **changes), Console(file=StringIO()))


def test_buckets_out_of_order_are_refused_before_anything_is_simulated(cost, capsys):
    asked = PlanOptions(cost(), rate=1, prompt=100, answer=10, buckets="128,64")
    with pytest.raises(SettingError, match="ascending"):
        run_plan(asked, Console(file=StringIO()))
    assert not capsys.readouterr().err, "no phase has begun"


def test_a_missing_cost_file_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(SettingError, match="headway calibrate"):
        run_plan(PlanOptions(tmp_path / "none.json"), Console(file=StringIO()))


def test_a_trace_with_even_arrivals_is_not_called_bursty(cost, tmp_path):
    rows = "".join(f"{at / 2},200,20\n" for at in range(120))
    (tmp_path / "even.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{rows}")
    asked = PlanOptions(
        cost(), trace=str(tmp_path / "even.csv"), token_scale=1, ttft=60, as_json=True
    )
    plain = json.loads(printed(asked))
    assert plain["burst"]["recorded"] > plain["burst"]["poisson"]
    assert plain["headline"][3].endswith("Poisson arrivals: the trace's own come more evenly.")


def test_the_verdict_says_by_how_much_the_formula_is_too_high():
    def burstiness(recorded):
        return Burstiness(10, 1.0, {}, 20.0, 19.0, recorded)

    said = verdict(burstiness(5.0))
    assert "20 requests/s, 4.0 times the 5 that can be sustained" in said
    assert "Bursts account for 3.80 times, and the machine's limits" in said
    assert "for 1.05 times" in said
    assert "good enough here: within a tenth of the 19.5 that" in verdict(burstiness(19.5))
    assert verdict(burstiness(25.0)) == (
        "The formula promises 20 requests/s, less than the 25 that can be sustained."
    )
    assert "breaks the budget at every rate" in verdict(burstiness(0.0))
