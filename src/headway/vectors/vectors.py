"""From the bytes of a vector to embeddings, scores and the probabilities of labels."""

import math
from array import array
from collections.abc import Sequence
from operator import mul

from headway.errors import PromptError
from headway.vectors.model_card import ModelCard

FLOAT32 = "f"  # as array and memoryview name it


def embedding(raw: bytes, dimensions: int = 0, *, normalized: bool = True) -> "array[float]":
    """[d] float32: the first `dimensions` numbers of a vector (matryoshka); 0: all.

    normalized: divided by its length, after it was cut. Raises PromptError if it has fewer.
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
    """A prompt without the padding at its end, of which the first token always stays."""
    end = len(prompt)
    while end > 1 and prompt[end - 1] == padding:
        end -= 1
    return prompt[:end]


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two embeddings."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / lengths if lengths else 0.0


def score(raw: bytes, card: ModelCard) -> float:
    """The score of a pair of texts, by a classifier with one label; by the logits of yes and no,
    the first less the second."""
    logit = _logit(raw)
    return _sigmoid(logit) if card.sigmoid else logit


def _logit(raw: bytes) -> float:
    logit, *against = array(FLOAT32, raw)
    return logit - sum(against)


def probabilities(raw: bytes, card: ModelCard) -> list[float]:
    """Of a classifier's labels: each by itself, or of all together 1; of a regression, its numbers
    as they are."""
    vector: array[float] = array(FLOAT32, raw)
    logits = [_logit(raw)] if len(card.labels) == 1 else list(vector)
    if card.regression:
        return logits
    if card.several or len(logits) == 1:
        return [_sigmoid(each) for each in logits]
    powers = [math.exp(each - max(logits)) for each in logits]
    return [each / sum(powers) for each in powers]


def _sigmoid(logit: float) -> float:
    small = math.exp(-abs(logit))  # never too large
    return (1 if logit > 0 else small) / (1 + small)
