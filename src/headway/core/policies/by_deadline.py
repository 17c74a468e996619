"""An order for lanes with budgets (ByDeadline)."""

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from heapq import heappush, heappushpop
from itertools import accumulate
from operator import attrgetter, itemgetter, le
from typing import ClassVar

from headway.core.request import NEVER
from headway.core.sequences.sequence import RELEGATED, TIMED, UNTIMED, Sequence, next_times
from headway.core.view import View
from headway.errors import SettingError

SECOND = 1_000_000_000
LONG = 10  # the length of a step that is full of prompts, in steps of one token
SURE = 0.9  # the quantile of answer lengths that is counted on
LEAST_SHARE = 0.1  # of a step that prompts are assumed to have, however many sequences decode
_number, _tier = attrgetter("number"), attrgetter("tier")  # the first tier, TIMED, is 0
_end = attrgetter("done_by", "number")
Job = tuple[int, Sequence]  # a deadline, and the sequence that has it
_due = itemgetter(0)  # of a job


@dataclass(frozen=True, slots=True)
class ByDeadline:
    """Order by deadline; if not all can be in time, let as many as possible be.

    Requests that can still keep their budgets come first, by deadline. With `most_in_time`, when
    the work before a deadline does not fit, the largest job of it is put behind the others: on one
    machine no order has fewer jobs late (Moore, 1968). As the load rises, the order shifts by
    itself from earliest deadline first to least work first.

    Then come the relegated, then lanes without a budget, by priority, completion time and arrival.
    While no sequence of these tiers runs, the oldest relegated request and the oldest without a
    budget go first and have the next slots, once they are older than `patience`. Of every `turn`
    sequences that join, one is the oldest with a budget and one the oldest without, if older than
    that. In every `turn`-th step, the oldest running one of each kind goes first.

    Where slots are taken back from later tiers (ByLane), only requests with a budget have their
    turn, the relegated among them. Requests without one then join behind those in time, unless
    their lane runs fewer than its least slots.
    """

    needs_cost: ClassVar[bool] = True
    keeps_leasts: ClassVar[bool] = True
    most_in_time: bool = True
    patience: int = 60 * SECOND
    turn: int = 32

    def __post_init__(self) -> None:
        if self.patience < 0 or self.turn < 1:
            raise SettingError(f"patience must be 0 or more and turn 1 or more: {self}")

    def rank(self, view: View, running: Collection[Sequence]) -> Iterator[Sequence]:
        yield from self._aged(view, running)
        timed = [s for s in running if s.tier == TIMED]
        for line in view.lines:
            if line.is_timed:
                timed += line.waiting
        if timed:
            jobs = _by_due(timed, view)
            if late := _late(jobs, view) if self.most_in_time else ():
                yield from [s for _, s in jobs if s not in late]
                yield from sorted(late, key=lambda s: (s.work, s.number))
            else:
                yield from [s for _, s in jobs]
        yield from [s for s in running if s.tier == RELEGATED]
        lines = sorted(view.lines, key=attrgetter("lane.priority"))
        for line in lines:
            yield from tuple(line.relegated)
        yield from [s for s in running if s.tier == UNTIMED]
        for line in lines:
            if not line.is_timed:
                yield from sorted(line.waiting, key=_end) if line.has_dues else tuple(line.waiting)

    def _aged(self, view: View, running: Collection[Sequence]) -> list[Sequence]:
        """The oldest request with a budget and the oldest without, if older than `patience`.

        A waiting request counts in its turn, unless its lane lacks a slot or blocks for it. While
        only sequences in time run, requests that wait behind those in time count out of turn, too.
        Running sequences count in every `turn`-th step.
        """
        timed, untimed = (count >= self.turn - 1 for count in view.since_oldest)
        alone = not any(map(_tier, view.running))
        lines = [line for line in view.lines if not line.is_full]
        parts = [line.relegated for line in lines if timed or alone]
        parts += [line.waiting for line in lines if timed and line.is_timed]
        behind = [line.waiting for line in lines if not line.is_timed and (untimed or alone)]
        found = [_heads(each, view) for each in (parts, behind)]
        if view.step % self.turn == 0:
            found[0] += [s for s in running if s.tier != UNTIMED]
            found[1] += [s for s in running if s.tier == UNTIMED]
        oldest = sorted([min(each, key=_number) for each in found if each], key=_number)
        return [each for each in oldest if each.request.arrived + self.patience <= view.now]


def _heads(parts: Collection[Seq[Sequence]], view: View) -> list[Sequence]:
    """The first of each part, but not those whose lane may not have the blocks that they need."""
    lanes = {line.lane.name: line for line in view.lines}
    held, size = view.blocks_of_lane, view.block_size
    heads = [(part[0], part[0].request.lane) for part in parts if part]
    return [s for s, name in heads if not lanes[name].lacks_blocks(s, held.get(name, 0), size)]


def _by_due(timed: Collection[Sequence], view: View) -> list[Job]:
    """Pair each sequence with its deadline, the earliest first; equal ones stay as they are given.

    The deadline is when the next token must have come; or, if that is earlier, when the rest of the
    answer must begin so that it ends in time.
    """
    end, shortest = view.estimates.lengths.end, view.estimates.shortest
    dues = next_times(timed)
    for at, s in enumerate(timed):
        # Most have no time to end by, or enough time even if they become as long as they may.
        if s.done_by != NEVER and dues[at] + (s.limit - len(s.tokens)) * shortest > s.done_by:
            dues[at] = min(dues[at], s.done_by - (end(s, SURE) - len(s.tokens)) * shortest)
    return sorted(zip(dues, timed, strict=True), key=_due)


def _late(jobs: list[Job], view: View) -> Collection[Sequence]:
    """The sequences that are put behind the others, so that the others are in time.

    Prompts share their steps with decodes, so they take longer than their own work.
    """
    # The next token of a running sequence is little work, and not worth pricing.
    prompts = [(due, s) for due, s in jobs if len(s.tokens) - s.scheduled > 1 or not s.begun]
    slower, work = view.estimates.drifted(1_000_000) / 1e6, view.estimates.work
    slower /= _share_of_prompts(view) if prompts else 1.0
    works = {s: int(work(s) * slower) for _, s in prompts}
    ends = accumulate(works.values(), initial=view.now)
    dues = [jobs[0][0], *[due for due, _ in prompts]]  # the first may be late before any work
    return () if all(map(le, ends, dues)) else _largest(jobs, works, view.now)


def _largest(jobs: list[Job], works: Mapping[Sequence, int], now: int) -> set[Sequence]:
    """The sequences without which the others are in time: whenever a job is late, the largest so
    far is dropped; of equal ones, the last to arrive. works: nanoseconds, of those with any."""
    end, late = now, set()
    largest: list[tuple[int, int, Sequence]] = []
    for due, sequence in jobs:
        mine = works.get(sequence, 0)
        end += mine
        job = -mine, -sequence.number, sequence
        if end <= due:
            heappush(largest, job)
        else:
            least_lost, _, dropped = heappushpop(largest, job)
            end += least_lost
            late.add(dropped)
    return late


def _share_of_prompts(view: View) -> float:
    """The share of a long step that is left for prompts beside the decodes."""
    starts = [s.scheduled for s in view.running if len(s.tokens) - s.scheduled == 1]
    if not starts or not view.estimates.shortest:
        return 1.0
    decoding = view.estimates.decoding(len(starts), sum(starts))
    long = LONG * view.estimates.shortest
    return max(LEAST_SHARE, 1 - decoding / long)
