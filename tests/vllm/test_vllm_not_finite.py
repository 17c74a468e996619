"""A row whose logits are not finite fails alone, and leaves nothing in the blocks that it had."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from headway.core.commands import Add
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.executor.vllm.runner import NOT_FINITE
from headway.runs.shared_executor import SharedExecutor
from headway.sim.simulate import simulate
from tests.executor.torch.tiny_checkpoints import make
from tests.vllm.conftest import CONTEXT, SHAPES, SIZES, load_both
from tests.vllm.test_vllm_golden import COST

NAN, INF, LIKELY = 7, 9, 50  # tokens: two bad ones, and one that the second makes infinitely likely
TOKENS, LATER = 8, 10**12
CLEAN = (range(60, 65), range(70, 103), range(110, 120))


MODELS = {"full": SHAPES["llama"], "windows": ("mistral-window", {"head_dim": 32})}


@pytest.fixture(scope="module", params=MODELS)
def both(request, tmp_path_factory):
    """Both executors of a model with these bad tokens. Its layers attend to all tokens, or each has
    a window of 11."""
    shape, more = MODELS[request.param]
    folder = make(tmp_path_factory.mktemp("bad"), shape, **(SIZES | more)).folder
    tensors = load_file(folder / "model.safetensors")
    embedding, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    embedding[NAN] = torch.nan
    for row, first in ((embedding[INF], 1_000.0), (head[LIKELY], 5e37)):
        row.zero_()
        row[0] = first
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    ours, theirs = load_both(folder, CONTEXT)
    yield {"torch": SharedExecutor(ours.executor), "vllm": SharedExecutor(theirs.executor)}
    theirs.executor.close()


def serve(executor, prompts, blocks, sampling, apart=0, chunk=16):
    """Each prompt's tokens and error. apart: nanoseconds between two arrivals."""
    executor.hand_over()
    policies = Policies(Continuous(6), chunk=Fixed(chunk), step_tokens=60 + chunk)
    depth = executor.traits.steps_in_flight
    settings = Settings(blocks, 32, (Lane(),), policies, CONTEXT, cost=COST, depth=depth)
    asked = [
        Request(str(i), tuple(prompt), TOKENS, i * apart, sampling=sampling)
        for i, prompt in enumerate(prompts)
    ]
    said, errors = {each.id: [] for each in asked}, dict.fromkeys([each.id for each in asked], "")
    commands = [(each.arrived, Add(each)) for each in asked]
    for event in simulate(Scheduler(settings), commands, COST, executor):
        said[event.id] += event.tokens
        errors[event.id] += event.error
    return list(zip(said.values(), errors.values(), strict=True))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_k=2, seed=3)])
def test_requests_that_get_the_blocks_of_a_failed_one_are_answered(both, sampling):
    executor = both["vllm"]
    alone = [serve(executor, [prompt], 40, sampling)[0] for prompt in CLEAN]
    assert all(len(tokens) == TOKENS and not error for tokens, error in alone)
    failing = [(*range(20, 30), NAN), (*range(20, 60), NAN, *range(9))]  # one chunk, then four
    said = serve(executor, [failing[0], *CLEAN, failing[1], *CLEAN, *CLEAN], 3, sampling, LATER)
    assert [said[i] for i in (0, 4)] == [([], NOT_FINITE)] * 2
    assert said[1:4] == said[5:8] == said[8:] == alone


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=1.0, top_k=2, logprobs=1, seed=3)]
)
def test_a_row_that_is_not_finite_fails_alone_on_both_executors(both, bad, sampling):
    asked = [CLEAN[0], (*CLEAN[2], bad), CLEAN[1], CLEAN[2]]
    for executor in both.values():
        alone = [serve(executor, [prompt], 40, sampling)[0] for prompt in CLEAN]
        mixed = serve(executor, asked, 40, sampling)
        assert [mixed[0], mixed[2], mixed[3]] == alone
        assert mixed[1][0] == [] and "not finite" in mixed[1][1]


def test_a_number_that_is_not_finite_is_found_far_behind_the_last_token(both):
    """With windows of 11 in two layers, the last token's logits depend on the last 21 tokens."""
    far = (*range(20, 25), NAN, *range(60, 200))
    for executor in both.values():
        alone = [serve(executor, [prompt], 40, Sampling())[0] for prompt in CLEAN]
        said = serve(executor, [far, *CLEAN], 5, Sampling(), LATER, chunk=180)
        assert said[0][0] == [] and "not finite" in said[0][1]
        assert said[1:] == alone
