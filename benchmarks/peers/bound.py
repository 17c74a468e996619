"""What the machine allows: of the memory for one stream, of the products for many rows.

No engine computes a token without reading every weight once, and none computes rows faster than its
products. Attention, sampling and the host are left out, so the bound is above what can be reached.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.workloads import Workload

Times = Mapping[int, float]  # seconds, by the number of rows


@dataclass(frozen=True, slots=True)
class Products:
    """All products of a step in one precision, by one library."""

    library: str
    precision: str
    layers: Times
    head: Times

    def whole(self, rows: int) -> float:
        """Of a step whose rows all need logits; rows: one of those measured."""
        return self.layers[rows] + self.head[rows]


def fastest(products: Sequence[Products], precision: str) -> Products:
    """The fastest at each size, of any library. A product of more rows serves fewer, too."""
    ours = [each for each in products if each.precision == precision]

    def least(part: str) -> Times:
        found, best = dict[int, float](), float("inf")
        sizes = sorted({rows for each in ours for rows in getattr(each, part)}, reverse=True)
        for rows in sizes:
            best = min(best, *(getattr(each, part).get(rows, best) for each in ours))
            found[rows] = best
        return found

    return Products("the fastest", precision, least("layers"), least("head"))


def at(times: Times, rows: int) -> float:
    """Seconds for a number of rows that was not measured: a line between its neighbours, and as
    many rows a second as the largest size beyond it."""
    sizes = sorted(times)
    if rows >= sizes[-1]:
        return times[sizes[-1]] * rows / sizes[-1]
    upper = next(size for size in sizes if size >= rows)
    lower = max((size for size in sizes if size <= rows), default=upper)
    share = (rows - lower) / (upper - lower) if upper > lower else 0.0
    return times[lower] + share * (times[upper] - times[lower])


def decode_rows(workload: Workload) -> list[int]:
    """How many rows each decode step has: as many requests as may run, in their order, each as
    soon as a place is free. An answer's first token comes with its prompt."""
    waiting = [each.answer - 1 for each in workload.requests if each.answer > 1]
    running, rows = list[int](), list[int]()
    while waiting or running:
        free = workload.most - len(running)
        running += waiting[:free]
        waiting = waiting[free:]
        rows.append(len(running))
        running = [left - 1 for left in running if left > 1]
    return rows


def prompt_rows(workload: Workload) -> int:
    """Prompt tokens that must be computed: what all share only once, and nothing of it if it was
    answered before."""
    shared = workload.shared
    own = sum(len(each.prompt) - shared for each in workload.requests)
    return own + (0 if workload.name.endswith("_warm") else shared)


def seconds(workload: Workload, products: Products) -> float:
    """The least time of all products: prompts at the rate of the best size, then decoding."""
    a_row = min(time / rows for rows, time in products.layers.items())
    steps = decode_rows(workload)
    decoding = sum(at(products.layers, rows) + at(products.head, rows) for rows in steps)
    return prompt_rows(workload) * a_row + decoding


def rate(workload: Workload, products: Products, bandwidth: float, weights: float) -> float:
    """The most output tokens a second. bandwidth: bytes a second. weights: bytes read each step.

    One stream is bound by the memory alone, whatever the products reach.
    """
    if workload.most == 1:
        return workload.answers / (len(decode_rows(workload)) * weights / bandwidth)
    return workload.answers / seconds(workload, products)
