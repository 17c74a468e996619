"""What the tests share: random traces, and the answer that batching must not change."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from hypothesis import strategies as st

from headway.core.accounts.accounts import Accounts
from headway.core.batch import Batch, Begun, Event, Logprob
from headway.core.commands import Add, Cancel, Command, Stop
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.load import Load
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.calls import Calls
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.defer import Nobody, WithoutDeadline, WithTimeToSpare
from headway.core.policies.fairly import Fairly
from headway.core.policies.join import Continuous, Dynamic, LengthClasses, Start, Static
from headway.core.policies.memory import Ahead, Now
from headway.core.policies.mix import Alternate, Mixed, PrefillFirst
from headway.core.policies.order import FirstCome, Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane, Youngest
from headway.core.policies.relegate import Hopeless, Keep
from headway.core.request import NEVER, Request
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.core.view import View
from headway.engine import Engine, Executor
from headway.executor.fake import ROOT, FakeExecutor, mix, next_token, pooled, score
from headway.journal import codec, journal
from headway.journal.record import Record
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from tests.lane_rules import watched

BLOCK = 4
MS = 1_000_000
MOST_STEPS = 5_000  # of a case; each has a few hundred tokens
DEFAULT = Policies()
COST = StepCost.of(10 * MS, per_token=MS, per_pair=0)
DEFERRING = [WithoutDeadline(), WithTimeToSpare(2)]


def answer(request: Request) -> list[int]:
    """The answer of a model that computes one token at a time, alone and without a cache."""
    tokens, states = list(request.prompt), list[int]()
    for _ in range(request.max_tokens):
        for token in tokens[len(states) :]:
            states.append(mix(states[-1] if states else ROOT, token))
        tokens.append(next_token(states, len(request.prompt), request.sampling))
        if tokens[-1] in request.sampling.stop_tokens:
            break
    return tokens[len(request.prompt) :]


def scored(request: Request) -> list[Logprob]:
    """The log-probabilities of the request's prompt, computed alone; none if it asks for none."""
    if request.sampling.prompt_logprobs < 0:
        return []
    states, said = list[int](), list[Logprob]()
    for token in request.prompt:
        if states:
            said.append(score(states[-1], token))
        states.append(mix(states[-1] if states else ROOT, token))
    return said


def vector(request: Request) -> bytes:
    """The vector of the request's prompt, computed alone; empty if it asks for none."""
    states = list[int]()
    for token in request.prompt:
        states.append(mix(states[-1] if states else ROOT, token))
    return pooled(states, request.pooling) if request.pooling else b""


def make(blocks: int, policies: Policies = DEFAULT, lanes: tuple[str, ...] = ("default",)):
    """A scheduler over its own lanes; the first lane has the lowest priority."""
    return Scheduler(settings_of(blocks, policies, lanes))


def settings_of(blocks: int, policies: Policies, lanes: tuple[str, ...]) -> Settings:
    made = tuple([Lane(name, priority=-i) for i, name in enumerate(lanes)])
    return Settings(blocks, BLOCK, made, policies)


def ask(id: str, prompt: int | tuple[int, ...], max_tokens: int, arrived: int = 0, **rest: Any):
    prompt = tuple(range(prompt)) if isinstance(prompt, int) else prompt
    return Request(id, prompt, max_tokens, arrived, **rest)


@dataclass
class Spy(Executor):
    """An executor that keeps the batches it passes on."""

    executor: Any
    batches: list[Batch]

    @property
    def traits(self):
        return self.executor.traits

    def submit(self, batch: Batch) -> int:
        self.batches.append(batch)
        return self.executor.submit(batch)

    def collect(self, ticket: int):
        return self.executor.collect(ticket)


def able(begun: Begun) -> None:
    """Let every sequence begin."""


def spy(blocks: int, burst: int = 1, begins: Callable[[Begun], None] = able) -> Spy:
    return Spy(FakeExecutor(blocks, BLOCK, burst, begins, 3), [])


