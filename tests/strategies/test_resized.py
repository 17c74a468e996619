"""Other slots and chunks: what becomes of the rest of a step."""

import pytest

from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.core.policies.policies import Policies
from headway.strategies.resized import with_chunk, with_slots


@pytest.mark.parametrize(
    "join, step_tokens, resized, grown",
    [
        (Continuous(16), 80, Continuous(64), 128),
        (Continuous(16), 16, Continuous(64), 65),
        (Static(16), 3_200, Static(64), 12_800),
        (Dynamic(16, 5), 16, Dynamic(64, 5), 64),
    ],
)
def test_with_other_slots_a_step_keeps_its_tokens_for_prompts(join, step_tokens, resized, grown):
    made = with_slots(Policies(join, step_tokens=step_tokens), 64)
    assert (made.join, made.step_tokens) == (resized, grown)


@pytest.mark.parametrize(
    "chunk, step_tokens, grown",
    [(Fixed(64), 80, 272), (Fixed(64), 40, 256), (Whole(), 512, 512), (Whole(), 100, 272)],
)
def test_with_another_chunk_a_step_keeps_its_tokens_for_decoding(chunk, step_tokens, grown):
    made = with_chunk(Policies(Continuous(16), chunk=chunk, step_tokens=step_tokens), 256)
    assert (made.chunk, made.step_tokens) == (Fixed(256), grown)
