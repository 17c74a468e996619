"""Reasons to doubt a client's figures: a late client, lost or shortened answers, a closed loop."""

from itertools import takewhile
from statistics import median

from headway.core.ledger import RequestRow
from headway.core.request import Finish
from headway.report.analysis import Analysis
from headway.report.formatting import duration, figures
from headway.runs.outcome import Outcome
from headway.runs.remote.client_row import OWN_FAULT, ClientRow

Pair = tuple[RequestRow, ClientRow]

MOST_LAG = 10_000_000  # nanoseconds of median lag; above it the run measures the client
BUSY = 0.9  # of a core: asyncio uses only one
GONE = 3  # this many unanswered requests at the end: the server may have been killed
STALLED = 10_000_000  # nanoseconds, in the worst hundredth of the client's clock ticks


def lag_of(outcome: Outcome) -> int:
    """Median nanoseconds from the scheduled arrival until the client began to send."""
    return round(median([row.lag for row in outcome.client] or [0]))


def invalid(found: Analysis) -> str:
    """Why the run says nothing about the server; empty if it is valid."""
    if short := _unsent(found):
        return short
    late = {
        name: worst
        for name, runs in found.counted.items()
        if (worst := max(map(lag_of, runs), default=0)) > MOST_LAG
    }
    if not late:
        return ""
    lags = ", ".join(f"{name} {duration(lag)}" for name, lag in late.items())
    return (
        f"Not valid: the client sent its requests late (median {lags}; {duration(MOST_LAG)} is "
        "the most). It, not the server, was the bottleneck. Lower the rate, or give it a core."
    )


def _unsent(found: Analysis) -> str:
    """Requests that the client had no descriptor or port for; empty if there are none."""
    said = []
    for name, runs in found.report.runs.items():
        own = [row for run in runs for row in run.client if row.is_clients_fault]
        if own:
            reason = own[0].error.removeprefix(OWN_FAULT)
            said.append(f"{len(own):,} requests to {name} ({reason})")
    if not said:
        return ""
    return (
        f"Not valid: the client could not send {', '.join(said)}. It, not the server, had no "
        "descriptors or ports left. Raise its limit (ulimit -n), or lower the rate."
    )


def bottleneck(found: Analysis) -> str:
    """Where the client may have lengthened the latencies; empty if nowhere."""
    said = []
    for name in found.strategies:
        for each in found.report.about["clients"].get(name, ()):
            if each["cores"] > BUSY or each["stall_p99_ns"] > STALLED:
                stall = duration(each["stall_p99_ns"])
                said.append(f"{name}: {each['cores']:.2f} of a core, stalls of {stall} at p99")
    if not said:
        return ""
    return (
        f"The client may have been a bottleneck ({'; '.join(said)}): latencies at the tail may be "
        "its own. Give it a core, or lower the rate."
    )


def unserved(found: Analysis) -> str:
    """How many requests were not served; empty if all were."""
    said = []
    for name, runs in found.engine.items():
        if lost := sum(each.unserved for each in runs):
            offered = lost + sum(each.served for each in runs)
            said.append(f"{name} did not serve {lost:,} of {offered:,} requests")
    return f"{'; '.join(said)}." if said else ""


def gone(found: Analysis) -> str:
    """From when on a server stopped answering; empty if each answered to the end.

    A caller that left before any answer says nothing about the server. Requests cut off at the
    run's end do not show that the server is gone, so they are worded differently.
    """
    said = []
    for name, runs in found.report.runs.items():
        for run in runs:
            if (tail := _unanswered(run)) and len(tail) < len(run.requests):
                said += _silence(name, tail)
    return f"{'; '.join(said)}." if said else ""


def _unanswered(run: Outcome) -> list[Pair]:
    """The requests after the last answered one, in order of arrival."""
    pairs = zip(run.requests, run.client, strict=True)
    latest = sorted(pairs, key=lambda pair: (pair[0].arrived, pair[0].id), reverse=True)
    tail = takewhile(lambda pair: _is_unanswered(pair[1]), latest)
    return list(tail)[::-1]


def _is_unanswered(row: ClientRow) -> bool:
    return not row.status and bool(row.error or row.left) and not row.is_clients_fault


def _silence(name: str, tail: list[Pair]) -> list[str]:
    """Describe the unanswered tail of a run; empty if fewer than GONE requests got no answer."""
    lost = [k for k, (_, client) in enumerate(tail) if client.error]
    if len(lost) < GONE:
        return []
    failed = [k for k in lost if tail[k][0].finish is not Finish.EXPIRED]
    last = f"{len(tail) - lost[0]:,} requests, from {figures(tail[lost[0]][0].arrived / 1e9)} s on"
    if len(failed) < GONE:
        return [f"{name} had not answered the last {last}, when the run was over"]
    return [f"{name} answered none of the last {last} ({tail[failed[0]][1].error})"]


def shortened(found: Analysis) -> str:
    """How many answers ended before their asked length; empty if none did."""
    said = []
    for name in found.strategies:
        lanes = [found.client(name, lane) for lane in found.lanes]
        short = sum(each.short for runs in lanes for each in runs)
        if short:
            served = sum(each.served for each in found.engine[name])
            said.append(f"{name} ended {short:,} of {served:,} answers")
    if not said:
        return ""
    return (
        f"{'; '.join(said)} with fewer tokens than were asked for: it did less work than a server "
        "that does not."
    )


def closed(found: Analysis) -> str:
    """What a closed loop does to the latencies; empty if the loop was open."""
    callers = found.report.about["asked"]["callers"]
    if not callers:
        return ""
    return (
        f"A closed loop of {callers} callers: a slow server is asked less, so these latencies are "
        "shorter than those of callers who come when they like."
    )


def ran_out(found: Analysis) -> str:
    """Where a closed loop ran out of requests before its end; empty if nowhere."""
    window = found.report.about["workload"]["window_ns"]
    firsts = {
        name: min(at)
        for name, loads in found.report.about["clients"].items()
        if (at := [each["ran_out_ns"] for each in loads if each.get("ran_out_ns")])
    }
    if not firsts:
        return ""
    said = ", ".join(f"{name} after {figures(at / 1e9)} s" for name, at in firsts.items())
    return (
        f"The callers had no requests left before the end of the {figures(window / 1e9)} s: "
        f"{said}. A higher rate is more requests."
    )


def doubts(found: Analysis) -> list[str]:
    """All doubts, the worst first."""
    said = (
        invalid(found),
        closed(found),
        ran_out(found),
        gone(found),
        unserved(found),
        shortened(found),
        bottleneck(found),
    )
    return [text for text in said if text]


def is_void(found: Analysis) -> bool:
    """Whether the run says nothing: the client was at fault, or no request was served."""
    served = any(each.served for runs in found.engine.values() for each in runs)
    return not served or bool(invalid(found))
