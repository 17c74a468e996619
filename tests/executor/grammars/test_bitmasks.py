"""Token bitmasks, lowest bit first: clearing tokens, and masks that allow no token."""

import numpy as np

from headway.executor.grammars.masks import allow_nothing, without_tokens


def test_tokens_are_cleared_from_a_mask_and_ids_beyond_the_vocabulary_ignored():
    bits = np.full(3, -1, dtype=np.int32)
    without_tokens(bits, [0, 31, 64, 90, 1_000], 90)
    allowed = [token for token in range(96) if bits[token // 32] >> token % 32 & 1]
    assert allowed == [token for token in range(96) if token not in (0, 31, 64)]


def test_a_mask_allows_nothing_once_its_last_bit_is_cleared():
    bits = np.zeros(2, dtype=np.int32)
    bits[1] = -(2**31)
    assert not allow_nothing(bits)
    without_tokens(bits, [63], 64)
    assert allow_nothing(bits)
