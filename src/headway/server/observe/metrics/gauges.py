"""The gauges: the engine's present Load, read when Prometheus scrapes."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from prometheus_client.core import Metric

from headway.core.cost.step_cost import WHOLE
from headway.core.lane import Lane
from headway.core.load import LaneLoad, Load
from headway.core.request import NEVER
from headway.server.engine.handle import EngineState
from headway.server.observe.metrics.families import SECOND, Families

LANE = ("lane",)


def gauges(
    families: Families,
    load: Load,
    state: EngineState,
    lanes: Sequence[Lane],
    block_size: int,
    now: int,
) -> Iterator[Metric]:
    """The gauge families. now: nanoseconds of the engine's clock.

    An engine that is down has no running and no waiting requests.
    """
    if state is EngineState.DOWN:
        load = Load()
    yield families.gauge(
        "headway_engine_state",
        "1 for the engine's present state, 0 for the others.",
        {(each.value,): int(each is state) for each in EngineState},
        ("state",),
    )
    yield from _vllm_gauges(families, load, block_size)
    if load.drift:
        yield families.gauge(
            "headway_cost_drift_ratio",
            "Measured over predicted step time, a slow mean. 1: as calibrated.",
            {(): load.drift / WHOLE},
        )
    yield families.gauge(
        "headway_lane_budget_seconds",
        "The lane's limits that are set.",
        {key: limit / SECOND for lane in lanes for key, limit in _limits(lane)},
        ("lane", "limit"),
    )
    yield families.gauge(
        "headway_lane_max_waiting",
        "How many requests may wait. The next one is refused.",
        {(lane.name,): lane.max_waiting for lane in lanes},
        LANE,
    )
    loads = {lane.name: _lane_load(load, lane) for lane in lanes}
    yield from _size_gauges(families, loads)
    yield from _lane_gauges(families, loads, load, now)


def _size_gauges(families: Families, loads: Mapping[str, LaneLoad]) -> Iterator[Metric]:
    """Sizes that may follow the load."""
    yield families.gauge(
        "headway_lane_slots",
        "Sequences of the lane that may run at once, at present. +Inf: it has no most.",
        {(name,): inf if each.slots == NEVER else each.slots for name, each in loads.items()},
        LANE,
    )
    yield families.gauge(
        "headway_lane_window_seconds",
        "How long the lane's oldest request may be held, at present. 0: nobody is held.",
        {(n,): 0 if each.window == NEVER else each.window / SECOND for n, each in loads.items()},
        LANE,
    )


def _vllm_gauges(families: Families, load: Load, block_size: int) -> Iterator[Metric]:
    waiting = sum([lane.waiting for lane in load.lanes.values()])
    yield families.gauge(
        "vllm:num_requests_running", "Requests in the running batch.", {(): load.running}
    )
    yield families.gauge("vllm:num_requests_waiting", "Waiting requests.", {(): waiting})
    held = load.num_blocks - load.free_blocks
    yield families.gauge(
        "vllm:kv_cache_usage_perc",
        "Share of the KV blocks that sequences hold, 0 to 1.",
        {(): held / max(1, load.num_blocks)},
    )
    yield families.gauge(
        "vllm:cache_config_info",
        "The size of the KV memory, in its labels. Always 1.",
        {(str(block_size), str(load.num_blocks)): 1},
        ("block_size", "num_gpu_blocks"),
    )


def _lane_gauges(
    families: Families, lanes: dict[str, LaneLoad], load: Load, now: int
) -> Iterator[Metric]:
    ages = {
        (name,): 0.0 if lane.oldest == NEVER else max(0, now - lane.oldest) / SECOND
        for name, lane in lanes.items()
    }
    yield families.gauge(
        "headway_oldest_wait_seconds",
        "Time since the first request in the lane's line arrived; 0 when none waits. It rises "
        "before the histogram of waits does.",
        ages,
        LANE,
    )
    for name, help, field in (
        ("waiting_requests", "Waiting requests of the lane.", "waiting"),
        ("waiting_tokens", "Prompt tokens of the lane's waiting requests.", "tokens"),
        ("active_sequences", "The lane's sequences in the running batch.", "running"),
        (
            "drain_tokens_per_second",
            "Prompt tokens started per second while requests wait. 0 until known.",
            "drain",
        ),
    ):
        values = {(lane,): getattr(each, field) for lane, each in lanes.items()}
        yield families.gauge(f"headway_{name}", help, values, LANE)
    yield families.gauge(
        "headway_kv_usage_ratio",
        "Share of the KV blocks that the lane's sequences hold. A shared block counts for each of "
        "its sequences, so the lanes may sum to more than 1.",
        {(name,): lane.blocks / max(1, load.num_blocks) for name, lane in lanes.items()},
        LANE,
    )


def _lane_load(load: Load, lane: Lane) -> LaneLoad:
    none = LaneLoad(lane, 0, 0, slots=lane.slots.low or lane.slots.most)
    return load.lanes.get(lane.name, none)


def _limits(lane: Lane) -> list[tuple[tuple[str, str], int]]:
    budget = lane.budget
    limits = {"ttft": budget.ttft, "tpot": budget.tpot, "e2e": budget.e2e, "queue": budget.queue}
    return [((lane.name, name), limit) for name, limit in limits.items() if limit != NEVER]
