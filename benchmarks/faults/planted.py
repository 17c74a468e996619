"""Nine faults of scheduling, load or machine, planted into a healthy service in simulation.

Each is a change to a World. Sizes are fixed here and were not fitted to the rules' thresholds; the
windows of traffic differ between choosing rules and judging them (__main__).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.budgets.mixes import MS, SECOND
from benchmarks.faults.world import (
    CHUNK,
    LANES,
    LOAD,
    SLOTS,
    World,
    as_priced,
    healthy,
    machine,
)
from headway.core.lane import Budget, Lane
from headway.core.policies.chunk import Whole
from headway.core.policies.join import Continuous, Dynamic
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.order import FirstCome, Priority
from headway.core.policies.policies import Policies
from headway.core.request import Request

SHARED = 8_000  # tokens of a system prompt that all requests of the cache's world begin with
OFFLINE = Lane("offline", priority=9)  # no budget


def _last(world: World) -> int:
    return max(each.arrived for each in world.requests)


def window_too_long(number: int) -> World:
    """Short answers under dynamic batching, held for five seconds where two are allowed."""
    world = healthy(number, LOAD / 4)
    short = tuple(replace(each, max_tokens=min(each.max_tokens, 8)) for each in world.requests)
    policies = Policies(
        Dynamic(SLOTS, 5 * SECOND), mix=PrefillFirst(), chunk=Whole(), step_tokens=1 << 20
    )
    return replace(world, policies=policies, requests=short)


def batch_too_large(number: int) -> World:
    """A backlog of long answers fills 512 slots beside the chat."""
    world = healthy(number, LOAD / 2)
    backlog = tuple(
        Request(f"offline-{n}", (10**6 + n,) * 200, 2_000, 0, "offline") for n in range(420)
    )
    lanes = tuple(replace(lane, budget=replace(lane.budget, tpot=25 * MS)) for lane in LANES)
    policies = Policies(
        Continuous(512), Priority(), chunk=world.policies.chunk, step_tokens=512 + CHUNK
    )
    blocks = 4 * machine().num_blocks  # a larger device, so that memory is not the cause
    return World((*backlog, *world.requests), (*lanes, OFFLINE), policies, blocks)


def long_prompts(number: int) -> World:
    """Documents of 24,000 tokens, whole prompts in one step, every two seconds."""
    world = healthy(number, LOAD / 2)
    documents = tuple(
        Request(f"code-long-{n}", (10**6 + n,) * 24_000, 60, 2 * SECOND * n, "documents")
        for n in range(_last(world) // (2 * SECOND))
    )
    lanes = (*LANES, Lane("documents", Budget(ttft=30 * SECOND), 0))
    policies = Policies(Continuous(SLOTS), Priority(), chunk=Whole(), step_tokens=2_048)
    requests = sorted((*world.requests, *documents), key=lambda each: each.arrived)
    return replace(world, requests=tuple(requests), lanes=lanes, policies=policies)


def kv_thrash(number: int) -> World:
    """A fortieth of the memory: sequences take each other's blocks."""
    world = healthy(number, 1.25 * LOAD)
    return replace(world, num_blocks=machine().num_blocks // 40)


def slot_starvation(number: int) -> World:
    """A lane without a budget takes the slots first come, first served, and keeps them long."""
    world = healthy(number, LOAD / 2)
    hogs = tuple(
        Request(f"offline-{n}", (10**6 + n,) * 300, 2_500, 0, "offline") for n in range(250)
    )
    policies = replace(world.policies, order=FirstCome())
    return World((*hogs, *world.requests), (*LANES, OFFLINE), policies)


def cold_cache(number: int) -> World:
    """All prompts share a beginning. For the middle third, each request has another one."""
    world = healthy(number)
    begin, end = _last(world) // 3, 2 * _last(world) // 3

    def shared(n: int, each: Request) -> Request:
        cold = begin <= each.arrived < end
        prefix = ((10**7 + n,) if cold else (10**6,)) * SHARED
        return replace(each, prompt=(*prefix, *each.prompt))

    return replace(world, requests=tuple(shared(n, each) for n, each in enumerate(world.requests)))


def noisy_neighbour(number: int) -> World:
    """For six seconds of every sixteen, steps take ten times their price."""

    def slowness(step: int, now: int) -> int:
        return as_priced(step, now) * (10 if now // SECOND % 16 < 6 else 1)

    return replace(healthy(number), slowness=slowness)


def burst(number: int) -> World:
    """In the middle, 200 requests at one moment."""
    world = healthy(number, LOAD / 2)
    middle = _last(world) // 2
    crowd = [
        Request(f"chat-burst-{n}", (10**6 + n,) * 1_500, 120, middle + n, "chat")
        for n in range(200)
    ]
    requests = sorted((*world.requests, *crowd), key=lambda each: each.arrived)
    return replace(world, requests=tuple(requests))


def mis_set_budget(number: int) -> World:
    """A limit of 12 ms to the first token, copied from a smaller model."""
    world = healthy(number, LOAD / 2)
    return replace(
        world, lanes=tuple(replace(each, budget=Budget(12 * MS, 50 * MS)) for each in LANES)
    )


def drift(number: int) -> World:
    """From a third of the run on, each step takes four times its price: a lowered clock."""
    world = healthy(number)
    begin = _last(world) // 3

    def slowness(step: int, now: int) -> int:
        return as_priced(step, now) * (4 if now > begin else 1)

    return replace(world, slowness=slowness)


PLANTED: Mapping[str, Callable[[int], World]] = {
    "window too long": window_too_long,
    "batch too large": batch_too_large,
    "long prompts blocking": long_prompts,
    "KV thrash": kv_thrash,
    "slot starvation by a lane": slot_starvation,
    "cold cache": cold_cache,
    "noisy neighbour": noisy_neighbour,
    "burst": burst,
    "mis-set budget": mis_set_budget,
    "drift of the machine": drift,
}
