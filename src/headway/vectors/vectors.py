"""Convert a vector's bytes to an embedding, a score or label probabilities."""

import math
from array import array
from collections.abc import Sequence
from operator import mul

from headway.errors import PromptError
from headway.vectors.model_card import ModelCard

FLOAT32 = "f"  # the type code of array and memoryview


def embedding(raw: bytes, dimensions: int = 0, *, normalized: bool = True) -> "array[float]":
    """The embedding, [d] float32: a vector's first `dimensions` numbers (matryoshka); 0: all.

    normalized: divide by the length, after cutting. Raises PromptError if the vector is shorter.
    """
    vector: array[float] = array(FLOAT32, raw)
    if not 0 <= dimensions <= len(vector):
        raise PromptError(f"dimensions must be from 1 to {len(vector)}, not {dimensions}")
    if dimensions:
        del vector[dimensions:]
    if normalized and (length := math.hypot(*vector)):
        return array(FLOAT32, [each / length for each in vector])
    return vector


def without_padding(prompt: tuple[int, ...], padding: int) -> tuple[int, ...]:
    """The prompt without padding at its end. The prompt's first token always stays."""
    end = len(prompt)
    while end > 1 and prompt[end - 1] == padding:
        end -= 1
    return prompt[:end]


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine similarity of two embeddings; 0 if one has length 0."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / lengths if lengths else 0.0


def score(raw: bytes, card: ModelCard) -> float:
    """The score of a pair of texts, from a classifier's only logit. If the vector has two logits,
    yes and no, the score is their difference."""
    logit = _logit(raw)
    return _sigmoid(logit) if card.sigmoid else logit


def _logit(raw: bytes) -> float:
    logit, *against = array(FLOAT32, raw)
    return logit - sum(against)


def probabilities(raw: bytes, card: ModelCard) -> list[float]:
    """The probabilities of a classifier's labels: a sigmoid of each logit if the labels are
    independent or there is one, else a softmax. A regression's numbers are returned as they are."""
    vector: array[float] = array(FLOAT32, raw)
    logits = [_logit(raw)] if len(card.labels) == 1 else list(vector)
    if card.regression:
        return logits
    if card.several or len(logits) == 1:
        return [_sigmoid(each) for each in logits]
    powers = [math.exp(each - max(logits)) for each in logits]
    return [each / sum(powers) for each in powers]


def _sigmoid(logit: float) -> float:
    small = math.exp(-abs(logit))  # at most 1, so it cannot overflow
    return (1 if logit > 0 else small) / (1 + small)
