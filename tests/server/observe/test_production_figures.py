"""Latency by batch size, what the device does, and what happens outside the engine."""

import httpx2
import pytest

from headway.core.ledger import StepRow
from headway.costing.datasheet import model_work, read_shape
from headway.models import EMBEDDED
from headway.server.config.config import ServerConfig
from headway.server.engine.device_work import DeviceWork, device_work
from headway.server.observe.metrics.batches import Batches
from headway.server.observe.metrics.device import Device
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.tokens import Silent, Tokens
from tests.server.asgi_client import Client, inside, paced, until
from tests.server.running_server import fake, serving, tiny

MS = 1_000_000


def step(rows, nanoseconds, decodes=None, tokens=None, free=0):
    decodes = rows if decodes is None else decodes
    tokens = rows if tokens is None else tokens
    return StepRow(1, 0, nanoseconds, 0, rows, tokens, decodes, 0, 0, rows, 0, free)


def samples(metrics, name):
    """Counts of a family by its own labels."""
    families = {each.name: each for each in metrics.collect(Families("m"))}
    own = {"model_name", "engine"}
    return {
        (
            sample.name,
            *sorted((k, v) for k, v in sample.labels.items() if k not in own),
        ): sample.value
        for sample in families[name].samples
    }


def test_steps_are_counted_by_their_rows_and_by_whether_they_had_prompts():
    batches = Batches()
    batches.add([step(1, 5 * MS), step(3, 6 * MS), step(4, 7 * MS), step(4, 90 * MS, decodes=3)])
    batches.add([step(600, 40 * MS)])
    found = samples(batches, "headway_step_duration_seconds")

    def sums(rows, kind):
        return tuple(
            found[f"headway_step_duration_seconds_{what}", ("kind", kind), ("rows", rows)]
            for what in ("count", "sum")
        )

    assert sums("1", "decode") == (1, 0.005)
    assert sums("4", "decode") == (2, pytest.approx(0.013))
    assert sums("4", "mixed") == (1, 0.09)
    assert sums("+Inf", "decode") == (1, 0.04)
    assert not [key for key in found if ("rows", "2") in key], "no step had two rows"


def test_token_gaps_are_counted_by_rows_in_steady_decoding_only():
    from headway.core.batch import Event

    batches, tokens = Batches(), Tokens(["chat"])
    tokens.steady = batches.gap
    for id in "ab":
        tokens.silent[id] = Silent("chat", 0, 5)
    tokens.count([Event("a", (1,)), Event("b", (1,))], 10 * MS)  # first tokens
    tokens.count([Event("a", (1,)), Event("b", (1,))], 15 * MS)
    tokens.count([Event("a", (1,))], 21 * MS)  # another batch than before
    tokens.count([Event("a", (1,))], 24 * MS)
    found = samples(batches, "headway_token_gap_seconds")
    name = "headway_token_gap_seconds"
    assert (found[f"{name}_count", ("rows", "2")], found[f"{name}_sum", ("rows", "2")]) == (2, 0.01)
    assert (found[f"{name}_count", ("rows", "1")], found[f"{name}_sum", ("rows", "1")]) == (
        1,
        0.003,
    )


def test_the_device_reads_its_weights_once_a_step_and_the_blocks_in_use():
    device = Device()
    device.loaded(DeviceWork(weights=1_000, block=10, num_blocks=8, token=7, head=3), 2_500 * MS)
    device.add([step(2, MS, tokens=5, free=6), step(1, MS, free=8)])
    read = samples(device, "headway_device_read_bytes")
    assert read["headway_device_read_bytes_total", ("what", "weights")] == 2_000
    assert read["headway_device_read_bytes_total", ("what", "kv")] == 20
    flop = samples(device, "headway_device_flop")
    assert flop["headway_device_flop_total",] == 7 * 6 + 3 * 3
    assert samples(device, "headway_model_load_seconds")["headway_model_load_seconds",] == 2.5
    with pytest.raises(KeyError):
        samples(device, "headway_device_peak_per_second")  # nothing was measured


def test_the_work_of_a_step_is_that_of_the_models_shape():
    loaded = tiny()
    work = device_work(loaded, None)
    shape = model_work(read_shape(str(EMBEDDED)))
    assert (work.token, work.head) == (shape.flops, shape.head) and work.token > 0
    assert work.weights == loaded.plan.weights and work.num_blocks == loaded.plan.num_blocks
    assert (work.read_peak, work.products_peak) == (0.0, 0.0)


def test_peaks_are_those_of_a_profiled_cost_file():
    class Profiled:
        about = {"profile": {"ceilings": {"read": 2e10, "products": 1e11}}}

    work = device_work(tiny(), Profiled())
    assert (work.read_peak, work.products_peak) == (2e10, 1e11)


def test_the_intake_time_and_the_slots_are_in_the_metrics():
    with serving(ServerConfig(engine={"slots": 5}), fake) as (url, _):
        body = {"prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": True}
        assert httpx2.post(f"{url}/v1/completions", json=body, timeout=60).status_code == 200
        text = httpx2.get(f"{url}/metrics").text
    (slots,) = [line for line in text.splitlines() if line.startswith("headway_batch_slots{")]
    assert slots.endswith(" 5.0")
    counts = [line for line in text.splitlines() if line.startswith("headway_intake_seconds_count")]
    assert sum(float(line.rsplit(" ", 1)[1]) for line in counts) == 1


def test_a_client_that_stops_reading_is_waited_for_and_counted():
    """The client reads again after the answer is complete, so the wait is the stream's own."""
    told = []

    async def scene(app, service, rows):
        model = service.model
        sent = model.sent
        model.sent = lambda *waited: told.append(waited) or sent(*waited)
        slow = Client(app, {"prompt": [5, 6], "max_tokens": 5, "ignore_eos": True, "stream": True})
        slow.reads.clear()
        await until(lambda: rows)
        slow.reads.set()
        await slow.task
        quick = Client(app, {"prompt": [5, 6], "max_tokens": 2, "ignore_eos": True, "stream": True})
        await quick.task

    inside(ServerConfig(), paced, scene)
    (lane, waited), _ = told  # each stream is counted once
    assert lane == "standard" and waited > 0
