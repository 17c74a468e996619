"""The likeliest tokens, found by our kernel in one pass over the logits."""

import pytest
import torch

from headway.executor.torch.sampling.sampling import row_argmax


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows, vocab", [(1, 1), (3, 7), (2, 2_048), (5, 2_049), (33, 6_151)])
def test_the_first_of_the_largest_logits_is_found(built, dtype, rows, vocab):
    stream = torch.Generator().manual_seed(vocab)
    logits = torch.randn(rows, vocab, generator=stream).to(dtype)
    logits[-1] = -3.0
    logits[-1, vocab // 2 :] = -2.0  # many equal maxima
    at, finite = built.likeliest(logits)
    assert torch.equal(at, row_argmax(logits.float())) and finite.all()
    turned = logits.T.contiguous().T
    assert torch.equal(built.likeliest(turned)[0], at)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", [0, 2_047, 4_099])
def test_only_the_row_with_a_non_finite_logit_is_flagged(built, wrong, where):
    logits = torch.randn(3, 4_100, generator=torch.Generator().manual_seed(0))
    logits[1, where] = wrong
    at, finite = built.likeliest(logits)
    assert finite.tolist() == [True, False, True] and 0 <= int(at[1]) < 4_100
    logits[1] = wrong
    at, finite = built.likeliest(logits)
    assert not finite[1] and 0 <= int(at[1]) < 4_100
