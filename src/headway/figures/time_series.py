"""A run over time, part by part: its queue, its batch and its waits."""

from collections import Counter
from collections.abc import Iterable, Sequence

from headway.core.ledger import RequestRow, StepRow

Span = tuple[int, int]  # nanoseconds: from, to


def waiting_spans(rows: Iterable[RequestRow]) -> list[Span]:
    """The span in which each request waited for its first step, or to its end if it had none."""
    return [(row.arrived, min(row.first_scheduled, row.finished)) for row in rows]


def open_spans(rows: Iterable[RequestRow]) -> list[Span]:
    """The span from each request's arrival to its end."""
    return [(row.arrived, row.finished) for row in rows]


def most_at_once(spans: Iterable[Span], width: int, parts: int) -> list[int]:
    """The most spans open at one moment, for each part of the run.

    width: nanoseconds of a part; the last part also has the rest. A span that ends just as another
    begins does not overlap it.
    """
    changes = Counter[int]()
    for begin, end in spans:
        changes[begin] += 1
        changes[end] -= 1
    most, open_, at = [0] * parts, 0, 0
    for time in sorted(changes):
        part = _part(time, width, parts)
        most[at + 1 : part] = [open_] * (part - at - 1)
        if part > at and time > part * width:
            most[part] = open_
        at, open_ = part, open_ + changes[time]
        most[at] = max(most[at], open_)
    return most


def mean_batch(steps: Iterable[StepRow], width: int, parts: int) -> list[float | None]:
    """The mean rows of a step, weighted by step time, for each part of the run; None: no step ran.

    width: nanoseconds of a part.
    """
    rows, time = [0.0] * parts, [0] * parts
    for step in steps:
        end = step.began + step.nanoseconds
        for part in range(_part(step.began, width, parts), parts):
            begin, stop = part * width, (part + 1) * width if part < parts - 1 else end
            if begin >= end:
                break
            inside = min(end, stop) - max(step.began, begin)
            rows[part] += inside * step.rows
            time[part] += inside
    return [a / b if b else None for a, b in zip(rows, time, strict=True)]


def longest_ttft(rows: Sequence[RequestRow], width: int, parts: int) -> list[int | None]:
    """The longest TTFT among the requests that arrived in each part of the run.

    Nanoseconds; None: no request arrived; NEVER: some first token did not come within the run.
    """
    longest: list[int | None] = [None] * parts
    for row in rows:
        part = _part(row.arrived, width, parts)
        longest[part] = max(longest[part] or 0, row.ttft)
    return longest


def _part(time: int, width: int, parts: int) -> int:
    """The part that a time falls into. Times before the run begins fall into the first part."""
    return min(max(0, time // width), parts - 1)
