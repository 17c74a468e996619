"""Our answers are transformers' answers, one prompt at a time, whatever the batching."""

from itertools import product

import pytest
import torch

from headway.core.batch import Add, Batch, Begun, Row, Want
from headway.core.chunk import Fixed, Whole
from headway.core.cost import StepCost
from headway.core.join import Continuous, Dynamic, Static
from headway.core.mix import Alternate, Mixed, PrefillFirst
from headway.core.plan import Policies
from headway.core.request import Finish, Request
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.executor.load import load
from headway.executor.memory import Limits
from headway.sim.simulate import simulate
from tests.executor.models import CONTEXT, SHAPES, VOCAB

MS = 1_000_000
COST = StepCost(base=10 * MS, per_token=MS, per_read=0)
JOINS = {
    "static": Static(3),
    "static-buckets": Static(2, buckets=(8, 16, 64)),
    "dynamic": Dynamic(4, 40 * MS),
    "continuous": Continuous(5),
}
MIXES = {"mixed": Mixed(), "prefill-first": PrefillFirst(), "alternate": Alternate()}
CHUNKS = {"whole": Whole(), "fixed": Fixed(5)}


def prompts() -> list[tuple[int, ...]]:
    """Lengths of one token, of a block, and of several; two share their beginning."""
    stream = torch.Generator().manual_seed(7)
    made = [torch.randint(VOCAB, (n,), generator=stream).tolist() for n in (1, 16, 40, 7, 23, 4)]
    return [tuple(each) for each in [*made, made[2][:33] + made[3]]]


ASKED = [(prompt, 6 + 3 * (i % 4)) for i, prompt in enumerate(prompts())]


@pytest.fixture(scope="session")
def answers(goldens):
    """Of every shape, transformers' greedy answers to ASKED."""
    return {
        shape: [golden.generate(prompt, count) for prompt, count in ASKED]
        for shape, golden in goldens.items()
    }


def all_logits(executor, tokens, chunk):
    """[len(tokens), vocab], computed in chunks of so many tokens, through the paged memory."""
    model, slots, builder = executor.model, executor._slots, executor._builder
    blocks = tuple(range(1, -(-len(tokens) // executor.cache.block_size) + 1))
    slots.begin(Begun(0, len(tokens), Sampling()))
    found = []
    for start in range(0, len(tokens), chunk):
        mine = tuple(tokens[start : start + chunk])
        row = Row(0, start, mine, blocks if not start else (), Want.NOTHING)
        with torch.inference_mode():
            inputs = builder.build(Batch(rows=(row,)))
            found.append(model.logits(model.forward(inputs, executor.cache)))
    slots.end(0)
    return torch.cat(found)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits(goldens, shape):
    tokens = prompts()[2] + prompts()[4]
    want = goldens[shape].logits(list(tokens))
    for block_size in (4, 16):
        loaded = load(goldens[shape].folder, Limits(block_size=block_size))
        for chunk in (len(tokens), 17, 1):
            found = all_logits(loaded.executor, tokens, chunk)
            assert (found - want).abs().max() < 1e-4


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("join", JOINS)
def test_greedy_answers_under_every_policy(goldens, answers, shape, join):
    for block_size in (4, 16):
        # Not room for all that may run together, so that some are preempted and come back.
        limits = Limits(sequences=5, block_size=block_size, num_blocks=96 // block_size)
        loaded = load(goldens[shape].folder, limits)
        if block_size == 4:  # so few that rows of a step are gathered in several groups
            loaded.executor._builder._at_once = 20
        for mix, chunk in product(MIXES.values(), CHUNKS.values()):
            policies = Policies(JOINS[join], mix=mix, chunk=chunk, step_tokens=48)
            settings = Settings(loaded.plan.num_blocks, block_size, policies=policies)
            scheduler, executor = Scheduler(settings), loaded.executor
            before = executor.computed
            events = simulate(
                scheduler,
                [
                    (i * 15 * MS, Add(Request(str(i), prompt, count, i * 15 * MS)))
                    for i, (prompt, count) in enumerate(ASKED)
                ],
                COST,
                executor,
            )
            scheduler.check()
            said = {str(i): [] for i in range(len(ASKED))}
            for event in events:
                said[event.id] += event.tokens
                assert event.finish in (Finish.NOT_YET, Finish.LENGTH)
            assert list(said.values()) == answers[shape], (block_size, mix, chunk)
            assert scheduler.pool.num_free == loaded.plan.num_blocks
            steps = scheduler.ledger.steps
            cells = sum(step.tokens + step.waste_tokens for step in steps)
            assert executor.computed - before == cells
            forget(executor)


def forget(executor):
    """Those who ended in the last step are only named by a next one."""
    for sequence in list(executor._slots.of):
        executor._slots.end(sequence)


def test_preemption_and_prefix_hits_are_met(golden):
    """The runs above would prove little of the paged memory if these did not happen in them."""
    limits = Limits(sequences=5, block_size=4, num_blocks=24)
    loaded = load(golden.folder, limits)
    settings = Settings(24, 4, policies=Policies(Continuous(5), step_tokens=48))
    scheduler = Scheduler(settings)
    timed = [(0, Add(Request(str(i), *asked, 0))) for i, asked in enumerate(ASKED)]
    simulate(scheduler, timed, COST, loaded.executor)
    rows = scheduler.ledger.requests
    assert sum(row.preemptions for row in rows) > 0 and sum(row.cached for row in rows) >= 32


def test_the_plan_follows_the_limits(golden):
    loaded = load(golden.folder, Limits(sequences=3, block_size=16))
    assert loaded.plan.num_blocks == loaded.plan.usable == 3 * CONTEXT // 16
    assert (loaded.dtype, loaded.device) == ("float32", loaded.device)
    assert str(loaded.plan).startswith("memory: ") and "\n" not in str(loaded.plan)


def test_bfloat16_stays_near(goldens):
    """No equality here: eight bits of mantissa. The distribution must still be the same one."""
    tokens = prompts()[2]
    for shape in ("llama-mha", "qwen3-norms"):
        loaded = load(goldens[shape].folder, dtype="bfloat16")
        found = all_logits(loaded.executor, tokens, 17)
        want = goldens[shape].logits(list(tokens))
        assert torch.nn.functional.cosine_similarity(found, want).min() > 0.99
