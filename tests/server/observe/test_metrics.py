"""/metrics counts what has happened, and has what dashboards query."""

import asyncio
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from math import inf
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headway.core.batch import Event
from headway.core.cost.step_cost import StepCost
from headway.core.grammar import ALL_BANNED
from headway.core.lane import Lane
from headway.core.ledger import SizeChange, StepRow
from headway.core.load import LaneLoad, Load
from headway.core.request import NEVER, Finish
from headway.errors import DrainingError
from headway.executor.fake import FakeExecutor
from headway.server.answering.choice import Choice
from headway.server.config.config import ServerConfig
from headway.server.engine.client import EngineClient, EngineOptions
from headway.server.engine.device_work import DeviceWork
from headway.server.engine.handle import EngineState
from headway.server.engine.messages import Step
from headway.server.functions.messages import Seen
from headway.server.functions.metrics import FunctionMetrics
from headway.server.functions.part import FunctionsPart
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.histogram import TIMES, TOKENS, Histogram
from headway.server.observe.metrics.steps import Steps
from headway.server.observe.metrics.tokens import Silent, Tokens
from tests.server.running_server import (
    BLOCK,
    Local,
    Permitted,
    by_budgets,
    fake,
    priced,
    scheduler,
    serving,
    until,
)

ROOT = Path(__file__).parents[3]
MS = 1_000_000
LANES = {
    "chat": {"ttft": "60s", "tpot": "10s", "max_waiting": 1},
    "bulk": {},
}
ONE_AT_A_TIME = ServerConfig(lanes=LANES, engine={"slots": 1}, server={"default_lane": "chat"})


