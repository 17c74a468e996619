"""How things are now: the engine's Load, when it is asked for."""

from collections.abc import Iterator, Sequence

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
    """Of an engine that is down nothing is said to run."""
    if state is EngineState.DOWN:
        load = Load()
    yield families.gauge(
        "headway_engine_state",
        "1 for the one it is in.",
        {(each.value,): int(each is state) for each in EngineState},
        ("state",),
    )
    yield from _vllm(families, load, block_size)
    if load.drift:
        yield families.gauge(
            "headway_cost_drift_ratio",
            "What steps take of what the cost model says, a slow mean; 1: as it was calibrated.",
            {(): load.drift / WHOLE},
        )
    yield families.gauge(
        "headway_lane_budget_seconds",
        "The lane's limits; those that do not bind are left out.",
        {key: limit / SECOND for lane in lanes for key, limit in _limits(lane)},
        ("lane", "limit"),
    )
    yield families.gauge(
        "headway_lane_max_waiting",
        "Requests that may wait; the next one is refused.",
        {(lane.name,): lane.max_waiting for lane in lanes},
        LANE,
    )
    yield from _lanes(families, {lane.name: _load(load, lane) for lane in lanes}, load, now)


def _vllm(families: Families, load: Load, block_size: int) -> Iterator[Metric]:
    waiting = sum([lane.waiting for lane in load.lanes.values()])
    yield families.gauge(
        "vllm:num_requests_running", "Requests in the running batch.", {(): load.running}
    )
    yield families.gauge("vllm:num_requests_waiting", "Requests that wait.", {(): waiting})
    held = load.num_blocks - load.free_blocks
    yield families.gauge(
        "vllm:kv_cache_usage_perc",
        "Share of the KV blocks that sequences hold, 0 to 1.",
        {(): held / max(1, load.num_blocks)},
    )
    yield families.gauge(
        "vllm:cache_config_info",
        "The KV memory; always 1.",
        {(str(block_size), str(load.num_blocks)): 1},
        ("block_size", "num_gpu_blocks"),
    )


def _lanes(
    families: Families, lanes: dict[str, LaneLoad], load: Load, now: int
) -> Iterator[Metric]:
    ages = {
        (name,): 0.0 if lane.oldest == NEVER else max(0, now - lane.oldest) / SECOND
        for name, lane in lanes.items()
    }
    yield families.gauge(
        "headway_oldest_wait_seconds",
        "Since the arrival of the first in the lane's line; 0: nobody waits. Moves before the "
        "histogram of waits does.",
        ages,
        LANE,
    )
    for name, help, field in (
        ("waiting_requests", "Requests that wait in the lane.", "waiting"),
        ("waiting_tokens", "Prompt tokens that wait in the lane.", "tokens"),
        ("active_sequences", "The lane's sequences in the running batch.", "running"),
        ("drain_tokens_per_second", "Prompt tokens that start while some wait.", "drain"),
    ):
        values = {(lane,): getattr(each, field) for lane, each in lanes.items()}
        yield families.gauge(f"headway_{name}", help, values, LANE)
    yield families.gauge(
        "headway_kv_usage_ratio",
        "Share of the KV blocks that the lane's sequences hold; one that several share counts for "
        "each, so the lanes may sum to more than 1.",
        {(name,): lane.blocks / max(1, load.num_blocks) for name, lane in lanes.items()},
        LANE,
    )


def _load(load: Load, lane: Lane) -> LaneLoad:
    return load.lanes.get(lane.name, LaneLoad(lane, 0, 0))


def _limits(lane: Lane) -> list[tuple[tuple[str, str], int]]:
    budget = lane.budget
    limits = {"ttft": budget.ttft, "tpot": budget.tpot, "e2e": budget.e2e, "queue": budget.queue}
    return [((lane.name, name), limit) for name, limit in limits.items() if limit != NEVER]
