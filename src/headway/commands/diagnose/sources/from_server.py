"""Diagnose a live server from its counters between two looks.

There are no rows, so causes are not matched to single requests. A cause's score is a share of
requests, streams, steps, slots or time; each rule says which.
"""

from collections.abc import Callable
from dataclasses import replace
from math import ceil

from headway.commands.diagnose.causes.client import TRIAL as PROXY
from headway.commands.diagnose.causes.memory import FLOOR
from headway.commands.diagnose.diagnosis import FEW, Diagnosis
from headway.commands.diagnose.finding import STRATEGY, Finding, NotKnown, Trial
from headway.commands.diagnose.sources.server_look import Between, ServerLook, look_at
from headway.core.cost.estimates import MOST
from headway.live.clock import WallClock
from headway.report.formatting import duration, share

SLOW = 1.0  # seconds that a stream may wait for its client
LEAST = 20  # steps of a kind: from fewer, a share is chance
SECOND = 1e9
UNKNOWN = {
    "cold cache": "counters do not say which prompts were once in the cache",
    "noisy neighbour": "counters do not say what a step should have taken; a journal does",
    "mis-set budget": "counters do not say how long a request takes alone; a journal does",
    "burst": "two looks do not tell a burst from an overload; a journal does",
}


def read_server(
    url: str, key: str, seconds: float, model: str = ""
) -> tuple[ServerLook, ServerLook, float]:
    """Look at a model twice, `seconds` apart. Returns both looks and the seconds that passed."""
    url = url.rstrip("/").removesuffix("/v1")
    clock = WallClock()
    before, began = look_at(url, key, model), clock.now()
    clock.advance_to(began + round(seconds * SECOND))
    return before, look_at(url, key, model), (clock.now() - began) / SECOND


def server_diagnosis(
    before: ServerLook, after: ServerLook, seconds: float, source: str
) -> Diagnosis:
    """The diagnosis that the counters between the looks give."""
    seen = Between(before, after, seconds)
    outcomes = {
        each: seen.counted("headway_requests_total", outcome=each)
        for each in ("good", "late", "expired", "refused", "error")
    }
    found = [answer for rule in LIVE if (answer := rule(seen))]
    slow = sum(each.cause == "slow client" for each in found)
    hurt = seen.above("headway_client_wait_seconds", SLOW) if slow else 0.0
    late = outcomes["late"] + outcomes["expired"]
    waiting = [name for name in after.lanes if _is_over(seen, name)]
    # Of a line, only its first request is known to be late. A long line is enough to hurt.
    stands = any(seen.now("headway_waiting_requests", lane=name) >= FEW for name in waiting)
    made = Diagnosis(
        source=f"{source}: counters over {seconds:.1f} s, {sum(outcomes.values()):.0f} requests "
        "ended",
        offered=round(max(sum(outcomes.values()), hurt)) + len(waiting),
        missed=round(max(late, hurt)) + len(waiting),
        refused=round(outcomes["refused"]),
        failed=round(outcomes["error"]),
        findings=tuple(sorted(found, key=lambda each: -each.score)),
        not_known=tuple([NotKnown(cause, why) for cause, why in UNKNOWN.items()]),
        few=1 if stands else FEW,
        by_rows=False,
    )
    return made if made.hurts and made.missed >= made.few else replace(made, findings=())


def _limit(seen: Between, lane: str, *names: str) -> float:
    """The tightest of these limits of a lane, in seconds; infinite if it has none."""
    budget = seen.after.lanes[lane]["budget_ms"]
    limits = [budget[name] / 1e3 for name in names if budget.get(name) is not None]
    return float(min(limits, default=float("inf")))


def _served(seen: Between) -> list[str]:
    """The lanes that had requests: others' limits say nothing about these steps."""
    return [
        lane
        for lane in seen.after.lanes
        if seen.counted("headway_requests_total", lane=lane)
        or seen.now("headway_active_sequences", lane=lane)
    ]


def _is_over(seen: Between, lane: str) -> bool:
    """Whether the lane's oldest waiting request has exceeded its TTFT or queue limit."""
    oldest = seen.now("headway_oldest_wait_seconds", lane=lane)
    return oldest > _limit(seen, lane, "ttft", "queue")


