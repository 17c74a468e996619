"""The rows that the page's Gantt draws, as compact JSON: a limited number, of one stretch of time.

Times are microseconds. Column names are not repeated, and a request's times count from its
arrival, so 10,000 requests take about a megabyte.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER
from headway.report.analysis import Analysis
from headway.runs.outcome import Outcome

MOST_REQUESTS = 20_000  # over all strategies
MOST_STEPS = 60_000
LIMITS = ("queue", "ttft", "tpot", "e2e")
REQUEST = (  # columns of a request; times are in us, and after "arrived" relative to the arrival
    *("id", "lane", "finish", "arrived", "scheduled", "first", "last", "finished"),
    *("prompt", "generated", "cached", "preemptions", "recomputed", "device"),
    *("relegated", "promised_first", "promised_end", "good"),
)
STEP = (  # gap: since the previous mark's end; span: from the mark's beginning to its end
    *("gap", "rows", "prompt", "decode", "waste", "busy", "span"),
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The stretch of arrivals that is drawn, in nanoseconds with both ends included."""

    begin: int
    end: int
    drawn: int  # requests drawn, over all strategies
    of: int

    @property
    def is_whole(self) -> bool:
        return self.drawn == self.of


def drawn_stretch(found: Analysis) -> Stretch:
    """All arrivals. With more than MOST_REQUESTS, the stretch with the most requests outside
    their budget; a tie goes to the earliest."""
    rows = sorted(
        (row.arrived, not row.good)
        for name in found.strategies
        for row in found.report.runs[name][0].requests
    )
    if not rows:
        return Stretch(0, 0, 0, 0)
    most = min(MOST_REQUESTS, len(rows))
    sums = [0, *accumulate(missed for _, missed in rows)]
    at = max(range(len(rows) - most + 1), key=lambda k: sums[k + most] - sums[k])
    begin, end = rows[at][0], rows[at + most - 1][0]
    if most < len(rows):  # arrivals at the same moment are all drawn, or none of them
        begin += at > 0 and rows[at - 1][0] == begin
        end -= at + most < len(rows) and rows[at + most][0] == end
    drawn = sum(begin <= arrived <= end for arrived, _ in rows)
    return Stretch(begin, end, drawn, len(rows))


def steps_together(found: Analysis, stretch: Stretch) -> int:
    """How many steps one mark of the strip covers, to draw about MOST_STEPS marks at most."""
    steps = sum(len(_steps(found.report.runs[name][0], stretch)) for name in found.strategies)
    return -(-steps // MOST_STEPS) or 1


def gantt_json(found: Analysis, stretch: Stretch, together: int) -> str:
    """The rows of each strategy's first run as JSON. It has no "<", so a script can hold it."""
    plain = {
        "lanes": [[name, _limits(found, name)] for name in found.lanes],
        "columns": REQUEST,
        "together": together,
        "remote": found.is_remote,
        "runs": [_run(found, name, stretch, together) for name in found.strategies],
    }
    return json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")


def _limits(found: Analysis, lane: str) -> dict[str, int]:
    budget = found.report.lanes[lane].budget
    limits = {name: getattr(budget, name) for name in LIMITS}
    return {name: limit // 1_000 for name, limit in limits.items() if limit != NEVER}


def _run(found: Analysis, name: str, stretch: Stretch, together: int) -> dict[str, Any]:
    outcome = found.report.runs[name][0]
    lanes = {lane: number for number, lane in enumerate(found.lanes)}
    requests = [_request(row, lanes[row.lane]) for row in _requests(outcome, stretch)]
    steps = _steps(outcome, stretch)
    return {"name": name, "requests": requests, "steps": _marks(steps, together)}


def _requests(outcome: Outcome, stretch: Stretch) -> list[RequestRow]:
    rows = [row for row in outcome.requests if stretch.begin <= row.arrived <= stretch.end]
    return sorted(rows, key=lambda row: (row.arrived, row.id))


def _steps(outcome: Outcome, stretch: Stretch) -> list[StepRow]:
    """The steps from the stretch's beginning to the last end of a drawn request, with the step
    running at the beginning."""
    if stretch.is_whole:
        return list(outcome.steps)
    end = max((row.finished for row in _requests(outcome, stretch)), default=0)
    return [
        row
        for row in outcome.steps
        if row.began + row.nanoseconds > stretch.begin and row.began <= end
    ]


def _request(row: RequestRow, lane: int) -> list[Any]:
    def since(time: int) -> int | None:
        return None if time == NEVER else (time - row.arrived) // 1_000

    return [
        *(row.id, lane, row.finish.value, row.arrived // 1_000),
        *map(since, (row.first_scheduled, row.first_token, row.last_token, row.finished)),
        *(row.prompt, row.generated, row.cached, row.preemptions, row.recomputed),
        *(row.nanoseconds // 1_000, int(row.relegated)),
        *map(since, (row.promised_first, row.promised_end)),
        int(row.good),
    ]


def _marks(steps: Sequence[StepRow], together: int) -> dict[str, list[int]]:
    """The strip's marks by column of STEP. With one step per mark, busy is the whole span."""
    columns: dict[str, list[int]] = {name: [] for name in STEP}
    end = 0
    for at in range(0, len(steps), together):
        some = steps[at : at + together]
        began = some[0].began // 1_000
        stop = (some[-1].began + some[-1].nanoseconds) // 1_000
        mark = (
            began - end,
            max(row.rows for row in some),
            sum(row.tokens - row.decodes for row in some),
            sum(row.decodes for row in some),
            sum(row.waste_tokens for row in some),
            min(sum(row.nanoseconds for row in some) // 1_000, stop - began),
            stop - began,
        )
        for name, value in zip(STEP, mark, strict=True):
            columns[name].append(value)
        end = stop
    if together == 1:
        columns["busy"] = columns.pop("span")
    return columns
