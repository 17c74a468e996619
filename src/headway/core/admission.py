"""Accept or refuse a request, from the published Load alone (admit)."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.lane import Lane, Line
from headway.core.load import LaneLoad, Load
from headway.core.request import NEVER, Request
from headway.core.sampling import UNASKED, shown

DOUBT = 2  # a wait may take longer than estimated, by 1/DOUBT of it


@dataclass(frozen=True, slots=True)
class Accept:
    """The request may come in. Its `eta` is an estimate, not a bound.

    It adds the time until the line ahead has drained, at its recent rate, and the time from start
    to first token, as prompts of that length took recently. It ignores requests that arrive later
    and go first, and that no slot may be free although nobody waits.
    """

    eta: int  # nanoseconds, on the engine's clock, at which the first token may come


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request may not come in."""

    reason: str
    retry_at: int = NEVER  # when the line will have drained; NEVER: trying again is no use


def admit(request: Request, load: Load, now: int) -> Accept | Refuse:
    """Whether the request may come in, and when its first token may come."""
    if refused := refuse(request, load, now):
        return refused
    line = load.lanes[request.lane]
    return Accept(now + wait(line, load) + load.prefill * len(request.prompt))


def refuse(request: Request, load: Load, now: int) -> Refuse | None:
    """Refuse a request that may not come in.

    Asked by whoever submits it and again by Scheduler.apply: several may have submitted at once.
    """
    line = load.lanes.get(request.lane)
    if line is None:
        return Refuse(f"there is no lane {request.lane!r}; there are {sorted(load.lanes)}")
    if problem := _problem(request, line.lane, min(load.capacity, line.capacity)):
        return Refuse(problem)
    if load.closing:
        return Refuse("the engine is closing")
    if refused := full(line, load, now):
        return refused
    if line.tokens + len(request.prompt) > line.lane.max_waiting_tokens:
        reason = f"{line.tokens} tokens wait in {request.lane!r} already"
        return Refuse(reason, now + until_drained(line, load))
    return None


def has_place(request: Request, line: Line, capacity: int) -> bool:
    """Whether `refuse` would let the request in, unless the engine is closing. The engine asks its
    own line: to make a Load for each request took half the time of taking it in.

    capacity: tokens that a request of this lane may ever hold.
    """
    lane, tokens = line.lane, line.tokens + len(request.prompt)
    fits = len(line) < lane.max_waiting and tokens <= lane.max_waiting_tokens
    return fits and not _problem(request, lane, capacity)


def full(line: LaneLoad, load: Load, now: int) -> Refuse | None:
    """Refuse if the lane has no place for any request. Asked before the prompt is tokenized."""
    if line.waiting < line.lane.max_waiting:
        return None
    reason = f"{line.waiting} requests wait in {line.lane.name!r} already"
    return Refuse(reason, now + until_drained(line, load))


def late(line: LaneLoad, load: Load, now: int, start_by: int) -> Refuse | None:
    """Refuse if a request that must start by `start_by` would probably wait in vain.

    Asked at admission only; the engine itself drops requests that really are late. If waits were
    accepted that are estimated to end just in time, half of them would be in vain, and all of them
    when a busy neighbour slows the machine.
    """
    ahead = wait(line, load)
    longest = ahead if _is_foreseen(line) else ahead + ahead // DOUBT
    if start_by == NEVER or now + longest <= start_by:
        return None
    waits, most, left = map(_seconds, (ahead, longest, max(0, start_by - now)))
    doubt = f" and may be {most}" if longest > ahead else ""
    reason = (
        f"the wait in {line.lane.name!r} is about {waits}{doubt}: too long for a request that must "
        f"start within {left}"
    )
    return Refuse(reason, now + ahead)


def never(requests: Sequence[Request], load: Load) -> Refuse | None:
    """Refuse requests of one call, which come in together or not at all, if there are more than
    their lane ever holds."""
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
    """Nanoseconds until all requests have started that wait now and precede a new one of this lane.

    The lanes' ranks tell which do (Settings.ranks). First come: all but relegated ones. By
    priority: those of its own lane and of lanes before it. By deadline: a lane with a budget waits
    for those of all lanes with one that are due earlier, but neither for lanes without a budget nor
    for relegated requests, its own included: those come later, and give back their slots where
    these are short. A lane without a budget waits for all requests of those that have one, and for
    its own lane and those before it.

    A line's drain rate already contains what the other lanes take. So the slowest line counts. But
    the rate is that of a time in which somebody waited, which may be long over. If there are slots
    and blocks for all, they wait no longer than their prompts take one by one.

    Where lanes go by deadline, the engine has looked ahead (LaneLoad.eta), and that counts.
    """
    if _is_foreseen(line):
        return foreseen(line, load)
    return _to_drain(load, line.rank, line.due)


