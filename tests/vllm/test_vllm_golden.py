"""vLLM's greedy answers are our executor's, whatever the batching."""

from functools import cache

import pytest
import torch

from headway.core.commands import Add, Cancel
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane
from headway.core.request import Finish, Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.costing.token_cost import TokenCost
from headway.executor.vllm.traits import VLLM_TRAITS
from headway.sim.simulate import simulate
from headway.strategies.registry import REGISTRY, StrategyInputs, chunked_strategy
from tests.executor.torch.tiny_checkpoints import VOCAB
from tests.vllm.conftest import CONTEXT

MS = 1_000_000
COST = StepCost.of(10 * MS, per_token=MS, per_pair=0)
LANES = (Lane("chat", budget=Budget(ttft=300 * MS, tpot=40 * MS)), Lane("bulk", priority=1))
INPUTS = StrategyInputs(
    LANES, TokenCost(1.0 * MS, 2.0 * MS), CONTEXT, (1, 4, 7, 32, 43, 70), slots=5
)
CHUNKS = (1, 5, 32, 100)
BLOCKS = 5  # of 32 tokens: too few for all requests that may run together


def prompts() -> list[tuple[int, ...]]:
    """Prompts of one token, of one block and of several; two share two blocks."""
    stream = torch.Generator().manual_seed(7)
    lengths = (1, 32, 70, 7, 43, 4)
    made = [torch.randint(VOCAB, (n,), generator=stream).tolist() for n in lengths]
    return [tuple(each) for each in [*made, made[2][:66] + made[3]]]


ASKED = [(prompt, 12 + 9 * (i % 4)) for i, prompt in enumerate(prompts())]
STRATEGIES = {
    **{
        name: make(INPUTS).policies
        for name, make in REGISTRY.items()
        if not make(INPUTS).policies.in_groups or VLLM_TRAITS.exclusive_groups
    },
    **{f"chunks-of-{size}": chunked_strategy(size, 5).policies for size in CHUNKS},
}


@pytest.fixture(scope="module")
def answers():
    """Transformers' greedy answers, none near a tie."""
    return cache(lambda golden: [golden.generate(*asked) for asked in ASKED])


def serve(executor, policies, cancelled=()):
    """Serve ASKED on this executor, with as many steps in flight as it takes. Returns the scheduler
    and each request's tokens."""
    executor.hand_over()
    depth = executor.traits.steps_in_flight
    scheduler = Scheduler(Settings(BLOCKS, 32, LANES, policies, CONTEXT, cost=COST, depth=depth))
    commands = [
        (i * 15 * MS, Add(Request(str(i), prompt, count, i * 15 * MS, LANES[i % 2].name)))
        for i, (prompt, count) in enumerate(ASKED)
    ]
    commands += [(at, Cancel(id)) for id, at in cancelled]
    events = simulate(scheduler, sorted(commands, key=lambda each: each[0]), COST, executor)
    scheduler.check()
    said = {str(i): [] for i in range(len(ASKED))}
    for event in events:
        assert not event.error, event.error
        said[event.id] += event.tokens
    return scheduler, list(said.values())


def held(loaded) -> int:
    """The number of requests that vLLM's worker still knows."""
    executor = loaded.executor
    core = getattr(executor, "executor", executor)._core
    return core.model_executor.collective_rpc(lambda worker: len(worker.model_runner.requests))[0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_greedy_answers_are_the_same_under_every_continuous_strategy(pair, answers, name):
    wanted = answers(pair.golden)
    _, ours = serve(pair.torch, STRATEGIES[name])
    scheduler, theirs = serve(pair.vllm, STRATEGIES[name])
    assert theirs == ours == wanted
    assert {row.finish for row in scheduler.ledger.requests} == {Finish.LENGTH}
    assert scheduler.pool.num_free == BLOCKS
    assert held(pair.loaded) <= len(ASKED), "only those that ended with the last step"


def test_preemption_and_prefix_hits_happen_in_these_runs(pair):
    """Without these events the runs above would prove little."""
    rows = serve(pair.vllm, STRATEGIES["chunks-of-32"])[0].ledger.requests
    assert sum(row.preemptions for row in rows) > 0 and sum(row.cached for row in rows) >= 32


def test_cancelled_requests_leave_nothing_behind_and_change_no_other(pair, answers):
    wanted, cancelled = answers(pair.golden), [("2", 180 * MS), ("4", 95 * MS), ("6", 330 * MS)]
    scheduler, said = serve(pair.vllm, STRATEGIES["chunks-of-32"], cancelled)
    ends = {row.id: row.finish for row in scheduler.ledger.requests}
    assert [id for id, finish in ends.items() if finish is Finish.CANCELLED], "some were cut off"
    for i, (mine, whole) in enumerate(zip(said, wanted, strict=True)):
        assert mine == whole[: len(mine)]
        assert len(mine) == len(whole) or ends[str(i)] is Finish.CANCELLED
    serve(pair.vllm, STRATEGIES["one-by-one"])  # its first step names all that had ended
    assert held(pair.loaded) <= 1


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_embedded_model_answers_alike_under_every_continuous_strategy(embedded, name):
    said = {kind: serve(loaded.executor, STRATEGIES[name])[1] for kind, loaded in embedded.items()}
    assert said["vllm"] == said["torch"]
    assert [len(each) for each in said["vllm"]] == [count for _, count in ASKED]
