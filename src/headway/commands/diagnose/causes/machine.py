"""Did steps take longer than they should: for a while (neighbour), or to the end (drift)?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.finding import NO_STEPS, Finding, NotKnown, Trial
from headway.commands.diagnose.missed import Missed
from headway.commands.diagnose.step_times import StepTimes
from headway.commands.diagnose.timeline import of_steps
from headway.core.ledger import StepRow
from headway.report.formatting import duration

SLICES, LEAST = 150, 8  # slices that the steps are divided into; steps per slice, at least
SLOW = 1.2  # a slice is slow if measured over expected time exceeds this
LASTING = 0.25  # share of the time: slow slices that reach the end and take this much are a drift
NEARLY_ALL = 0.8  # share of these last slices that must be slow: a quick one does not end a drift


@dataclass(frozen=True, slots=True)
class SlowSteps:
    """Which steps belong to slow slices, and whether the slowness lasts to the end."""

    slow: tuple[bool, ...]  # by step
    ratio: float  # measured over expected time of the slow steps
    lasts: bool
    since: int  # the step at which the lasting slowness begins

    @classmethod
    def of(cls, steps: Sequence[StepRow], times: StepTimes) -> "SlowSteps":
        """Judge slices of equally many steps."""
        size = max(LEAST, -(-len(steps) // SLICES))
        pairs = [(r.nanoseconds, e) for r, e in zip(steps, times.expected, strict=True)]
        each = iter(pairs)
        slices = [part for part in iter(lambda: list(islice(each, size)), []) if part]
        is_slow = [sum(a for a, _ in p) > SLOW * sum(e for _, e in p) for p in slices]
        slow = [flag for part, flag in zip(slices, is_slow, strict=True) for _ in part]
        chosen = [pair for pair, flag in zip(pairs, slow, strict=True) if flag]
        expected = sum(e for _, e in chosen)
        ratio = sum(a for a, _ in chosen) / expected if expected else 1.0
        begins = (at for at, flag in enumerate(is_slow) if flag)
        first = next(
            (at for at in begins if sum(is_slow[at:]) >= NEARLY_ALL * len(is_slow[at:])), -1
        )
        lasted = sum(a for a, _ in pairs[first * size :]) if first >= 0 else 0
        whole = sum(a for a, _ in pairs)
        return cls(tuple(slow), ratio, lasted > 0 and lasted >= LASTING * whole, first * size)


def _explained(case: Circumstances, times: StepTimes, slow: SlowSteps) -> list[Missed]:
    """The requests whose excess the slow steps took, beyond their expected time."""
    steps = case.evidence.steps
    over = of_steps(
        steps,
        [
            row.nanoseconds - expected if flag else 0
            for row, expected, flag in zip(steps, times.expected, slow.slow, strict=True)
        ],
    )
    return [
        each
        for each in case.missed
        if each.limit != "client"
        and case.explains(over.signed(case.delayed_since(each), each.span[1]), each)
    ]


@dataclass(frozen=True, slots=True)
class NoisyNeighbour:
    """Explains a request if slow steps took its excess and the slowness passed."""

    cause: str = "noisy neighbour"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        if not case.evidence.steps:
            return NotKnown(self.cause, NO_STEPS)
        if not (times := case.times):
            return NotKnown(self.cause, "there are too few step rows to tell slow ones")
        slow = SlowSteps.of(case.evidence.steps, times)
        if slow.lasts or not any(slow.slow):
            return None
        if not (explained := _explained(case, times, slow)):
            return None
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} lost their excess to slow steps, "
                f"{case.when(explained)}",
                f"{sum(slow.slow)} of {len(slow.slow)} steps, in {_bursts(slow.slow)} bursts, took "
                f"{slow.ratio:.2f} times what {_by(times)} expects",
            ),
            Trial(
                "# systemd unit\n[Service]\nAllowedCPUs=2-15\n# Kubernetes: requests equal to "
                "limits, whole CPUs",
                "Give the server its own cores, or move what else runs there. `perf top` and the "
                "graphs of the machine say what it is",
            ),
        )


@dataclass(frozen=True, slots=True)
class DriftOfTheMachine:
    """Explains a request if slow steps took its excess and the slowness lasts to the end."""

    cause: str = "drift of the machine"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        if not case.evidence.steps:
            return NotKnown(self.cause, NO_STEPS)
        if not (times := case.times):
            return NotKnown(self.cause, "there are too few step rows to tell slow ones")
        slow = SlowSteps.of(case.evidence.steps, times)
        if not slow.lasts:
            why = "without a cost model of before, a machine slow from the beginning looks normal"
            return NotKnown(self.cause, why) if times.is_fitted else None
        if not (explained := _explained(case, times, slow)):
            return None
        since = case.evidence.steps[slow.since].began - case.evidence.begin
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} lost their excess to it, {case.when(explained)}",
                f"from {duration(max(0, since))} of the run to its end, {sum(slow.slow)} of "
                f"{len(slow.slow)} steps took {slow.ratio:.2f} times what {_by(times)} expects",
            ),
            Trial(
                "# headway calibrate --out cost.json, then\nengine:\n  cost: cost.json",
                "Look for a lowered clock, a power limit, another build of a library. If it stays, "
                "calibrate again: promises and admission go by the cost model",
            ),
        )


def _by(times: StepTimes) -> str:
    return "the rest of the run" if times.is_fitted else "the cost model"


def _bursts(slow: Sequence[bool]) -> int:
    return sum(now and not before for now, before in zip(slow, (False, *slow), strict=False))
