"""Memory that is given back."""

import asyncio
import sys
from pathlib import Path

import pytest

from headway.llm import EMBEDDED
from headway.server.intake import heap
from headway.server.intake.tokenizing import Texts
from tests.server.local import tokenizer


def resident():
    """In MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096 / 1e6


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_long_texts_memory_is_given_back_once_it_is_tokenized():
    texts = Texts(tokenizer(), EMBEDDED)
    # Three tokens a character, and more than a hundred bytes a token.
    text = ("<|pad|>" + "".join(map(chr, range(0xE000, 0xF900)))) * 110
    asyncio.run(texts.encode(text[:5_000]))
    heap.give_back()
    before = resident()
    (ids,) = asyncio.run(texts.encode(text))
    assert len(ids) > 2_000_000
    del ids
    assert resident() - before < 100
    texts.close()
