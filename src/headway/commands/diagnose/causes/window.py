"""Did requests wait while the device had room? Then a window or a running group held them."""

from collections.abc import Callable
from dataclasses import dataclass

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.evidence import Evidence
from headway.commands.diagnose.finding import STRATEGY, Finding, NotKnown, Trial
from headway.commands.diagnose.timeline import of_steps
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.report.formatting import duration

ROOM = 0.9  # share of the slots: a smaller mean batch has free slots
Held = Callable[[RequestRow], float]  # nanoseconds for which a request was held despite free slots

SHARE = 0.25  # of the tightest TTFT or queue limit; `headway compare` takes it of a lane's TTFT


@dataclass(frozen=True, slots=True)
class WindowTooLong:
    """Explains a request if the engine held it for its excess while no step ran, or while a group
    ran with free slots: no request joins a group that has begun.

    Without step rows, the request's stages tell: the time that it waited for its window, and for a
    group if the mean batch was not full.
    """

    cause: str = "window too long"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        evidence, steps = case.evidence, case.evidence.steps
        if not steps and not evidence.stages:
            return NotKnown(self.cause, "there are no step rows, so idle time is not known")
        held = _by_steps(evidence) if steps else _by_stages(evidence)
        explained = [
            each for each in case.missed if each.waited and case.explains(held(each.row), each)
        ]
        if not explained:
            return None
        spent = sorted(held(each.row) for each in explained)
        middle = round(spent[len(spent) // 2])
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} were held while the device had room, "
                f"{duration(middle)} in the median (n = {len(spent)}), {case.when(explained)}",
            ),
            _trial(case),
        )


def _by_stages(evidence: Evidence) -> Held:
    names = ["queue.window"]
    if evidence.batch < ROOM * evidence.slots:
        names.append("queue.group")
    return lambda row: evidence.spent(row.id, *names)


def _by_steps(evidence: Evidence) -> Held:
    is_group = evidence.policies is not None and evidence.policies.in_groups
    slots = evidence.slots
    # No request joins a running group, so a group's step with free slots counts as holding.
    useful = of_steps(
        evidence.steps,
        [0 if is_group and row.running < slots else row.nanoseconds for row in evidence.steps],
    )

    def held(row: RequestRow) -> float:
        since = max(row.arrived, evidence.taken.get(row.id, 0))  # when the engine took it in
        until = row.finished if row.first_scheduled == NEVER else row.first_scheduled
        return until - since - useful.between(since, until)

    return held


def _trial(case: Circumstances) -> Trial:
    limits = [lane.budget.ttft for lane in case.evidence.lanes.values()]
    limits += [lane.budget.queue for lane in case.evidence.lanes.values()]
    tightest = min([limit for limit in limits if limit != NEVER], default=0)
    window = max(1, round(SHARE * tightest / 1e6))
    join = case.evidence.policies.join if case.evidence.policies else None
    if hasattr(join, "window"):
        # A lane's own window goes before the strategy's, so it has to change as well.
        own = "".join(
            f"\n  {lane}:\n    window: {window}ms" for lane in getattr(join, "windows", {})
        )
        lanes = f"\nlanes:{own}" if own else ""
        return Trial(
            f"{STRATEGY}    window: {window}ms{lanes}",
            "A quarter of the tightest limit. Groups get smaller, so a token costs more",
            sets={"window": window},
        )
    slots = case.evidence.slots
    return Trial(
        "engine:\n  strategy: continuous-chunk-256",
        "Nobody waits for a group to fill",
        strategy="continuous-chunk-256",
        sets={"slots": slots, "step_tokens": slots + 256},
    )
