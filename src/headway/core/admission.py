"""Say yes or no at the door, from the published Load alone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.load import LaneLoad, Load
from headway.core.request import NEVER, Request
from headway.core.sampling import shown

DOUBT = 2  # of an estimated wait: its half, which it may take longer


@dataclass(frozen=True, slots=True)
class Accept:
    """When its first token may come: a promise, and no bound.

    It is the time in which the line ahead drains, as fast as it drained lately, and then the
    prompt's own, as long as prompts of that length took lately from their start to their first
    token. It knows neither who arrives later and goes first, nor that a slot may be still to come
    free where nobody waits.
    """

    eta: int  # nanoseconds


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: str
    retry_at: int = NEVER  # when the line has drained; NEVER: it will be refused again


def admit(request: Request, load: Load, now: int) -> Accept | Refuse:
    """Used by the door and, against the race between doors, once more by Scheduler.apply."""
    line = load.lanes.get(request.lane)
    if line is None:
        return Refuse(f"there is no lane {request.lane!r}; there are {sorted(load.lanes)}")
    if problem := _problem(request, line, load):
        return Refuse(problem)
    if load.closing:
        return Refuse("the engine is closing")
    if refused := full(line, load, now):
        return refused
    drained = now + wait(line, load)
    if line.tokens + len(request.prompt) > line.lane.max_waiting_tokens:
        return Refuse(f"{line.tokens} tokens wait in {request.lane!r} already", drained)
    return Accept(drained + load.prefill * len(request.prompt))


def full(line: LaneLoad, load: Load, now: int) -> Refuse | None:
    """Whether one more is too many, whatever it asks: before its prompt is even tokenized."""
    if line.waiting < line.lane.max_waiting:
        return None
    reason = f"{line.waiting} requests wait in {line.lane.name!r} already"
    return Refuse(reason, now + wait(line, load))


def late(line: LaneLoad, load: Load, now: int, start_by: int) -> Refuse | None:
    """Whether one that has to start by then would probably wait for nothing.

    For the door alone: the engine drops those who really are late. Of those whose wait would end
    just in time as estimated, half would wait in vain, and all if a neighbour slows the machine.
    """
    ahead = wait(line, load)
    if start_by == NEVER or now + ahead + ahead // DOUBT <= start_by:
        return None
    most, left = (ahead + ahead // DOUBT) / 1e9, max(0, start_by - now) / 1e9
    reason = (
        f"the wait in {line.lane.name!r} is about {ahead / 1e9:.2g} s and may be {most:.2g} s: too "
        f"long for a request that must start within {left:.2g} s"
    )
    return Refuse(reason, now + ahead)


def never(requests: Sequence[Request], load: Load) -> Refuse | None:
    """Several of one call come in together or not at all: more than their lane holds never do."""
    line = load.lanes.get(requests[0].lane) if len(requests) > 1 else None
    if line is None:
        return None
    lane, tokens = line.lane, sum([len(each.prompt) for each in requests])
    if len(requests) > lane.max_waiting:
        what = f"{len(requests)} requests come together, and no more than {lane.max_waiting}"
    elif tokens > lane.max_waiting_tokens:
        what = f"{tokens} prompt tokens come together, and no more than {lane.max_waiting_tokens}"
    else:
        return None
    return Refuse(f"{what} may ever wait in {lane.name!r}")


def wait(line: LaneLoad, load: Load) -> int:
    """Nanoseconds until all who wait now in the lanes that go before it, or with it, have started.

    Each line's own drain rate knows what the others leave to it: so the slowest counts.
    """
    ahead = list(load.lanes.values())
    if load.by_priority:  # equal ones as they are configured, as order.Priority has it
        ahead.sort(key=lambda each: each.lane.priority)
        ahead = ahead[: ahead.index(line) + 1]
    return max([_to_drain(each, load.prefill) for each in ahead])


def _to_drain(line: LaneLoad, prefill: int) -> int:
    """As if one prompt were computed after the other, if none has ever left it for a batch."""
    return int(line.tokens * 1e9 / line.drain) if line.drain else line.tokens * prefill


def _problem(request: Request, line: LaneLoad, load: Load) -> str:
    """What no waiting will mend."""
    prompt, most = len(request.prompt), line.lane.max_waiting_tokens
    if not prompt:
        return "the prompt is empty"
    asked: object = request.max_tokens  # of a caller whose types nobody has checked
    if not isinstance(asked, int):
        return f"max_tokens must be an int, not {asked!r}"
    if request.max_tokens < 0:
        return f"max_tokens must be 0 or more, not {shown(request.max_tokens)}"
    if request.limit > load.capacity:
        return (
            f"{prompt} prompt tokens and {shown(request.max_tokens)} to generate cannot fit: "
            f"a request may hold {load.capacity}"
        )
    if prompt > most:
        return f"{prompt} prompt tokens are more than may ever wait in {request.lane!r}: {most}"
    return request.sampling.problem()