def scraped(url):
    """Samples, by name and by the values of their own labels, in the order of the labels' names."""
    response = httpx2.get(f"{url}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    found = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            labels = sample.labels.copy()
            if sample.name.startswith(("vllm:", "headway_")):
                assert labels.pop("model_name") == "headway-tiny" and labels.pop("engine") == "0"
            own = tuple(labels[name] for name in sorted(labels))
            found.setdefault(sample.name, {})[own] = sample.value
    return found


def ask(url, most=3, **headers):
    body = {"prompt": [5, 6, 7], "max_tokens": most, "ignore_eos": True}
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.post(f"{url}/v1/completions", json=body, headers=headers, timeout=60)


def test_every_outcome_is_counted_in_its_metrics():
    """With one slot: one request is answered, one is cancelled while it waits, one is refused,
    one is too late, and one is slower than its own limit."""
    executor = Permitted()

    def lane(name):
        return service.model.engine.load.lanes[name]

    with serving(ONE_AT_A_TIME, executor.engine) as (url, service), ThreadPoolExecutor() as pool:
        before = scraped(url)
        assert before["headway_refusals_total"]["chat", "lane_full"] == 0
        first = pool.submit(ask, url, 8)
        until(lambda: service.model.admission.open == 1)
        executor.permits.release()
        until(lambda: lane("chat").running == 1)
        second = pool.submit(ask, url, x_request_id="second")
        until(lambda: service.model.admission.open == 2)
        executor.permits.release(2)  # the first step was being decided when the request came
        until(lambda: lane("chat").waiting == 1)
        now = scraped(url)
        assert now["vllm:num_requests_running"][()] == now["vllm:num_requests_waiting"][()] == 1
        assert now["headway_active_sequences"] == {("chat",): 1, ("bulk",): 0}
        assert now["headway_waiting_requests"] == {("chat",): 1, ("bulk",): 0}
        assert now["headway_waiting_tokens"]["chat",] == 3
        assert now["headway_oldest_wait_seconds"]["chat",] > 0
        assert now["headway_oldest_wait_seconds"]["bulk",] == 0
        used = now["vllm:kv_cache_usage_perc"][()]
        assert used == now["headway_kv_usage_ratio"]["chat",] == 1 / 512

        assert ask(url).status_code == 429
        httpx2.post(f"{url}/v1/requests/second/cancel")
        assert second.result().status_code == 409
        executor.permits.release(100)
        assert first.result().status_code == 200
        assert ask(url, x_headway_timeout_ms="0.001").status_code == 408
        assert ask(url, x_slo_tpot_ms="0.000001", x_headway_lane="bulk").status_code == 200
        after = scraped(url)

    outcomes = {key: count for key, count in after["headway_requests_total"].items() if count}
    assert outcomes == {
        ("chat", "good"): 1,
        ("chat", "cancelled"): 1,
        ("chat", "refused"): 1,
        ("chat", "expired"): 1,
        ("bulk", "late"): 1,
    }
    refusals = {key: count for key, count in after["headway_refusals_total"].items() if count}
    assert refusals == {("chat", "lane_full"): 1, ("chat", "deadline_exceeded"): 1}
    left = {key: count for key, count in after["headway_abandoned_total"].items() if count}
    assert left == {("chat", "cancelled"): 1}
    reasons = after["vllm:request_success_total"]
    assert reasons == {("length",): 2, ("abort",): 2, ("stop",): 0, ("error",): 0}

    assert after["vllm:generation_tokens_total"][()] == 8 + 3
    assert after["vllm:prompt_tokens_total"][()] == 3 + 3
    assert after["vllm:time_to_first_token_seconds_count"][()] == 2
    assert after["vllm:inter_token_latency_seconds_count"][()] == 7 + 2
    assert after["headway_tpot_seconds_count"] == {("chat",): 1, ("bulk",): 1}
    spent = after["vllm:request_decode_time_seconds_sum"][()]
    assert after["vllm:inter_token_latency_seconds_sum"][()] == pytest.approx(spent)
    assert after["headway_batch_size_sum"] == {("chat",): 8, ("bulk",): 3}
    assert after["headway_steps_total"][()] == after["headway_batch_size_count"]["chat",] == 11
    assert after["vllm:num_requests_running"][()] == after["vllm:kv_cache_usage_perc"][()] == 0
    limits = after["headway_lane_budget_seconds"]
    assert limits == {("chat", "ttft"): 60, ("chat", "tpot"): 10}, "only the limits that are set"


class Unsatisfiable(FakeExecutor):
    """No token can be sampled."""

    def collect(self, ticket):
        return replace(super().collect(ticket), errors={0: ALL_BANNED})


def test_a_request_that_no_token_can_satisfy_counts_as_unsatisfiable():
    def engine(config):
        return Local(scheduler(config), Unsatisfiable(512, BLOCK))

    with serving(engine=engine) as (url, _):
        assert ask(url).status_code == 400
        until(lambda: ends(url)[0])
        assert ends(url) == ({"unsatisfiable": 1}, {"error": 1})


class Failing(FakeExecutor):
    """The first steps fail."""

    def __init__(self, steps):
        super().__init__(512, BLOCK)
        self.left = steps

    def submit(self, batch):
        self.left -= 1
        if self.left >= 0:
            raise RuntimeError("no device")
        return super().submit(batch)

    def engine(self, config):
        return Local(scheduler(config), self)


def ends(url):
    """How requests have ended, by headway's names and by vLLM's."""
    now = scraped(url)
    outcomes = {word: n for (_, word), n in now["headway_requests_total"].items() if n}
    return outcomes, {word: n for (word,), n in now["vllm:request_success_total"].items() if n}


def test_a_stopped_journal_shows_in_the_metrics():
    with serving(engine=fake) as (url, service):
        assert scraped(url)["headway_journal_stopped"] == {(): 0}
        service.model.engine.journal = "No space left on device"
        assert scraped(url)["headway_journal_stopped"] == {(): 1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_request_that_the_engine_fails_counts_as_an_error():
    """Two failed steps end only their own requests. At the third, an empty trial step fails too:
    the engine ends, and no row comes."""
    with serving(engine=Failing(4).engine) as (url, _):
        assert [ask(url).status_code for _ in range(3)] == [500, 500, 503]
        assert ends(url) == ({"error": 3}, {"error": 3})


def test_a_request_that_a_fault_of_the_server_ends_counts_as_an_error(monkeypatch):
    """The engine computes the request to its end, as it hears too late that nobody waits."""

    def broken(choice, event):
        raise KeyError("no such thing")

    monkeypatch.setattr(Choice, "hear", broken)
    with serving(engine=fake) as (url, service):
        rows = []
        service.model.admission.listeners.append(lambda steps, requests: rows.extend(requests))
        assert ask(url).json()["error"]["code"] == "fault"
        until(lambda: rows)
        assert ends(url) == ({"error": 1}, {"error": 1})


def test_the_other_requests_of_a_failed_call_count_as_errors():
    """One request is in the same step. Two further choices wait for their prompts."""
    with serving(engine=Failing(1).engine) as (url, service):
        rows = []
        service.model.admission.listeners.append(lambda steps, requests: rows.extend(requests))
        asked = {"prompt": [[5, 6, 7], [6, 7]], "max_tokens": 3, "n": 2}
        assert httpx2.post(f"{url}/v1/completions", json=asked).status_code == 500
        until(lambda: len(rows) == 4)
        assert ends(url) == ({"error": 4}, {"error": 4}), "each of them once"


def test_a_request_that_a_drain_does_not_wait_for_is_counted_once_as_an_error():
    executor = Permitted()
    with serving(ONE_AT_A_TIME, executor.engine) as (url, service), ThreadPoolExecutor() as pool:
        rows = []
        service.model.admission.listeners.append(lambda steps, requests: rows.extend(requests))
        asked = pool.submit(ask, url, 8)
        until(lambda: service.model.admission.open == 1)
        service.model.engine.live._callers.fail(DrainingError("not in time"))
        answer = asked.result()
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "draining"
        assert int(answer.headers["retry-after"]) >= 1
        assert ends(url) == ({"error": 1}, {"error": 1})
        executor.permits.release(10)
        until(lambda: rows)
        assert rows[0].finish is Finish.CANCELLED
        assert ends(url) == ({"error": 1}, {"error": 1})
        assert not service.metrics.models[0]._requests._failed


class SeenFunction:
    """A function beside models: six items wait, and one has ended."""

    def __init__(self):
        self.name, self.state, self.metrics = "resize", EngineState.READY, FunctionMetrics("resize")
        self.metrics.load = lambda: Load(lanes={"chat": LaneLoad(Lane("chat"), 6, 6)})
        self.metrics._ended["chat", "computed"] += 1

    async def look(self):
        is_ready = self.state is EngineState.READY
        return Seen(0, list(self.metrics.collect()), {}) if is_ready else None


@pytest.mark.parametrize("gone", [EngineState.LOADING, EngineState.DOWN])
def test_nothing_waits_in_a_function_whose_process_is_gone(gone):
    function = SeenFunction()
    part = FunctionsPart(None, {"resize": function})

    def now():
        asyncio.run(part._refresh())
        return {sample.name: sample.value for each in part.collect() for sample in each.samples}

    assert now()["headway_function_waiting"] == 6
    function.state = gone
    assert "headway_function_waiting" not in now()
    assert now()["headway_function_items_total"] == 1
    function.state = EngineState.READY
    assert now()["headway_function_waiting"] == 6


def test_two_servers_have_separate_metrics():
    with serving(engine=fake) as (one, _), serving(engine=fake) as (other, _):
        ask(one)
        assert scraped(one)["vllm:generation_tokens_total"][()] == 3
        assert scraped(other)["vllm:generation_tokens_total"][()] == 0


def test_a_draining_server_shows_in_the_metrics():
    with serving(engine=fake) as (url, service):
        service.model.engine.state = EngineState.DRAINING
        assert ask(url).status_code == 503
        now = scraped(url)
        assert now["headway_refusals_total"]["", "draining"] == 1
        assert now["headway_requests_total"]["", "refused"] == 1
        assert now["headway_engine_state"]["draining",] == 1
        assert sum(now["headway_engine_state"].values()) == 1


def test_the_slot_limit_of_each_lane_is_in_the_metrics_and_in_lanes():
    lanes = {"chat": {"ttft": "9s", "slots": {"between": [3, 8]}}, "bulk": {"slots": {"most": 5}}}
    with serving(ServerConfig(lanes=lanes | {"rest": {}}), fake) as (url, service):
        assert scraped(url)["headway_lane_slots"] == {("chat",): 3, ("bulk",): 5, ("rest",): inf}
        said = {each["id"]: each["slots"] for each in httpx2.get(f"{url}/v1/lanes").json()["data"]}
        assert said == {"chat": 3, "bulk": 5, "rest": None}
        service.model.engine.state = EngineState.DOWN
        assert scraped(url)["headway_lane_slots"]["chat",] == 3


def test_the_windows_of_dynamic_batching_are_in_the_metrics_and_in_lanes():
    join = {"join": "dynamic", "window": "7ms"}
    lanes = {"chat": {"ttft": "9s", "window": {"between": ["3ms", "8ms"]}}, "bulk": {}}
    config = ServerConfig(engine={"strategy": join}, lanes=lanes)

    def made(config):
        return by_budgets(config, FakeExecutor(512, 16), StepCost())

    with serving(config, made) as (url, _):
        assert ask(url).status_code == 200
        shown = {("chat",): 0.003, ("bulk",): 0.007}
        assert scraped(url)["headway_lane_window_seconds"] == shown
        lanes = httpx2.get(f"{url}/v1/lanes").json()["data"]
        assert {each["id"]: each["window_ms"] for each in lanes} == {"chat": 3.0, "bulk": 7.0}
    with serving(engine=fake) as (url, _):
        assert ask(url).status_code == 200
        assert {*scraped(url)["headway_lane_window_seconds"].values()} == {0}
        assert {each["window_ms"] for each in httpx2.get(f"{url}/v1/lanes").json()["data"]} == {
            None
        }


def test_requests_and_tokens_are_counted_by_the_keys_name(monkeypatch):
    config = ServerConfig(keys=[{"name": "app", "sha256": "0" * 64, "requests_per_minute": 1}])
    with serving(config, fake) as (url, service):
        monkeypatch.setattr(service.keys, "authenticate", lambda header: service.keys._known[0][1])
        assert [ask(url).status_code for _ in range(2)] == [200, 429]
        now = scraped(url)
    assert now["headway_key_requests_total"] == {("accepted", "app"): 1, ("refused", "app"): 1}
    assert now["headway_key_tokens_total"] == {("app", "prompt"): 3, ("app", "answer"): 3}
    assert now["headway_refusals_total"]["", "rate_limit_exceeded"] == 1, "its body was not read"


# -- the parts


def test_a_bucket_counts_the_values_up_to_its_bound():
    histogram = Histogram(TOKENS)
    histogram.add(1)
    histogram.add(3, times=2)
    histogram.add(100_000)
    buckets = dict(histogram.buckets)
    assert (buckets["1.0"], buckets["2.0"], buckets["4.0"]) == (1, 1, 3)
    assert (buckets["16384.0"], buckets["+Inf"], histogram.sum) == (3, 4, 100_007)


def test_there_are_fine_buckets_around_a_tpot_of_20_ms():
    bounds = [bound / MS for bound in TIMES.bounds]
    near = [bound for bound in bounds if 10 <= bound <= 30]
    assert 20 in near and all(b / a <= 1.25 for a, b in pairwise(near))


SPEECH = st.lists(
    st.tuples(
        st.integers(1, 50),  # time since the step before
        st.dictionaries(
            st.sampled_from("abcdef"), st.booleans()
        ),  # requests with a token: whether each ends
        st.sets(st.sampled_from("uvw")),  # requests that end without a token
    ),
    max_size=30,
)


@given(SPEECH)
def test_gaps_are_between_tokens_of_the_same_request(steps):
    """Compared with a count of every event. An id that comes after its end is a new request."""
    tokens, now, lives, last = Tokens(["chat"]), 0, Counter(), {}
    ttft, gaps = Histogram(TIMES), Histogram(TIMES)
    for passed, speakers, mute in steps:
        now += passed * MS
        events = []
        for name, ends in speakers.items():
            id = f"{name}{lives[name]}"
            if id in last:
                gaps.add(now - last[id])
            else:
                tokens.silent[id] = Silent("chat", now - 7 * MS, 3)
                ttft.add(7 * MS)
            last[id] = now
            lives[name] += ends
            events.append(Event(id, (1,), Finish.LENGTH if ends else Finish.NOT_YET))
        for name in mute:
            tokens.silent[name] = Silent("chat", now, 3)
            events.append(Event(name, (), Finish.CANCELLED))
        tokens.count(events, now)
    assert (tokens._gaps.counts, tokens._gaps.sum) == (gaps.counts, gaps.sum)
    assert (tokens._ttft["chat"].counts, tokens.generated) == (
        ttft.counts,
        sum(len(speakers) for _, speakers, _ in steps),
    )
    assert tokens.silent == {}, "no ended request is remembered"
    alive = {f"{name}{count}" for name, count in lives.items()}
    assert {*tokens._earlier, *tokens._latest} <= alive | {f"{name}0" for name in "abcdef"}


def step(began, ended, host=0, running=0, waiting=0):
    return StepRow(1, began, ended - began, 0, 1, 1, 1, 0, 0, running, waiting, 9, host)


def load(now, running=0, oldest=NEVER):
    return Load(now, lanes={"chat": LaneLoad(Lane("chat"), 0, 0, oldest=oldest)}, running=running)


def test_every_nanosecond_has_exactly_one_kind():
    steps = Steps(["chat"])
    steps.begin(100)
    steps.add([step(150, 190, host=7, running=2)], load(190, running=2))  # 50 idle before
    steps.add([step(195, 205, host=1)], load(205))  # 5 after the first, while two run
    steps.add([], load(230, oldest=230))  # 25 idle; then a request comes and is held back
    steps.add([step(300, 310)], load(310))  # 70 of waiting
    assert steps._spent == {
        ("compute",): 33 + 9 + 10,
        ("host",): 7 + 5 + 1,
        ("idle",): 50 + 25,
        ("waiting",): 70,
    }
    assert steps._spent.total() == 310 - 100


def test_time_reported_as_idle_is_never_taken_back():
    """Read while there is no work, and again while there is work but no step has come back."""
    steps = Steps(["chat"])
    steps.begin(100)

    assert spent(steps, "idle", 600, busy=False) == pytest.approx(500e-9)
    assert spent(steps, "idle", 620, busy=True) == pytest.approx(500e-9)
    steps.add([step(650, 700)], load(700))
    assert spent(steps, "idle", 0, busy=True) == pytest.approx(550e-9)


def spent(steps, kind, now, busy):
    """Seconds of a kind, as a scrape shows them."""
    told = {each.name: each for each in steps.collect(Families("m"), {}, now, busy=busy)}
    samples = told["headway_step_seconds"].samples
    return next(each.value for each in samples if each.labels.get("kind") == kind)


def test_time_in_which_a_window_holds_requests_shows_while_it_passes():
    """A scrape during the step that ends the wait does not make any nanosecond count twice."""
    steps = Steps(["chat"])
    steps.begin(100)
    steps.add([], load(200, oldest=200))
    assert spent(steps, "waiting", 260, busy=True) == pytest.approx(60e-9)
    assert spent(steps, "waiting", 300, busy=True) == pytest.approx(100e-9)
    steps.add([step(290, 400, host=5)], load(400))  # the step had begun when the scrape came
    assert spent(steps, "waiting", 400, busy=False) == pytest.approx(100e-9)
    assert steps._spent.total() == 400 - 100
    steps.add([step(410, 412, host=1)], load(412))
    assert steps._spent.total() == 412 - 100


def test_the_front_gets_rows_then_events_before_its_callers_do():
    told, said = [], Event("a", (1,))

    class Heard:
        def tell(self, news):
            told.append("caller")

        def flush(self):
            pass

    remote = EngineClient(EngineOptions())
    remote.rows = lambda steps, requests: told.append("rows")
    remote.events = told.append
    remote.resized = told.append
    change = SizeChange("chat", "slots", 4, 5, "as it is", 0)
    remote._callers.add(["a"], Heard())
    remote._take(Step([said], [], [], Load(), 0, changes=(change,)))
    assert told == ["rows", [said], (change,), "caller"]


# -- what dashboards ask for

PREFIXES = r"(?:vllm:|headway_|lane:headway_|model:headway_|instance:headway_)"
LABELS = {"model_name", "engine", "instance", "job", "le"}  # labels that all metrics may have
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """Metrics of a fresh server with keys, a cost file, jobs and a ledger: name in queries -> type
    and labels."""
    store = str(tmp_path_factory.mktemp("jobs") / "jobs.db")
    config = ServerConfig(jobs={"store": store}, ledger={"url": store}, versions={"store": store})
    with serving(config, priced) as (url, service):
        service.jobs.metrics.items["answered"] += 1
        service.jobs.metrics.jobs["batch", "completed"] += 1
        service.jobs.metrics.webhooks["delivered"] += 1
        metrics = service.metrics.models[0]
        metrics.loaded(DeviceWork(1, 1, 1, 1, 1, 1.0, 1.0), 1)
        metrics._batches.add([step(0, 1)])
        metrics._batches.gap(1, 1)
        service.metrics.models[0]._keys.accepted("app", 1)
        service.metrics.models[0]._keys.left("app", 1, 1)
        watch = SimpleNamespace(lane="a", guardrail=SimpleNamespace(figure="queue_p95"), evidence=1)
        trial = SimpleNamespace(pairs=1, watches=[watch], needed=lambda each: 1)
        next(iter(service.versions)).metrics._trial = lambda: SimpleNamespace(number=2, trial=trial)
        text = httpx2.get(f"{url}/metrics").text
    found = {}
    for family in text_string_to_metric_families(text):
        labels = {name for sample in family.samples for name in sample.labels} - LABELS
        for suffix in SUFFIXES.get(family.type, ("",)):
            found[family.name + suffix] = family.type, labels
    return found


def of_functions():
    """Metrics of functions beside models that alerts may ask for."""
    part = FunctionsPart(None, {"resize": SimpleNamespace(state=EngineState.READY)})
    return {
        family.name: (family.type, {name for each in family.samples for name in each.labels})
        for family in part.collect()
    }


def panels(dashboard):
    return [
        *dashboard["panels"],
        *(p for row in dashboard["panels"] for p in row.get("panels", [])),
    ]


def read_dashboard():
    return json.loads((ROOT / "deploy/grafana/headway.json").read_text())


def expressions():
    dashboard = read_dashboard()
    yield from (t["expr"] for panel in panels(dashboard) for t in panel.get("targets", []))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    yield from (rule["expr"] for rule in rules())


def rules():
    said = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
    return [rule for group in said["groups"] for rule in group["rules"]]


def test_dashboards_and_alerts_use_existing_metrics(families):
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked, families = set(), families | of_functions()
    for expr in expressions():
        for name, selector in re.findall(rf"({PREFIXES}\w+(?::\w+)*)(?:{{([^}}]*)}})?", expr):
            asked.add(name)
            if name in recorded:
                continue
            assert name in families, f"{name} in {expr}"
            labels = set(re.findall(r"(\w+)\s*[=!]~?", selector))
            assert labels <= families[name][1] | LABELS, f"{labels} of {name} in {expr}"
    assert len(asked) > 30


def test_panels_stack_only_what_adds_up():
    """A stacked line is drawn above the sum of those below it, which no latency, no limit and no
    second figure may be."""
    stacked = [
        panel
        for panel in panels(read_dashboard())
        if "stacking" in panel.get("fieldConfig", {}).get("defaults", {}).get("custom", {})
    ]
    assert {panel["title"] for panel in stacked} >= {"Outcomes", "The engine's time"}
    for panel in stacked:
        assert panel["fieldConfig"]["defaults"]["unit"] != "s", panel["title"]
        (target,) = panel["targets"]
        assert "quantile" not in target["expr"], panel["title"]


def test_alerts_are_well_formed():
    names = [rule.get("alert") or rule["record"] for rule in rules()]
    assert len(names) == len(set(names))
    alerts = [rule for rule in rules() if "alert" in rule]
    assert alerts[0]["alert"] == "HeadwayQueueWaitRising", "before tokens per second fall"
    for rule in alerts:
        assert set(rule) <= {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_docs_list_every_metric(families):
    """Each metric has a row with its name, type and own labels."""
    text = (ROOT / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| `((?:vllm:|headway_)\w+)` \| (\w+) \|([^|]*)\|", text, re.M)
    listed = {}
    for name, kind, labels in rows:
        for suffix in SUFFIXES.get(kind, ("",)):
            name = name.removesuffix("_total") if kind == "counter" else name
            listed[name + suffix] = kind, set(re.findall(r"`(\w+)`", labels))
    ours = {name: what for name, what in families.items() if re.match(PREFIXES, name)}
    assert listed == ours


def test_metrics_can_be_reserved_for_one_key():
    secrets = {name: f"hw-{name}" for name in ("prometheus", "app")}
    keys = [
        {"name": name, "sha256": sha256(key.encode()).hexdigest()} for name, key in secrets.items()
    ]
    config = ServerConfig(keys=keys, metrics={"key": "prometheus"})

    with serving(config, fake) as (url, _):

        def read(key=""):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return httpx2.get(f"{url}/metrics", headers=headers)

        assert [read().status_code, read(secrets["app"]).status_code] == [401, 403]
        assert "headway_" not in read(secrets["app"]).text
        seen = httpx2.get(
            f"{url}/v1/config/effective", headers={"authorization": f"Bearer {secrets['app']}"}
        )
        assert "prometheus" not in seen.text
        assert "headway_key_requests_total" in read(secrets["prometheus"]).text
        assert httpx2.get(f"{url}/health").status_code == 200
