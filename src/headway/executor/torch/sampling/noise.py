"""Random numbers that depend only on a seed, a position and a token.

Counter-based generators (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
keep no state, so neither the order of calls nor other rows can change the numbers.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

# As signed numbers, because torch multiplies signed integers; products wrap around.
SPREAD = 0x9E3779B1 - 2**32  # odd: token ids land on distinct, far points
FIRST, SECOND = 0x85EBCA6B - 2**32, 0xC2B2AE35 - 2**32  # multipliers of MurmurHash3's finalizer


def noise_keys(seeds: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int32]:
    """Two 32-bit keys per row from its (seed, position): [n, 2]. The mixer is splitmix64's."""
    mixed = _splitmix(_splitmix(seeds.astype(np.uint64)) ^ positions.astype(np.uint64))
    return mixed.view(np.int32).reshape(-1, 2)


def choice_seed(seed: int, choice: int) -> int:
    """The seed of one of a request's n choices. Choice 0 has the request's own seed, all others
    one below 2**63."""
    if not choice:
        return seed
    mixed = _splitmix(_splitmix(np.array([seed], dtype=np.uint64)) ^ np.uint64(choice))
    return int(mixed[0]) >> 1


def _splitmix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def exponential_noise(keyed: Tensor, tokens: Tensor) -> Tensor:
    """Exponentially distributed positive numbers with mean 1: [n, c], float32.

    keyed: int32 [n, 2] from noise_keys; tokens: int32 ids, [n, c] or [c]. One key is mixed in
    before the first round and one before the second, so no row is a shifted copy of another.
    """
    x = tokens * SPREAD + keyed[:, :1]
    x ^= (x >> 16) & 0xFFFF
    x *= FIRST
    x ^= keyed[:, 1:]
    x ^= (x >> 13) & 0x7FFFF
    x *= SECOND
    x ^= (x >> 16) & 0xFFFF
    x *= FIRST
    x ^= (x >> 15) & 0x1FFFF
    x &= 0x7FFFFFFF
    # Uniform in (0, 1), finest near 0: small numbers decide the race, because the smallest wins.
    uniform = x.float().add_(0.5).mul_(2.0**-31).clamp_max_(1 - 2.0**-24)
    return uniform.neg_().log1p_().neg_()


def rows_at_once(vocab: int) -> int:
    """How many rows fit together into a core's cache (a quarter of a million numbers)."""
    return max(1, 2**18 // vocab)
