"""Did one lane hold the slots while another waited?"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.finding import Finding, NotKnown, Trial
from headway.commands.diagnose.missed import Missed
from headway.commands.diagnose.timeline import Timeline
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.report.formatting import share

FULL = 0.95  # share of the slots in use at which others hardly start
MOST = 0.6  # share of the slots: a lane that holds this many decides how long the others wait
BETTER = 0.5  # the holder's miss rate must be less than this times the starved lane's


@dataclass(frozen=True, slots=True)
class SlotStarvation:
    """Explains a request if, since the line was last empty, nearly all slots were in use for as
    long as its excess, most of them by one other lane with a much lower miss rate."""

    cause: str = "slot starvation by a lane"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        lanes = {row.lane for row in case.evidence.requests}
        if len(lanes) < 2:
            return None
        if not (slots := case.evidence.slots):
            return NotKnown(self.cause, "the number of slots is not recorded")
        held = _held_by(case.evidence.requests, slots)
        rates, best, holder = _miss_rates(case), list[Missed](), ""
        for lane, time in held.items():
            explained = [
                each
                for each in case.missed
                if each.waited
                and each.row.lane != lane
                and rates[lane] < BETTER * rates[each.row.lane]
                and case.explains(time.between(case.delayed_since(each), each.span[1]), each)
            ]
            if len(explained) > len(best):
                best, holder = explained, lane
        if not best:
            return None
        starved = max({each.row.lane for each in best}, key=[e.row.lane for e in best].count)
        whole = case.evidence.end - case.evidence.begin
        full = held[holder].between(case.evidence.begin, case.evidence.end)
        return Finding(
            self.cause,
            case.score(best),
            (
                f"{case.counted(best)} waited while {holder} held most of the {slots} slots and "
                f"none was free, {case.when(best)}",
                f"that was so in {share(full / max(1, whole))} of the run's time; {holder} missed "
                f"{share(rates[holder])} of its own requests, {starved} {share(rates[starved])}",
            ),
            _trial(starved, holder, slots),
        )


def _trial(starved: str, holder: str, slots: int) -> Trial:
    kept = max(1, slots // 4)
    rest = max(1, slots - kept)
    return Trial(
        f"lanes:\n  {starved}:\n    priority: 0\n    slots: {{least: {kept}}}\n"
        f"  {holder}:\n    priority: 9\n    slots: {{most: {rest}}}",
        f"{holder} leaves a quarter of the slots to others, and takes longer",
        lanes={
            starved: {"priority": 0, "slots": {"least": kept}},
            holder: {"priority": 9, "slots": {"most": rest}},
        },
    )


def _miss_rates(case: Circumstances) -> Mapping[str, float]:
    counts = dict[str, int]()
    for row in case.evidence.requests:
        counts[row.lane] = counts.get(row.lane, 0) + 1
    missed = [each.row.lane for each in case.missed]
    return {lane: missed.count(lane) / count for lane, count in counts.items()}


def _held_by(rows: Iterable[RequestRow], slots: int) -> dict[str, Timeline]:
    """By lane: when it held most of the slots while nearly all were in use."""
    spans = dict[str, list[tuple[int, int, float]]]()
    for begin, end, running in _running(rows):
        if sum(running.values()) >= FULL * slots:
            for lane, count in running.items():
                if count >= MOST * slots:
                    spans.setdefault(lane, []).append((begin, end, float(end - begin)))
    return {lane: Timeline(each) for lane, each in spans.items()}


def _running(rows: Iterable[RequestRow]) -> Iterator[tuple[int, int, dict[str, int]]]:
    """Begin, end, and the running requests of each lane. A preempted request counts as running."""
    changes = list[tuple[int, int, str]]()
    for row in rows:
        if row.first_scheduled != NEVER:
            changes += [(row.first_scheduled, 1, row.lane), (row.finished, -1, row.lane)]
    running, since = dict[str, int](), 0
    for at, change, lane in sorted(changes):
        if at > since:
            yield since, at, running
            since = at
        running[lane] = running.get(lane, 0) + change
