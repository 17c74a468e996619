"""A prompt that is a range behaves as a list of the same tokens, and takes no memory."""

import pytest

from headway.core.batch import UNKNOWN
from headway.core.sequences.cells import Cells

PROMPT = range(7, 11)


def grow(tokens):
    """All that a sequence does with its tokens."""
    tokens.append(UNKNOWN)
    tokens[len(tokens) - 1] = 20
    tokens += (21, 22, 23)
    del tokens[-1:]
    return tokens


@pytest.mark.parametrize("start", range(-8, 9))
@pytest.mark.parametrize("stop", range(-8, 9))
def test_slices_are_those_of_a_list(start, stop):
    cells, plain = grow(Cells(PROMPT)), grow(list(PROMPT))
    assert cells[start:stop] == plain[start:stop]


def test_tokens_are_those_of_a_list():
    cells, plain = grow(Cells(PROMPT)), grow(list(PROMPT))
    assert list(cells) == plain == [7, 8, 9, 10, 20, 21, 22]
    assert [cells[at] for at in range(-7, 7)] == [plain[at] for at in range(-7, 7)]
    with pytest.raises(IndexError):
        cells[7]
    del cells[len(PROMPT) + 1 :], plain[len(PROMPT) + 1 :]
    assert list(cells) == plain == [7, 8, 9, 10, 20]


def test_a_part_of_the_prompt_is_not_copied():
    cells = grow(Cells(range(10**12)))
    assert cells.part(0, 10**12) == range(10**12)
    assert cells.part(10**12 - 1, 10**12 + 2) == (10**12 - 1, 20, 21)