# -- one function per cause


def _window(seen: Between) -> Finding | None:
    """Score: the share of the time in which requests waited and no sequence ran."""
    held = seen.counted("headway_step_seconds_total", kind="waiting") / seen.seconds
    if held < 0.1:
        return None
    return Finding(
        "window too long",
        min(1.0, held),
        (f"in {share(held)} of {seen.seconds:.1f} s requests waited and no step ran",),
        Trial("engine:\n  strategy: continuous-chunk-256", "Nobody waits for a group to fill"),
    )


def _client(seen: Between) -> Finding | None:
    """Score: the share of the streams that waited over SLOW for their client, or were cut off."""
    name = "headway_client_wait_seconds"
    streams, slow = seen.counted(f"{name}_count"), seen.above(name, SLOW)
    cut = seen.counted("headway_slow_readers_total")
    if not slow and not cut:
        return None
    return Finding(
        "slow client",
        min(1.0, (slow + cut) / max(1.0, streams)),
        (
            f"{slow:.0f} of {streams:.0f} streams waited more than {SLOW:g} s for their client, "
            f"{duration(SECOND * seen.mean(name))} in the mean; {cut:.0f} were cut off",
        ),
        PROXY,
    )


def _grammar(seen: Between) -> Finding | None:
    """Score: the share of a lane's requests that had a grammar, if a grammar adds over a quarter
    of its TTFT limit at intake. The lane with the largest share."""
    name, worst = "headway_intake_seconds", None
    for lane in seen.after.lanes:
        with_, without = (seen.mean(name, lane=lane, grammar=has) for has in ("yes", "no"))
        count = seen.counted(f"{name}_count", lane=lane, grammar="yes")
        share_of = count / max(1.0, seen.counted(f"{name}_count", lane=lane))
        if count and with_ - without > 0.25 * _limit(seen, lane, "ttft"):
            worst = max(worst or (0.0, "", 0.0, 0.0), (share_of, lane, with_, without))
    if not worst:
        return None
    score, lane, with_, without = worst
    return Finding(
        "grammar compile",
        score,
        (
            f"in {lane}, requests with a grammar take {duration(SECOND * with_)} to come into "
            f"their lane and others {duration(SECOND * without)}, in the mean",
        ),
        Trial("server:\n  limits:\n    grammar_compile: 200ms", "Refuse grammars that take longer"),
    )


def _memory(seen: Between) -> Finding | None:
    """Score: preemptions per late request, at most half; and half if over 95 % of the blocks are
    held at both looks and requests wait."""
    lost = seen.counted("vllm:num_preemptions_total")
    full = min(seen.now("vllm:kv_cache_usage_perc"), seen.was("vllm:kv_cache_usage_perc"))
    waits = seen.now("vllm:num_requests_waiting") > 0
    late = sum(seen.counted("headway_requests_total", outcome=each) for each in ("late", "expired"))
    score = min(0.5, lost / max(1.0, late)) + 0.5 * (full > 0.95 and waits)
    if not score:
        return None
    slots, steps = seen.now("headway_batch_slots"), seen.counted("headway_steps_total")
    ran = seen.counted("headway_batch_size_sum") / steps if steps else 0.75 * slots
    fewer = max(1, ceil(slots * FLOOR), min(ceil(ran), round(slots) - 1))
    return Finding(
        "KV thrash",
        score,
        (f"{lost:.0f} preemptions in {seen.seconds:.1f} s; {share(full)} of the blocks are held",),
        Trial(f"engine:\n  slots: {fewer}", "Fewer sequences, which all find memory"),
    )


def _drift(seen: Between) -> Finding | None:
    """Score: how far the measured step time exceeds the cost model's, as a ratio, at most 1."""
    drift = min(seen.now("headway_cost_drift_ratio"), seen.was("headway_cost_drift_ratio"))
    if drift < 1.2:
        return None
    most = MOST / 1_000_000  # a mean that ends there may stand for any slower machine
    times = f"{drift:.2f} times" if drift < 0.99 * most else f"{most:g} times or more"
    return Finding(
        "drift of the machine",
        min(1.0, drift - 1),
        (f"steps take {times} what the cost model says, as a slow mean",),
        Trial(
            "# headway calibrate --out cost.json, then\nengine:\n  cost: cost.json", "New prices"
        ),
    )


