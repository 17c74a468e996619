"""Small runs in virtual time, each with one fault, recorded as a journal records them."""

from dataclasses import replace
from functools import cache

from headway.commands.diagnose.sources.from_journal import journal_evidence
from headway.commands.replay.recording import Recording
from headway.core.cost.step_cost import WHOLE, StepCost
from headway.core.lane import Budget, Lane
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.order import FirstCome, Priority
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals

MS, SECOND = 1_000_000, 1_000_000_000
COST = StepCost.of(5 * MS, per_token=80_000, per_pair=2)
CHAT = Lane("chat", Budget(ttft=SECOND // 2, tpot=20 * MS), 0)
OFFLINE = Lane("offline", priority=9)
USUAL = Policies(Continuous(16), Priority(), chunk=Fixed(128), step_tokens=144)


class Slowed(PricedExecutor):
    def __init__(self, cost, clock, slowness):
        super().__init__(cost, clock)
        self.slowness = slowness

    def factor(self, features):
        return round(WHOLE * self.slowness(self.clock.now() / SECOND))


def chats(count=150, gap=120 * MS, prompt=100, answer=24):
    return [
        Request(f"chat-{n}", (n + 1,) * prompt, answer, n * gap + n * 7_919 % 50 * MS, "chat")
        for n in range(count)
    ]


def recorded(
    requests, lanes=(CHAT,), policies=USUAL, blocks=2_048, slowness=lambda at: 1, cost=COST
):
    settings = Settings(blocks, 16, lanes, policies, 8_192, cost)
    scheduler, clock, records = Scheduler(settings), VirtualClock(), []
    executor = Slowed(COST, clock, slowness)
    inbox = TraceInbox(arrivals(sorted(requests, key=lambda each: each.arrived)), clock)
    engine = VirtualEngine(scheduler, executor, inbox, clock, executor)
    engine.keep = records.append
    while not scheduler.finished:
        engine.step()
    return Recording("small.jsonl", {}, settings, tuple(records), cut=False)


def healthy():
    return recorded(chats())


def window():
    policies = Policies(
        Dynamic(16, 3 * SECOND), mix=PrefillFirst(), chunk=Whole(), step_tokens=4_096
    )
    return recorded(chats(40, 700 * MS, answer=3), policies=policies)


def batch():
    crowd = [Request(f"o{n}", (10**5 + n,) * 10, 450, 0, "offline") for n in range(100)]
    policies = Policies(Continuous(128), Priority(), chunk=Fixed(128), step_tokens=256)
    tight = replace(CHAT, budget=Budget(ttft=SECOND, tpot=8 * MS))
    return recorded([*crowd, *chats(40)], (tight, OFFLINE), policies, 8_192)


def prompts():
    long = [Request(f"d{n}", (10**5 + n,) * 7_000, 8, n * SECOND, "offline") for n in range(16)]
    policies = Policies(Continuous(16), Priority(), chunk=Whole(), step_tokens=512)
    return recorded([*chats(answer=12), *long], (CHAT, OFFLINE), policies, 4_096)


def thrash():
    return recorded(chats(70, 70 * MS, 300, 60), blocks=90)


def starvation():
    hogs = [Request(f"o{n}", (10**5 + n,) * 10, 350, 0, "offline") for n in range(48)]
    return recorded([*hogs, *chats(40)], (CHAT, OFFLINE), replace(USUAL, order=FirstCome()))


def cold():
    def shared(n, each):
        prefix = 10**6 + n if 50 <= n < 100 else 10**5
        return replace(each, prompt=(prefix,) * 3_200 + each.prompt)

    policies = replace(USUAL, chunk=Fixed(1_024), step_tokens=1_040)
    requests = [shared(n, each) for n, each in enumerate(chats(gap=150 * MS))]
    return recorded(requests, policies=policies, blocks=8_192)


def neighbour(cost=COST):
    return recorded(chats(), slowness=lambda at: 6 if at % 5 < 1.2 else 1, cost=cost)


def drift():
    return recorded(chats(), slowness=lambda at: 4.5 if at > 6 else 1)


def burst():
    crowd = [Request(f"c{n}", (10**5 + n,) * 100, 24, 9 * SECOND + n, "chat") for n in range(120)]
    return recorded([*chats(), *crowd])


def budget():
    return recorded(chats(), (replace(CHAT, budget=Budget(ttft=4 * MS)),))


def overload():
    return recorded(chats(250, 8 * MS))


FAULTS = {
    "window too long": window,
    "batch too large": batch,
    "long prompts blocking": prompts,
    "KV thrash": thrash,
    "slot starvation by a lane": starvation,
    "cold cache": cold,
    "noisy neighbour": neighbour,
    "drift of the machine": drift,
    "burst": burst,
    "mis-set budget": budget,
    "overload": overload,
}


@cache
def served(name):
    """Evidence and rerun of a world, `healthy` or one with a fault. Both are only read."""
    recording = {**FAULTS, "healthy": healthy}[name]()
    return journal_evidence(recording, StepCost())
