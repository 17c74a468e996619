"""The padding of groups, from the distribution of prompt lengths alone."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from headway.commands.plan.estimate.checked_estimate import Estimate

SOURCE = "order statistics: P(max of n <= x) = P(length <= x) ^ n"


def expected_longest(lengths: Sequence[int], size: int) -> float:
    """The expected maximum of `size` lengths drawn with replacement."""
    ordered, count = sorted(lengths), len(lengths)
    shares = ((at / count) ** size for at in range(1, count + 1))
    total, before = 0.0, 0.0
    for length, share in zip(ordered, shares, strict=True):
        total, before = total + length * (share - before), share
    return total


def padded_share(lengths: Sequence[int], size: int, width: Callable[[int], int] = int) -> float:
    """The share of a group's computed tokens that is padding.

    width: maps a prompt's length to the width it is padded to.
    """
    wide = expected_longest([width(length) for length in lengths], size)
    return 1 - sum(lengths) / len(lengths) / wide


def next_bucket(buckets: Sequence[int], length: int) -> int:
    """The smallest bucket that holds the length; beyond the last bucket, the length itself."""
    return length if length > buckets[-1] else buckets[bisect_left(buckets, length)]


def bucketed_share(lengths: Sequence[int], size: int, buckets: Sequence[int]) -> float:
    """The share of padding if each group has prompts of one bucket only."""
    classes: dict[int, list[int]] = {}
    for length in lengths:
        classes.setdefault(bisect_left(buckets, length), []).append(length)
    cells = sum(len(mine) * expected_longest(mine, size) for mine in classes.values())
    return 1 - sum(lengths) / cells


def _estimate(question: str, share: float, formula: str, assumes: str) -> Estimate:
    return Estimate(
        question=question,
        value=100 * share,
        unit="%",
        formula=formula,
        assumes=assumes,
        source=SOURCE,
        holds="30 groups or more, lengths in random order",
    )


DRAWN = "groups are full, and prompts come in random order of length"


def padding_estimates(
    lengths: Sequence[int], size: int, buckets: Sequence[int]
) -> dict[str, Estimate]:
    """The padding in percent, by how groups are formed.

    `longest`: groups of `size`, padded to their longest prompt. If there are buckets, also
    `buckets`: groups padded up to a bucket, and `classes`: groups of one bucket each.
    """
    estimates = {
        "longest": _estimate(
            f"padding, groups of {size}",
            padded_share(lengths, size),
            "1 - E[length] / E[longest of a group]",
            DRAWN,
        )
    }
    if buckets:
        estimates["buckets"] = _estimate(
            f"padding, groups of {size} padded up to a bucket",
            padded_share(lengths, size, lambda length: next_bucket(buckets, length)),
            "1 - E[length] / E[bucket of the longest]",
            f"{DRAWN}; there are fewer shapes, and more padding",
        )
        estimates["classes"] = _estimate(
            f"padding, groups of {size} inside one bucket",
            bucketed_share(lengths, size, buckets),
            "1 - sum of lengths / sum over the buckets of (prompts x E[their longest])",
            f"{DRAWN} inside a bucket; requests of a rare bucket wait until a group is full",
        )
    return estimates
