"""What a step costs. Additive in its rows, so that a step can be sized before it is built."""

from dataclasses import dataclass

from headway.core.batch import Batch


@dataclass(frozen=True, slots=True)
class Features:
    tokens: int = 0  # positions computed, wasted ones too
    reads: int = 0  # (query, key) pairs that attention looks at

    def __add__(self, other: "Features") -> "Features":
        return Features(self.tokens + other.tokens, self.reads + other.reads)


def row_features(start: int, length: int) -> Features:
    return Features(length, length * start + length * (length + 1) // 2)


def batch_features(batch: Batch) -> Features:
    total = Features(batch.waste)
    for row in batch.rows:
        total += row_features(row.start, len(row.tokens))
    return total


@dataclass(frozen=True, slots=True)
class StepCost:
    """Nanoseconds. The defaults are about an 8B model on one H100, not calibrated."""

    base: int = 7_000_000
    per_token: int = 35_000
    per_read: int = 47

    def predict(self, features: Features) -> int:
        return self.base + self.per_token * features.tokens + self.per_read * features.reads