@dataclass(frozen=True)
class Case:
    blocks: int
    policies: Policies
    timed: list[tuple[int, Command]]
    burst: int = 1  # tokens that the executor gives at once
    lanes: tuple[Lane, ...] = (Lane("bulk"), Lane("chat", priority=-1))
    cost: StepCost = StepCost()  # that the scheduler knows
    depth: int = 1  # steps in flight

    @property
    def settings(self) -> Settings:
        return Settings(
            self.blocks, BLOCK, self.lanes, self.policies, cost=self.cost, depth=self.depth
        )

    def most(self, lane: str) -> int:
        """Tokens that a request of this lane may ever hold."""
        (found,) = [each for each in self.lanes if each.name == lane]
        return min(self.blocks, found.blocks.most) * BLOCK

    @property
    def requests(self) -> dict[str, Request]:
        adds = [command for _, command in self.timed if isinstance(command, Add)]
        return {add.request.id: add.request for add in adds}


@dataclass(frozen=True)
class Crowd:
    """Like Continuous but without slots: more may run than fit a step."""

    most: int

    def start(self, view: View) -> Start:
        return Continuous(self.most).start(view)


codec.TYPES["Crowd"] = Crowd
JOINS = (
    Continuous(8),
    Continuous(3),
    Crowd(6),
    Static(3),
    Static(3, buckets=(4, 8)),
    Static(3, together=True),
    LengthClasses(2, (4, 8), 50 * MS),
    LengthClasses(2, (4, 8), 50 * MS, pad_to_bound=True),
    Dynamic(3, 50 * MS),
    Dynamic(2, 500 * MS, {"chat": 0}),
)
CALLS = (
    Calls(3),
    Calls(3, ahead=True),
    Calls(3, 50 * MS, {"chat": 0}, cost=9),
    Calls(2, 50 * MS, bounds=(4, 8)),
)
TENANTS = st.sampled_from(["", "acme", "bell", "bell"])
WEIGHTS = {"acme": 3, "bell": 2}


def fair_or_not(orders: list[Any]) -> list[Any]:
    """These orders, and each of them shared fairly among tenants."""
    return [*orders, *(Fairly(order, WEIGHTS) for order in orders)]


plain_policies = st.sampled_from(JOINS + CALLS).flatmap(
    lambda join: st.builds(
        Policies,
        join=st.just(join),
        order=st.sampled_from(fair_or_not([FirstCome(), Priority(), ShortestFirst()])),
        mix=st.sampled_from([Mixed(), PrefillFirst(), Alternate()]),
        chunk=st.sampled_from([Whole(), Fixed(1), Fixed(5)]),
        step_tokens=st.integers(getattr(join, "size", 1), 24),
    )
)


@st.composite
def budget_policies(draw: st.DrawFn) -> Policies:
    """Every combination of the policies that go by budgets and of the others."""
    join = draw(st.sampled_from(JOINS))
    in_groups = isinstance(join, Static | Dynamic | LengthClasses)
    defer = draw(st.sampled_from([Nobody(), *DEFERRING]))
    mixes = [Mixed()] if defer in DEFERRING else [Mixed(), PrefillFirst(), Alternate()]
    chunks = [Whole(), Fixed(1), Fixed(5)]
    slack = [BySlack(least=1, stretch=2), BySlack(least=4, sure=1.0), BySlack()]
    orders = [FirstCome(), Priority(), ShortestFirst()]
    by_deadline = [ByDeadline(), ByDeadline(most_in_time=False), ByDeadline(True, 0, 2)]
    return Policies(
        join,
        draw(st.sampled_from(fair_or_not(orders + by_deadline))),
        draw(st.sampled_from(mixes)),
        draw(st.sampled_from(chunks if in_groups else chunks + slack)),
        Youngest() if in_groups else draw(st.sampled_from([Youngest(), ByLane(), ByLane()])),
        defer,
        draw(st.sampled_from([Keep(), Hopeless()])),
        draw(st.sampled_from([Now(), Now(), Ahead(), Ahead(1.0), Ahead(timed=False)])),
        draw(st.integers(getattr(join, "size", 1), 24)),
    )


