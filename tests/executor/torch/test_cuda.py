"""The executor on a GPU. Without one, all of these are skipped."""

from contextlib import contextmanager

import pytest
import torch

from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from tests.executor.torch.test_golden import all_logits, prompts
from tests.executor.torch.test_overlapped import SAMPLINGS, Sequences
from tests.executor.torch.tiny_checkpoints import MORE, SHAPES

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
GAP = 1e-3  # between the two best logits: far more than float32 differs between two devices
NEAR, FLIPS = 0.1, 0.02  # bfloat16: of the logits' spread; of the greedy tokens


@pytest.fixture(autouse=True)
def exact_products(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def on_gpu(golden, dtype="float32", block_size=4):
    return load(golden.folder, Limits(block_size=block_size), dtype, "cuda").executor


@contextmanager
def errors_on_waiting():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("shape", [*SHAPES, *MORE])
def test_float32_logits_and_tokens_equal_transformers(goldens, shape):
    tokens, golden = prompts()[2] + prompts()[4], goldens[shape]
    want = golden.logits(list(tokens))
    best = want.topk(2, dim=-1).values
    clear = best[:, 0] - best[:, 1] > GAP
    assert clear.float().mean() > 0.9
    for block_size in (4, 16):
        executor = on_gpu(golden, block_size=block_size)
        assert type(executor.attention).__name__ == "PagedAttention"
        for chunk in (len(tokens), 12, 1):
            found = all_logits(executor, tokens, chunk).cpu()
            assert (found - want).abs().max() < 1e-3
            assert torch.equal(found.argmax(-1)[clear], want.argmax(-1)[clear])


@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16_logits_are_near_transformers_and_few_tokens_flip(goldens, shape):
    tokens, golden = prompts()[2] + prompts()[4], goldens[shape]
    want = golden.logits(list(tokens))
    found = all_logits(on_gpu(golden, "bfloat16"), tokens, 12).float().cpu()
    assert (found - want).abs().max() < NEAR * (want.max() - want.min())
    best = want.topk(2, dim=-1).values
    clear = best[:, 0] - best[:, 1] > NEAR * want.std()
    flipped = (found.argmax(-1) != want.argmax(-1))[clear]
    assert flipped.float().mean() <= FLIPS, f"{flipped.float().mean():.3f} of the tokens flip"


@pytest.mark.parametrize("shape", ["qwen2-bias-tied", "mixtral", "gemma2"])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_submit_never_waits_and_two_steps_in_flight_give_the_tokens_of_one(
    goldens, shape, sampling
):
    want = Sequences(on_gpu(goldens[shape]), sampling, unknown=False).one_deep()
    executor = on_gpu(goldens[shape])
    executor.prepare(64, 8, 10.0)

    def submit(batch):
        with errors_on_waiting():
            return executor.submit(batch)

    assert executor.traits.steps_in_flight == 2
    assert Sequences(executor, sampling, unknown=True).two_deep(submit) == want