def _is_foreseen(line: LaneLoad) -> bool:
    return line.due > 0 and line.eta != NEVER


def foreseen(line: LaneLoad, load: Load) -> int:
    """As wait, by the engine's latest look ahead, which may be some steps old. If fewer prompt
    tokens wait now than then, the wait is shorter by the same share; if more, longer by these."""
    ahead, then, now = (
        line.eta - load.prefill * line.eta_prompt,
        line.eta_tokens,
        load.tokens_in_time,
    )
    ahead = max(0, ahead)
    if now > then:
        ahead += (now - then) * load.prefill
    elif then:
        ahead = ahead * now // then
    return min(ahead, now * load.prefill) if _starts_at_once(load) else ahead


def until_drained(line: LaneLoad, load: Load) -> int:
    """As wait, but until the line's relegated requests have started, too: they take up places."""
    return _to_drain(load, line.relegated_rank if line.relegated else line.rank)


def _to_drain(load: Load, rank: int, due: int = 0) -> int:
    """Nanoseconds until all up to this rank have started, by each line's drain rate. Where that is
    not known yet, it is as if prompts were computed one by one.

    due: of a lane whose requests are due later than this, only those count that are due first.
    """
    longest = prompts = 0
    for each in load.lanes.values():
        tokens = each.relegated_tokens if each.relegated_rank <= rank else 0
        if each.rank <= rank:
            tokens += int((each.tokens - each.relegated_tokens) * _share_due(each, load.now, due))
        computed = tokens * load.prefill
        longest = max(longest, int(tokens * 1e9 / each.drain) if each.drain else computed)
        prompts += computed
    return min(longest, prompts) if _starts_at_once(load) else longest


def _share_due(line: LaneLoad, now: int, due: int) -> float:
    """Of those who wait there in time, the part that is due before a request that comes now and is
    due so much later; 0: all go before it. They are taken to have come evenly since the oldest."""
    if not 0 < due < line.due:
        return 1.0
    since, lead = now - line.oldest, line.due - due
    if line.relegated:  # the oldest may be one of them
        since = min(since, line.due)
    return (since - lead) / since if since > lead else 0.0


def _starts_at_once(load: Load) -> bool:
    """Whether there are slots and blocks for all who wait, and a slot for one more. Not said of
    lanes that have no more than a share of them."""
    lines = [each for each in load.lanes.values() if each.waiting]
    waiting = sum([each.waiting for each in lines])
    blocks = waiting + sum([each.tokens for each in lines]) // load.block_size
    has_room = load.running + waiting < load.slots and blocks <= load.free_blocks
    return has_room and not any(each.slots != NEVER or each.lane.is_limited for each in lines)


def _seconds(nanoseconds: int) -> str:
    """With two digits, but all before the point."""
    seconds = nanoseconds / 1e9
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _problem(request: Request, lane: Lane, capacity: int) -> str:
    """What is wrong with the request itself; empty: nothing."""
    prompt, most = len(request.prompt), lane.max_waiting_tokens
    if not prompt:
        return "the prompt is empty"
    max_tokens: object = request.max_tokens  # a caller's value, whose type nobody has checked
    if not isinstance(max_tokens, int):
        return f"max_tokens must be an int, not {max_tokens!r}"
    if request.max_tokens < 0:
        return f"max_tokens must be 0 or more, not {shown(request.max_tokens)}"
    if request.limit > capacity:
        wanted = "" if request.pooling else f" and {shown(request.max_tokens)} to generate"
        return f"{prompt} prompt tokens{wanted} cannot fit: a request may hold {capacity}"
    if request.pooling and request.max_tokens:
        return f"a request of a vector generates nothing: max_tokens is 0, not {request.max_tokens}"
    if prompt > most:
        return f"{prompt} prompt tokens are more than may ever wait in {request.lane!r}: {most}"
    return "" if request.sampling is UNASKED else request.sampling.problem()
