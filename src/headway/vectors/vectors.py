"""From the bytes of a vector to embeddings, scores and the probabilities of labels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.errors import PromptError
from headway.vectors.model_card import ModelCard

Floats = NDArray[np.float32]
FLOAT32 = np.dtype("<f4")


def embedding(raw: bytes, dimensions: int = 0, *, normalized: bool = True) -> Floats:
    """[d] the first `dimensions` numbers of a vector (matryoshka); 0: all.

    normalized: divided by its length, after it was cut. Raises PromptError if it has fewer.
    """
    vector = np.frombuffer(raw, FLOAT32)
    if not 0 <= dimensions <= len(vector):
        raise PromptError(f"dimensions must be from 1 to {len(vector)}, not {dimensions}")
    if dimensions:
        vector = vector[:dimensions]
    if not normalized:
        return vector
    length = np.linalg.norm(vector)
    return vector / length if length else vector


def similarity(one: Floats, other: Floats) -> float:
    """The cosine of two embeddings."""
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0


def score(raw: bytes, card: ModelCard) -> float:
    """The score of a pair of texts, by a classifier with one label."""
    (logit,) = np.frombuffer(raw, FLOAT32).tolist()
    return float(_sigmoid(np.array([logit]))[0]) if card.sigmoid else float(logit)


def probabilities(raw: bytes, card: ModelCard) -> Sequence[float]:
    """Of a classifier's labels: each by itself, or of all together 1."""
    logits = np.frombuffer(raw, FLOAT32).astype(np.float64)
    if card.several or len(logits) == 1:
        return [float(each) for each in _sigmoid(logits)]
    powers = np.exp(logits - logits.max())
    return [float(each) for each in powers / powers.sum()]


def _sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-logits))
