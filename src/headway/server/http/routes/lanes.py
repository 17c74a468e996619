"""The state of a model's lanes, as /v1/lanes returns it."""

from typing import Any

from headway.core.cost.step_cost import WHOLE
from headway.core.load import LaneLoad
from headway.core.request import NEVER
from headway.server.config.tenant import Tenant
from headway.server.intake.model import Model


def lane_states(model: Model, tenant: Tenant) -> dict[str, Any]:
    """The lanes that the tenant may use, and the KV memory that they share."""
    load, preparing = model.engine.load, model.admission.preparing
    data = [
        _lane(name, lane, preparing[name], load.now)
        for name, lane in load.lanes.items()
        if name in tenant.lanes
    ]
    shared = {"running": load.running, "free_blocks": load.free_blocks}
    blocks: dict[str, Any] = {"blocks": load.num_blocks, "capacity": load.capacity}
    if load.drift:  # measured over predicted step time, if there is a cost file
        blocks["drift"] = load.drift / WHOLE
    return {"data": data, **shared, **blocks}


def _lane(name: str, load: LaneLoad, preparing: int, now: int) -> dict[str, Any]:
    lane, budget = load.lane, load.lane.budget
    limits = {"ttft": budget.ttft, "tpot": budget.tpot, "e2e": budget.e2e, "queue": budget.queue}
    return {
        "id": name,
        "object": "lane",
        "preparing": preparing,  # requests being tokenized; they hold places in the line
        "waiting": load.waiting,
        "waiting_tokens": load.tokens,
        "relegated": load.relegated,  # how many of the waiting requests are relegated
        "drain_tokens_per_second": round(load.drain, 3),  # 0: not measured yet
        "eta": _eta(load, now),
        "max_waiting": _bound(lane.max_waiting),
        "max_waiting_tokens": _bound(lane.max_waiting_tokens),
        "priority": lane.priority,
        "slots": _bound(load.slots),  # requests that may run at once, at present
        # How long the lane's oldest request may be held, at present; null: none is held.
        "window_ms": None if load.window == NEVER else load.window / 1e6,
        "budget_ms": {
            name: None if limit == NEVER else limit / 1e6 for name, limit in limits.items()
        },
    }


def _eta(load: LaneLoad, now: int) -> dict[str, float] | None:
    """The first-token time of a request that came now; null: not known."""
    if load.eta == NEVER:
        return None
    return {
        "first_token_ms": round(load.eta / 1e6, 1),
        "prompt_tokens": load.eta_prompt,
        "age_ms": round((now - load.eta_at) / 1e6, 1),  # the estimate's age at the latest step
    }


def _bound(limit: int) -> int | None:
    return None if limit == NEVER else limit