times = st.sampled_from([NEVER, NEVER, 15, 40, 120, 2_000]).map(
    lambda time: time if time == NEVER else time * MS
)
budgets = st.one_of(st.just(Budget()), st.builds(Budget, ttft=times, tpot=times, e2e=times))


@st.composite
def budgeted_lanes(draw: st.DrawFn) -> tuple[Lane, ...]:
    """Two lanes that keep at most one slot and two blocks each, with upper limits or none."""
    made = list[Lane]()
    for name in ("bulk", "chat"):
        limited = draw(st.booleans())
        most = [draw(st.integers(low, 12)) if limited else NEVER for low in (1, 6, 1, 1)]
        slots, blocks = draw(st.integers(0, 1)), draw(st.integers(0, 2))
        budget = draw(budgets)
        sizes = [Share(slots if draw(st.booleans()) else 0, most[0])]
        if min(budget.ttft, budget.tpot, budget.e2e) != NEVER:
            sizes += [Share(slots, 4, 1), Share(0, 3, 2)]  # sizes that follow the load
        lane = Lane(
            name,
            budget,
            draw(st.integers(-1, 1)),
            slots=draw(st.sampled_from(sizes)),
            blocks=Share(blocks, most[1]),
            step_tokens=Share(0, most[2]),
            chunk=most[3],
        )
        made.append(lane)
    return tuple(made)


# Few distinct tokens and shared beginnings, so that prefixes are hit.
prompts = st.builds(
    lambda shared, own: shared + tuple(own),
    st.sampled_from([(), (1, 1, 1, 1), (1, 1, 1, 1, 2, 2, 2, 2), (3, 3, 3, 3, 2, 2, 2, 2)]),
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
)


# If a step gives several tokens, the next step cannot be decided before it has ended.
BURSTS_AND_DEPTHS = st.sampled_from([(1, 1), (6, 1), (1, 2), (1, 3)])
# Deadlines after arrival: mostly none, else up to a time after the last token.
limits = st.sampled_from([None, None, None, 0, 15, 40, 90, 250])


def keeping(lanes: tuple[Lane, ...], policies: Policies, leasts: list[int]) -> tuple[Lane, ...]:
    """These lanes, each keeping its number of a step's tokens as far as the policies have them."""
    if policies.no_tokens_kept:
        return lanes
    free, made = policies.step_tokens - policies.slots, list[Lane]()
    if isinstance(policies.chunk, Fixed):
        free = min(free, policies.chunk.size)
    for lane, wanted in zip(lanes, leasts, strict=True):
        most = lane.chunk + min(policies.slots, lane.slots.most)
        least = min(wanted, free, lane.step_tokens.most, most)
        free -= least
        made.append(replace(lane, step_tokens=replace(lane.step_tokens, least=least)))
    return tuple(made)


@st.composite
def crowded(draw: st.DrawFn) -> Case:
    """Lanes with budgets, with few slots and blocks, and with long answers."""
    lanes, strategy = draw(budgeted_lanes()), draw(budget_policies())
    if strategy.slots and sum(lane.slots.least for lane in lanes) > strategy.slots:
        lanes = tuple(replace(lane, slots=Share()) for lane in lanes)
    lanes = keeping(lanes, strategy, [draw(st.sampled_from([0, 1, 3, 8])) for _ in lanes])
    timed: list[tuple[int, Command]] = []
    for i in range(draw(st.integers(4, 10))):
        request = Request(
            id=f"r{i}",
            prompt=draw(prompts),
            max_tokens=draw(st.integers(4, 16)),
            arrived=draw(st.sampled_from([0, 0, 20, 100])) * MS,
            lane=draw(st.sampled_from(["bulk", "chat"])),
            tenant=draw(TENANTS),
        )
        timed.append((request.arrived, Add(request)))
    timed.sort(key=lambda pair: pair[0])
    burst, depth = draw(BURSTS_AND_DEPTHS)
    return Case(draw(st.integers(9, 12)), strategy, timed, burst, lanes, COST, depth)


