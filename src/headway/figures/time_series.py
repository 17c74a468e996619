"""What a run did from one moment to the next: its queue, its batch, its waits, part by part."""

from collections import Counter
from collections.abc import Iterable, Sequence

from headway.core.ledger import RequestRow, StepRow

Span = tuple[int, int]  # nanoseconds: from, to


def waiting_spans(rows: Iterable[RequestRow]) -> list[Span]:
    """When each request waited for its first step; to its end if it never had one."""
    return [(row.arrived, min(row.first_scheduled, row.finished)) for row in rows]


def open_spans(rows: Iterable[RequestRow]) -> list[Span]:
    """When each request was unanswered."""
    return [(row.arrived, row.finished) for row in rows]


def most_at_once(spans: Iterable[Span], width: int, parts: int) -> list[int]:
    """In each part of the run, the most spans that were open at one moment.

    width: nanoseconds of a part; the last one has the rest. A span that ends as another begins is
    not open with it.
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
    """In each part of the run, the rows of a step, mean over the steps' time; None: no step ran.

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
    """The longest time to the first token among those who arrived in each part of the run.

    Nanoseconds; None: nobody arrived; NEVER: a first token did not come in the run.
    """
    longest: list[int | None] = [None] * parts
    for row in rows:
        part = _part(row.arrived, width, parts)
        longest[part] = max(longest[part] or 0, row.ttft)
    return longest


def _part(time: int, width: int, parts: int) -> int:
    """The part that a time is in. What lies before the run's beginning is in the first."""
    return min(max(0, time // width), parts - 1)