def _starvation(seen: Between) -> Finding | None:
    """Score: the share of the slots that one lane holds, if it holds most of them, nearly all are
    taken, and another lane's oldest request has waited beyond its limit."""
    slots = seen.now("headway_batch_slots")
    active = {lane: seen.now("headway_active_sequences", lane=lane) for lane in seen.after.lanes}
    holder = max(active, key=lambda lane: active[lane], default="")
    starved = [lane for lane in active if lane != holder and _is_over(seen, lane)]
    if not starved or not slots or sum(active.values()) < 0.95 * slots:
        return None
    held = active[holder] / slots
    if held < 0.6:
        return None
    return Finding(
        "slot starvation by a lane",
        held,
        (f"{holder} holds {active[holder]:.0f} of {slots:.0f} slots, and {starved[0]} waits",),
        Trial(
            f"lanes:\n  {holder}:\n    slots: {{most: {max(1, round(0.75 * slots))}}}",
            "A quarter of the slots is left to others",
        ),
    )


def _steps(seen: Between, kind: str) -> tuple[float, float, str]:
    """For steps of this kind: the share above the tightest TPOT limit, how many steps there were,
    and the batch-size class with most of those above."""
    limit = min([_limit(seen, lane, "tpot") for lane in _served(seen)], default=float("inf"))
    name = "headway_step_duration_seconds"
    count = seen.counted(f"{name}_count", kind=kind)
    sizes = {
        rows: seen.above(name, limit, kind=kind, rows=rows)
        for rows in seen.values(f"{name}_count", "rows")
    }
    slow = sum(sizes.values())
    most = max(sizes, key=lambda rows: sizes[rows]) if sizes else ""
    return (slow / count if count else 0.0), count, most


def _batch(seen: Between) -> Finding | None:
    """Score: the share of the steps without prompts that exceed the tightest TPOT limit."""
    slow, count, rows = _steps(seen, "decode")
    if count < LEAST or slow < 0.1 or rows == "1":  # a single row is no batch
        return None
    return Finding(
        "batch too large",
        slow,
        (
            f"{share(slow)} of {count:.0f} decode steps take longer than the tightest TPOT limit, "
            f"most of them with up to {rows} rows",
        ),
        Trial(
            f"engine:\n  slots: {max(1, round(0.5 * seen.now('headway_batch_slots')))}",
            "Half as many sequences at once",
        ),
    )


def _prompts(seen: Between) -> Finding | None:
    """Score: the share of the steps with prompts that exceed the tightest TPOT limit."""
    slow, count, _ = _steps(seen, "mixed")
    if count < LEAST or slow < 0.1 or _steps(seen, "decode")[0] >= 0.1:
        return None
    return Finding(
        "long prompts blocking",
        slow,
        (
            f"{share(slow)} of {count:.0f} steps with prompts take longer than the tightest TPOT "
            "limit, and steps without do not",
        ),
        Trial(f"{STRATEGY}    chunk: 128", "Smaller parts of a prompt in each step"),
    )


def _overload(seen: Between) -> Finding | None:
    """Score: by how much a lane's oldest wait grew between the looks, over its limit; at most
    half, because a line grows for the other causes too."""
    worst, named = 0.0, ""
    for lane in seen.after.lanes:
        now, was = (read("headway_oldest_wait_seconds", lane=lane) for read in (seen.now, seen.was))
        grown = (now - was) / _limit(seen, lane, "ttft", "queue")
        if now > was and _is_over(seen, lane) and grown > worst:
            worst, named = grown, lane
    if not named:
        return None
    return Finding(
        "overload",
        min(0.5, worst),
        (f"the first in the line of {named} waits longer than it may, and ever longer",),
        Trial("engine:\n  strategy: budgets\n  cost: cost.json", "Serve those who can be in time"),
    )


LIVE: tuple[Callable[[Between], Finding | None], ...] = (
    _client,
    _grammar,
    _window,
    _starvation,
    _memory,
    _drift,
    _batch,
    _prompts,
    _overload,
)