@st.composite
def plain_cases(draw: st.DrawFn) -> Case:
    timed: list[tuple[int, Command]] = []
    for i in range(draw(st.integers(1, 10))):
        arrived = draw(st.integers(0, 100)) * MS
        start, end = draw(limits), draw(limits)
        pooling = draw(st.sampled_from([*[""] * 4, "last", "mean"]))
        request = Request(
            id=f"r{i}",
            prompt=draw(prompts),
            max_tokens=0 if pooling else draw(st.integers(0, 20)),
            arrived=arrived,
            lane=draw(st.sampled_from(["bulk", "chat"])),
            sampling=Sampling(
                seed=draw(st.integers(0, 2)),
                stop_tokens=draw(st.sampled_from([frozenset(), frozenset(range(0, 97, 9))])),
                min_tokens=draw(st.sampled_from([0, 0, 3])),
                prompt_logprobs=draw(st.sampled_from([-1, -1, 0])),
            ),
            salt=draw(st.sampled_from(["", "", "tenant"])),
            follows=draw(st.sampled_from(["", *(f"r{each}" for each in range(i))])),
            start_by=NEVER if start is None else arrived + start * MS,
            end_by=NEVER if end is None else arrived + 2 * end * MS,
            tenant=draw(TENANTS),
            pooling=pooling,
        )
        timed.append((request.arrived, Add(request)))
        if draw(st.integers(0, 4)) == 0:
            later = request.arrived + draw(st.integers(0, 400)) * MS
            end = Stop(request.id, draw(st.integers(0, 6))) if i % 2 else Cancel(request.id)
            timed.append((later, end))
    timed.sort(key=lambda pair: pair[0])
    # Mostly a little more than the largest request needs, so that running ones outgrow it.
    blocks, (burst, depth) = draw(st.integers(8, 14)), draw(BURSTS_AND_DEPTHS)
    cost = draw(st.sampled_from([StepCost(), COST]))
    return Case(blocks, draw(plain_policies), timed, burst, cost=cost, depth=depth)


@st.composite
def budgeted_cases(draw: st.DrawFn) -> Case:
    """The requests of a plain case, with lanes and policies that go by budgets."""
    plain, crowd = draw(plain_cases()), draw(crowded())
    return replace(plain, policies=crowd.policies, lanes=crowd.lanes, cost=COST)


def cases() -> st.SearchStrategy[Case]:
    return st.one_of(plain_cases(), budgeted_cases(), crowded())


@dataclass(frozen=True)
class Run:
    """One simulated run of a case, its books and its lanes checked after every step."""

    scheduler: Scheduler
    executor: Spy
    events: list[Event]
    journal: str
    loads: list[Load]  # after each turn that is in the journal
    met: Counter[str]  # rare paths


def run(case: Case, begins: Callable[[Begun], None] = able) -> Run:
    scheduler = Scheduler(case.settings)
    scheduler.accounts = Accounts(scheduler.roster)
    executor = spy(case.blocks, case.burst, begins)
    clock, file, events = VirtualClock(), StringIO(), list[Event]()
    journal.begin(scheduler.settings, file)
    inbox, priced = TraceInbox(case.timed, clock), PricedExecutor(COST, clock, executor)
    loads = list[Load]()

    def keep(record: Record) -> None:
        journal.write(record, file)
        loads.append(engine.load)

    engine = Engine(scheduler, priced, inbox, clock, keep)
    with watched() as met:
        while not scheduler.finished:
            events += engine.step()
            scheduler.check()
            assert scheduler.steps < MOST_STEPS, "it goes round in circles"
    return Run(scheduler, executor, events, file.getvalue(), loads, met)


# Four requests that fit when they join but not when they have grown.
THRASH = Case(
    9,
    Policies(join=Continuous(4), step_tokens=24),
    [(i * MS, Add(Request(f"r{i}", (i,) * 8, 14, i * MS, "chat"))) for i in range(4)],
)
