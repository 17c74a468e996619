"""Which requests can no longer keep their budget? A Relegate answers, once per step."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from headway.core.lane import Line
from headway.core.request import NEVER
from headway.core.sequences.sequence import RELEGATED, TIMED, Sequence
from headway.core.view import View


class Relegate(Protocol):
    """Which requests become best effort: served from now on behind the requests in time."""

    def relegated(self, view: View) -> Iterable[Sequence]:
        """Requests, waiting or running, that were in time so far and no longer are."""
        ...

    def restored(self, view: View) -> Iterable[Sequence]:
        """Relegated requests, waiting or running, that are in time after all."""
        ...


@dataclass(frozen=True, slots=True)
class Keep:
    """Relegate none: a late request keeps its place."""

    def relegated(self, view: View) -> Iterable[Sequence]:
        return ()

    def restored(self, view: View) -> Iterable[Sequence]:
        return ()


@dataclass(frozen=True, slots=True)
class Hopeless:
    """Relegate a request whose first token would be late even if its prompt were computed now,
    alone; or that waits and whose answer would end too late then (Estimates.last_first_token).

    A request that waits for the first token of another, whose prompt it shares, is in time as long
    as that one is: it computes no prompt of its own.

    The prediction may be wrong. So a request is restored if its first token came in time, or can
    because steps have become faster. A running request whose only deadline is its end is not
    restored. Eager relegation is from Niyama (2025).
    """

    needs_cost: ClassVar[bool] = True

    def relegated(self, view: View) -> Iterable[Sequence]:
        estimates, now = view.estimates, view.now
        starting: list[Sequence] = []
        ending: list[Sequence] = []
        for line in view.lines:
            if line.relegates:
                # No waiting prompt takes longer than the longest: most need no exact look.
                soon = now + estimates.prompt_alone(line.longest)
                starting += [s for s in line.waiting if s.first_by < soon]
                if line.has_dues:
                    ending += _ending(line, soon)
        lanes = {line.lane.name for line in view.lines if line.relegates}
        running = [s for s in view.running if s.first_seen == NEVER and s.tier == TIMED]
        starting += [s for s in running if s.request.lane in lanes]
        late = [
            s
            for s in starting
            if s.first_seen == NEVER
            and s.request.max_tokens > 0  # else it has no first token
            and now + estimates.first_token(s) > s.first_by
        ]
        late += [s for s in ending if is_late_to_end(s, view)]
        those = set(late)
        return [s for s in late if s.leader in those or not _follows_one_in_time(s)]

    def restored(self, view: View) -> Iterable[Sequence]:
        now = view.now
        # Most waiting requests are too late for good, and need no look.
        found = [
            s
            for line in view.lines
            for s in line.relegated
            if (now <= s.first_by or s.first_seen != NEVER)
            and now <= s.done_by
            and not is_late_to_end(s, view)
        ]
        runs = [s for s in view.running if s.tier == RELEGATED]
        found += [s for s in runs if s.done_by == NEVER or s.first_by < NEVER]
        return [s for s in found if _begins_in_time(s, view)]


def _follows_one_in_time(sequence: Sequence) -> bool:
    """Whether another request, which is in time, computes the prompt of this one."""
    leader = sequence.leader
    return leader is not None and leader.tier == TIMED and sequence.awaits_leader


def _begins_in_time(sequence: Sequence, view: View) -> bool:
    """Whether the first token came in time, or would if the prompt were computed now."""
    if sequence.first_seen != NEVER:
        return sequence.first_seen <= sequence.first_by
    now, by = view.now, sequence.first_by
    return now <= by and now + view.estimates.first_token(sequence) <= by


def _ending(line: Line, soon: int) -> list[Sequence]:
    """Waiting requests that may have to begin their answers before `soon`; the others need no
    exact look. No answer is assumed to take more than half of its time (last_first_token)."""
    return [s for s in line.waiting if s.done_by + s.request.arrived < 2 * soon]


def is_late_to_end(sequence: Sequence, view: View) -> bool:
    """Whether the answer would end too late even if its prompt were computed now."""
    by = view.estimates.last_first_token(sequence)
    return by < NEVER and view.now + view.estimates.first_token(sequence) > by
