"""The sampler draws from the right distribution, as a function of seed and position only."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from headway.executor.torch.sampling.noise import exponential_noise, noise_keys
from headway.executor.torch.sampling.penalties import EXCLUDED
from headway.executor.torch.sampling.sampling import (
    CANDIDATES,
    SamplingColumns,
    apply_temperature,
    filter_candidates,
    row_argmax,
    sample,
    token_logprobs,
)


def draws_of(n, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=None, position=5, **rest):
    """n equal rows, with seeds 0, 1, 2 and so on unless one is given."""
    return SamplingColumns(
        temperature=np.full(n, temperature),
        top_k=np.full(n, top_k),
        top_p=np.full(n, top_p),
        min_p=np.full(n, min_p),
        seeds=np.arange(n) if seed is None else np.full(n, seed),
        positions=np.full(n, position) if np.isscalar(position) else position,
        banned=rest.get("banned", {}),
        logprobs=rest.get("logprobs", np.full(n, -1)),
    )


def logits_of(rows, vocab, spread=3.0, seed=0):
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


def chi_square(counts, expected):
    """By how many standard deviations the statistic exceeds its mean."""
    assert expected.min() >= 5
    freedom = len(counts) - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [(1.0, 0, 1.0, 0.0), (0.7, 0, 0.9, 0.0), (1.3, 6, 1.0, 0.0), (1.0, 0, 1.0, 0.1)],
)
@pytest.mark.parametrize("keyed_by", ["seed", "position"])
def test_sampled_frequencies_follow_the_distribution(temperature, top_k, top_p, min_p, keyed_by):
    n, vocab = 20_000, 12
    row = logits_of(1, vocab, spread=1.0)
    asked = draws_of(n, temperature, top_k, top_p, min_p)
    if keyed_by == "position":
        asked = draws_of(n, temperature, top_k, top_p, min_p, seed=3, position=np.arange(n))
    found = sample(row.expand(n, -1), asked)
    want = by_transformers(row, temperature, top_k, top_p, min_p)[0].double().numpy()
    counts = np.bincount(found.numpy(), minlength=vocab)
    assert counts[want == 0].sum() == 0
    assert chi_square(counts[want > 0], want[want > 0] * n) < 4


def test_draws_at_neighbouring_positions_and_seeds_are_independent():
    n, vocab = 40_000, 6
    row = torch.zeros(n, vocab)
    now = sample(row, draws_of(n, seed=11, position=np.arange(n)))
    after = sample(row, draws_of(n, seed=11, position=np.arange(n) + 1))
    near = sample(row, draws_of(n, seed=12, position=np.arange(n)))
    for other in (after, near):
        counts = np.bincount((now * vocab + other).numpy(), minlength=vocab**2)
        assert chi_square(counts, np.full(vocab**2, n / vocab**2)) < 4


def test_noise_is_exponentially_distributed():
    keyed = torch.from_numpy(noise_keys(np.arange(50), np.arange(50) * 7))
    found = exponential_noise(keyed, torch.arange(4000, dtype=torch.int32))
    assert found.min() > 0 and found.isfinite().all()
    tenths = np.bincount((-torch.expm1(-found) * 10).long().clamp(0, 9).flatten().numpy())
    assert chi_square(tenths, np.full(10, found.numel() / 10)) < 4
    assert torch.corrcoef(found).fill_diagonal_(0).abs().max() < 0.07  # 4.4 deviations


def test_noise_is_a_fixed_function_of_seed_and_position():
    """Otherwise a seed would give another text after an upgrade, or on another device."""
    wrap = 2**32 - 1

    def splitmix(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    for seed, position, token in ((0, 0, 0), (2**63 - 1, 131_071, 151_935), (42, 7, 100)):
        mixed = splitmix(splitmix(seed) ^ position)
        x = (token * 0x9E3779B1 + (mixed & wrap)) & wrap
        x = (x ^ (x >> 16)) * 0x85EBCA6B & wrap
        x ^= mixed >> 32
        x = (x ^ (x >> 13)) * 0xC2B2AE35 & wrap
        x = (x ^ (x >> 16)) * 0x85EBCA6B & wrap
        x = (x ^ (x >> 15)) & 0x7FFFFFFF
        keyed = torch.from_numpy(noise_keys(np.array([seed]), np.array([position])))
        found = exponential_noise(keyed, torch.tensor([token], dtype=torch.int32)).item()
        assert found == pytest.approx(-np.log1p(-(x + 0.5) / 2**31), rel=1e-5)


def by_transformers(logits, temperature, top_k, top_p, min_p):
    """Probabilities after transformers' own warpers, in its order."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    if min_p:
        warpers.append(MinPLogitsWarper(min_p))
    return warpers(None, logits.clone()).softmax(dim=-1)


