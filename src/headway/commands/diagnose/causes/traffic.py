"""Did more requests come than can be served: for a moment (burst), or all the time (overload)?"""

from dataclasses import dataclass
from statistics import median

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.evidence import Evidence, Minute
from headway.commands.diagnose.finding import TOO_FEW, Finding, NotKnown, Trial
from headway.commands.diagnose.missed import Missed
from headway.commands.diagnose.step_times import StepTimes
from headway.commands.diagnose.timeline import Timeline
from headway.core.request import NEVER
from headway.report.formatting import duration, share
from headway.strategies.registry import LONG_STEP

UNPRICED = f"{TOO_FEW} to know how much work a request is"
SLICES = 30  # slices of the run until its last arrival, whose median is its usual rate
NARROWEST = 100_000_000  # nanoseconds of a slice: less says nothing about a rate
RUSH = 1_000_000_000  # nanoseconds: what comes within less is a burst, if the run goes on
FULL = 0.85  # device-seconds of work per second at which the device has no time to spare


@dataclass(frozen=True, slots=True)
class Offered:
    """The work that arrived, in device time at full batches (small batches take more)."""

    work: Timeline
    usual: float  # device-nanoseconds per nanosecond: the median over the run's slices
    peak: float  # the largest over the slices

    @classmethod
    def of(cls, case: Circumstances, times: StepTimes) -> "Offered":
        """Make it from the evidence's requests."""
        begin, end = case.evidence.begin, case.evidence.end
        came, slots = dict[int, float](), case.evidence.slots
        for row in case.evidence.requests:
            spent = times.work(row.prompt - row.cached, row.generated, slots)
            came[row.arrived] = came.get(row.arrived, 0.0) + spent
        work = Timeline((at, at + 1, spent) for at, spent in sorted(came.items()))
        # Not until the end: under an overload, the last answers come long after the last request.
        until = max([begin, *came, min(end, begin + RUSH)]) + 1
        width = max(NARROWEST, (until - begin) // SLICES)
        rates = [work.between(at, at + width) / width for at in range(begin, until, width)]
        return cls(work, median(rates) if rates else 0.0, max(rates, default=0.0))


def _fullness(minute: Minute, slots: int) -> float:
    """The share of a minute in which steps ran, times their mean share of the slots."""
    return minute.busy / max(1, minute.busy + minute.idle) * minute.batch / max(1, slots)


def _sizes(evidence: Evidence) -> dict[str, int]:
    """The sizes that the strategy `budgets` has with these slots."""
    return {"slots": evidence.slots, "step_tokens": evidence.slots + LONG_STEP}


def _crowded(case: Circumstances) -> list[Missed]:
    """The missed requests that a line can have delayed."""
    return [each for each in case.missed if each.waited]


@dataclass(frozen=True, slots=True)
class Burst:
    """Explains a request if, since the line was last empty, more work than usual arrived, by at
    least its excess. Explains nothing if the usual work already fills the device."""

    cause: str = "burst"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        if not (times := case.times):
            return NotKnown(self.cause, UNPRICED)
        offered, explained, surplus = Offered.of(case, times), list[Missed](), list[float]()
        for each in _crowded(case):
            since, came = case.delayed_since(each), each.row.arrived
            more = offered.work.between(since, came + 1) - offered.usual * (came - since)
            if case.explains(more, each):
                explained.append(each)
                surplus.append(more)
        if not explained or offered.usual >= FULL:
            return None
        lane = explained[0].row.lane
        limit = case.evidence.lanes[lane].max_waiting
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} came in a burst, {case.when(explained)}",
                f"up to {duration(max(surplus))} of work more than usual had come; per second, "
                f"{duration(1e9 * offered.usual)} of work usually come and "
                f"{duration(1e9 * offered.peak)} at the peak",
            ),
            Trial(
                "engine:\n  strategy: budgets\n  cost: cost.json\nlanes:\n"
                f"  {lane}:\n    late: refuse",
                "Refuse at once, with a time to retry, what cannot be in time"
                + ("" if limit == NEVER else f" (today {limit} may wait)")
                + ". Those who wait go by their deadlines",
                strategy="budgets",
                sets=_sizes(case.evidence),
                lanes={lane: {"late": "refuse"}},
            ),
        )


@dataclass(frozen=True, slots=True)
class Overload:
    """Explains every request that missed by waiting, if the device usually had no time to spare."""

    cause: str = "overload"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        evidence = case.evidence
        if times := case.times:
            usual = Offered.of(case, times).usual
            words = f"per second, {duration(1e9 * usual)} of work come"
        elif evidence.minutes:
            usual = median([_fullness(each, evidence.slots) for each in evidence.minutes])
            words = (
                f"{share(usual)} of the device's slots and time were in use in the median minute"
            )
        else:
            return NotKnown(self.cause, UNPRICED)
        if usual < FULL or not (explained := _crowded(case)):
            return None
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} came while more was asked than the device can do, "
                f"{case.when(explained)}",
                f"{words} (n = {len(evidence.requests)} requests)",
            ),
            Trial(
                "# another replica, or\nengine:\n  strategy: budgets\n  cost: cost.json",
                "No order serves more than the device can compute; by budgets, those who can be "
                "in time are",
                strategy="budgets",
                sets=_sizes(evidence),
            ),
        )
