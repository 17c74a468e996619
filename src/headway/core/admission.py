"""Say yes or no at the door, from the published Load alone. Pure."""

from dataclasses import dataclass

from headway.core.request import NEVER, Request
from headway.core.view import LaneLoad, Load


@dataclass(frozen=True, slots=True)
class Accept:
    eta: int  # nanoseconds: when its first token may come, at the last step's pace


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: str
    retry_at: int = NEVER  # when the line has drained; NEVER: it will be refused again


def admit(request: Request, load: Load, now: int) -> Accept | Refuse:
    """Used by the door and, against the race between doors, once more by Scheduler.apply."""
    line = load.lanes.get(request.lane)
    if line is None:
        return Refuse(f"there is no lane {request.lane!r}; there are {sorted(load.lanes)}")
    if problem := _problem(request, load):
        return Refuse(problem)
    if load.closing:
        return Refuse("the engine is closing")
    drained = now + _to_drain(line, load.pace)
    if line.waiting >= line.lane.max_waiting:
        return Refuse(f"{line.waiting} requests wait in {request.lane!r} already", drained)
    if line.tokens + len(request.prompt) > line.lane.max_waiting_tokens:
        return Refuse(f"{line.tokens} tokens wait in {request.lane!r} already", drained)
    ahead = sum([each.tokens for each in load.lanes.values()])
    return Accept(now + load.pace * (ahead + len(request.prompt)))


def _to_drain(line: LaneLoad, pace: int) -> int:
    """Nanoseconds until all who wait have started; at the last step's pace if none ever has."""
    return int(line.tokens * 1e9 / line.drain) if line.drain else line.tokens * pace


def _problem(request: Request, load: Load) -> str:
    """What no waiting will mend."""
    if not request.prompt:
        return "the prompt is empty"
    if request.max_tokens < 0:
        return f"max_tokens must be 0 or more, not {request.max_tokens}"
    if request.limit > load.capacity:
        return (
            f"{len(request.prompt)} prompt tokens and {request.max_tokens} to generate cannot fit: "
            f"a request may hold {load.capacity}"
        )
    return request.sampling.problem()