@settings(deadline=None, max_examples=60)
@given(
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 5, 40, 1500, 10_000]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 0.02, 0.4]),
    # 1,024 candidates are tried first; for 3,000 tokens they are sometimes enough.
    shape=st.sampled_from([(50, 3.0), (3000, 0.1), (3000, 4.0)]),
    seed=st.integers(0, 5),
)
def test_filters_equal_those_of_transformers(temperature, top_k, top_p, min_p, shape, seed):
    logits = logits_of(3, *shape, seed=seed)
    want = by_transformers(logits, temperature, top_k, top_p, min_p)
    values, ids = filtered(logits, temperature, top_k, top_p, min_p)
    found = torch.zeros_like(want).scatter(1, ids, values.softmax(dim=-1))
    # At the very edge of top_p, the rounding of a sum over 3,000 tokens decides.
    assert ((found > 0) != (want > 0)).sum() <= 3
    assert (found - want).abs().max() < 2e-3


def filtered(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """filter_candidates on few candidates first, then on all tokens if more may be kept."""
    ones = torch.ones(len(logits))
    scaled, limit = apply_temperature(logits, ones * temperature), (ones * top_k).long()
    for width in (max(CANDIDATES, top_k), logits.shape[1]):
        values, ids = filter_candidates(
            scaled, limit if top_k else None, ones * top_p, ones * min_p, width
        )
        if (values[:, -1] == EXCLUDED).all():
            break
    return values, ids


@pytest.mark.parametrize(
    "wish", [{"top_k": 40}, {"top_k": 1000}, {"top_p": 0.6}, {"top_k": 40, "top_p": 0.6}]
)
def test_a_filter_keeps_all_logits_equal_to_the_least_that_it_keeps(wish):
    logits = logits_of(8, 3000).mul(4).round().div(4)
    values, ids = filtered(logits, **wish)
    kept = torch.full_like(logits, EXCLUDED).scatter(1, ids, values) > EXCLUDED
    least = logits.masked_fill(~kept, -EXCLUDED).amin(dim=-1, keepdim=True)
    assert torch.equal(kept, logits >= least)
    if "top_p" not in wish:  # with top_p, transformers cuts equal logits as they come
        assert torch.equal(kept, by_transformers(logits, 1.0, wish["top_k"], 1.0, 0.0) > 0)


HALVES = logits_of(1, 49_152, spread=2.0).bfloat16().float()  # many are equal


@pytest.mark.evidence
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("mate", [{"top_k": 1500}, {"top_p": 0.999, "temperature": 3.0}])
@pytest.mark.parametrize("wish", [{"top_k": 20}, {"top_k": 100}, {"top_k": 950}, {"top_p": 0.5}])
def test_equal_logits_are_cut_alike_whatever_other_rows_ask_for(wish, mate, waits):
    mine, other = draws_of(100, **{"temperature": 2.0} | wish), draws_of(1, **mate)
    columns = ("temperature", "top_k", "top_p", "min_p", "seeds", "positions", "logprobs")
    both = {name: np.append(getattr(mine, name), getattr(other, name)) for name in columns}
    found = sample(HALVES.expand(101, -1), SamplingColumns(**both, banned={}), waits)
    assert torch.equal(found[:100], sample(HALVES.expand(100, -1), mine, waits))


def edge(scaled):
    """The least top_p with which the first row keeps its 50th token."""
    low, high, none = 0.0, 1.0, torch.zeros(len(scaled))
    for _ in range(25):
        middle = (low + high) / 2
        values, _ = filter_candidates(scaled, None, none + middle, none, CANDIDATES)
        low, high = (low, middle) if values[0, 49] > EXCLUDED else (middle, high)
    return high


def test_the_edge_of_top_p_has_the_same_bits_alone_and_in_a_batch():
    """torch shares a sum over one long row among threads, but not a sum over several rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for seed in (4, 5, 6):
            scaled = apply_temperature(logits_of(2, 40_000, seed=seed), torch.ones(2))
            assert edge(scaled) == edge(scaled[:1])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("waits", [True, False])
def test_rows_with_different_sampling_share_a_step(waits):
    """Every row draws the token that it would draw alone."""
    logits = logits_of(6, 3000)
    mixed = SamplingColumns(
        temperature=np.array([0.0, 1.0, 0.8, 1.5, 0.0, 1.0]),
        top_k=np.array([0, 0, 5, 0, 7, 2000]),
        top_p=np.array([1.0, 1.0, 1.0, 0.9, 0.5, 0.99]),
        min_p=np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.01]),
        seeds=np.array([1, 2, 3, 4, 5, 2]),
        positions=np.array([9, 9, 8, 7, 6, 9]),
        banned={0: (int(logits[0].argmax()), 99_999), 2: (1, 2)},
        logprobs=np.full(6, -1),
    )
    together = sample(logits, mixed, waits).tolist()
    assert together[0] == logits[0].topk(2).indices[1] and together[4] == logits[4].argmax()
    for i in range(6):
        columns = {
            name: getattr(mixed, name)[i : i + 1]
            for name in ("temperature", "top_k", "top_p", "min_p", "seeds", "positions", "logprobs")
        }
        banned = {0: mixed.banned[i]} if i in mixed.banned else {}
        alone = sample(logits[i : i + 1], SamplingColumns(**columns, banned=banned), waits)
        assert alone.tolist() == together[i : i + 1]


@pytest.mark.parametrize("width", [1, 1023, 1024, 1025, 1280, 3000, 5119])
def test_greedy_takes_the_first_of_equal_maxima(width):
    for logits in (logits_of(40, width), logits_of(40, width).round(), torch.zeros(2, width)):
        assert row_argmax(logits).tolist() == logits.numpy().argmax(axis=1).tolist()
    last = torch.zeros(width, width // 100 + 1).T.clone()
    last[:, -1] = 1
    assert (row_argmax(last) == width - 1).all()


@pytest.mark.parametrize(
    "wish", [{"temperature": 1e-9}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}]
)
def test_the_narrowest_filters_are_greedy(wish):
    logits = logits_of(20, 300)
    assert torch.equal(sample(logits, draws_of(20, **wish)), logits.argmax(dim=-1))


def test_a_change_of_the_last_bit_of_logits_changes_no_token():
    """Batching changes the last bit of logits. Inverting a cumulative sum would fail this test."""
    logits = logits_of(2000, 300)
    shaken = logits * (1 + 1e-7 * logits_of(2000, 300, seed=1).sign())
    for wish in ({}, {"top_p": 0.9}, {"top_k": 50}):
        asked = draws_of(2000, **wish)
        assert torch.equal(sample(logits, asked), sample(shaken, asked))


def test_logprobs_are_of_the_raw_distribution():
    logits = logits_of(4, 50)
    asked = np.array([-1, 2, 0, 3])
    picked = sample(logits, draws_of(4, temperature=0.5, top_k=3, logprobs=asked))
    said = token_logprobs(logits, picked, asked).to_logprobs()
    want = logits.log_softmax(dim=-1)
    assert sorted(said) == [1, 2, 3]
    for row, logprob in said.items():
        assert logprob.sampled == pytest.approx(want[row, picked[row]].item())
        values, ids = want[row].topk(max(1, asked[row]))
        assert [token for token, _ in logprob.top] == ids.tolist()[: asked[row]]
        assert [value for _, value in logprob.top] == pytest.approx(values.tolist()[: asked[row]])


def test_top_logprobs_of_equal_logits_do_not_depend_on_other_rows():
    """Equal logits are in the order of their ids, so that the first is the greedy token."""
    logits = HALVES.expand(2, -1).clone()
    logits[0, [9, 700, 30_000]] = logits.max() + 1
    greedy = row_argmax(logits)
    for count in (1, 2, 5):
        alone = token_logprobs(logits[:1], greedy[:1], np.array([count])).to_logprobs()[0]
        both = token_logprobs(logits, greedy, np.array([count, 20])).to_logprobs()[0]
        assert alone == both and len(alone.top) == count
        assert [token for token, _ in alone.top[:3]] == [9, 700, 30_000][:count]
