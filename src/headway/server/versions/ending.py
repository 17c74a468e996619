"""What the end of a trial says of its version (ending)."""

from collections.abc import Mapping
from typing import Any

from headway.rollout.evidence import Verdict
from headway.rollout.trial import Outcome
from headway.server.observe.logs import Log
from headway.server.versions.live_trial import LiveTrial
from headway.store.versions import PROMOTED, PROPOSED, ROLLED_BACK, VersionEvent

OURSELVES = "headway"
SURE = 20.0  # e-value from which on a gain counts: 1 / 0.05


def ending(live: LiveTrial, now: int) -> VersionEvent:
    """The version's event when its trial is over. now: Unix seconds."""
    if live.failure:
        return VersionEvent(ROLLED_BACK, now, OURSELVES, live.failure)
    verdict = live.trial.verdict
    measured = measure(live.expects, verdict)
    details = {"verdict": verdict.as_json(), "measured": measured}
    if verdict.outcome == Outcome.TRIPPED:
        return VersionEvent(ROLLED_BACK, now, OURSELVES, verdict.why, details)
    if live.stopped_by:  # also after a good verdict
        return VersionEvent(ROLLED_BACK, now, live.stopped_by, live.stopped_why, details)
    if verdict.outcome == Outcome.STOPPED:
        return VersionEvent(ROLLED_BACK, now, OURSELVES, verdict.why, details)
    if live.promotes and live.trial.is_judged and measured.get("is_better"):
        return VersionEvent(PROMOTED, now, OURSELVES, "the expected figure is better", details)
    return VersionEvent(PROPOSED, now, OURSELVES, verdict.why, details)


def say_end(log: Log, live: LiveTrial, event: VersionEvent) -> None:
    """Log the end of a trial that promotes nothing."""
    is_back = event.state == ROLLED_BACK
    said = log.warning if is_back else log.info
    what = "version rolled back" if is_back else "trial ended"
    said(what, version=live.number, to=live.control, why=event.why)


def say_lost(log: Log, live: LiveTrial, event: VersionEvent, error: Exception) -> None:
    """Log the end of a trial that could not be stored."""
    lost = {"version": live.number, "state": event.state, "verdict": event.why}
    log.error("the end of the trial is not stored", **lost, why=str(error))


def measure(expects: Mapping[str, Any] | None, verdict: Verdict) -> dict[str, Any]:
    """The expected change next to the measured one; empty: one of them is missing."""
    for each in verdict.evidence if expects else ():
        if expects and (each.figure, each.lane) == (expects["figure"], expects["lane"]):
            found = {"change": each.change, "low": each.low, "high": each.high, "pairs": each.pairs}
            return {"expected": expects, **found, "is_better": each.gain >= SURE}
    return {}
