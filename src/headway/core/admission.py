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

    The estimate is the wait for the requests ahead (`wait`) plus the time from start to first
    token, as prompts of that length took recently. It ignores requests that arrive later but go
    first. It also ignores the wait for a slot when all slots are taken and no request waits.
    """

    eta: int  # nanoseconds, on the engine's clock, at which the first token may come


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request may not come in."""

    reason: str
    retry_at: int = NEVER  # when the line should have drained; NEVER: retrying does not help


def admit(request: Request, load: Load, now: int) -> Accept | Refuse:
    """Accept the request, with an estimate of when its first token comes, or refuse it."""
    if refused := refuse(request, load, now):
        return refused
    line = load.lanes[request.lane]
    return Accept(now + wait(line, load) + load.prefill * len(request.prompt))


def refuse(request: Request, load: Load, now: int) -> Refuse | None:
    """Refuse a request that may not come in; None: it may.

    The submitter checks first. Scheduler.apply checks again, because several submitters may have
    passed the check at once.
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
    """Whether `refuse` would let the request in, if the engine is not closing. The engine checks
    its own line: building a Load for each request took half the time of adding the request.

    capacity: tokens that a request of this lane may ever hold.
    """
    lane, tokens = line.lane, line.tokens + len(request.prompt)
    fits = len(line) < lane.max_waiting and tokens <= lane.max_waiting_tokens
    return fits and not _problem(request, lane, capacity)


def full(line: LaneLoad, load: Load, now: int) -> Refuse | None:
    """Refuse if the lane has no place for any request. Called before the prompt is tokenized."""
    if line.waiting < line.lane.max_waiting:
        return None
    reason = f"{line.waiting} requests wait in {line.lane.name!r} already"
    return Refuse(reason, now + until_drained(line, load))


def late(line: LaneLoad, load: Load, now: int, start_by: int) -> Refuse | None:
    """Refuse a request that would probably not start by `start_by`.

    Called at admission only; the engine itself drops requests that really are late. An estimate
    from drain rates gets a margin (DOUBT). Without it, half of the requests whose wait is estimated
    to end just in time would wait in vain, and all of them when a busy neighbour slows the machine.
    """
    ahead = wait(line, load)
    longest = ahead if _is_foreseen(line) else ahead + ahead // DOUBT
    if start_by == NEVER or now + longest <= start_by:
        return None
    waits, most, left = map(in_seconds, (ahead, longest, max(0, start_by - now)))
    doubt = f" and may be {most}" if longest > ahead else ""
    reason = (
        f"the wait in {line.lane.name!r} is about {waits}{doubt}: too long for a request that must "
        f"start within {left}"
    )
    return Refuse(reason, now + ahead)


def never(requests: Sequence[Request], load: Load) -> Refuse | None:
    """Refuse the requests of one call if their lane can never hold all of them. They come in
    together or not at all."""
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
    """Nanoseconds until all waiting requests that precede a new one of this lane have started.

    The lanes' ranks (Settings.ranks) tell which requests precede it:

    first come   all that are not relegated
    priority     those of this lane and of lanes before it that are not relegated
    deadline     for a lane with a budget: those due earlier, in all lanes with a budget. Relegated
                 requests and lanes without a budget start later, and give up slots that are short.
                 For a lane without a budget: all requests of lanes with one, of this lane and of
                 lanes without a budget before it.

    A line's drain rate already includes what the other lanes take, so the slowest line counts. But
    the rate was measured while requests waited, which may be long ago. If there are slots and
    blocks for all, the wait is at most the time to compute their prompts one by one.

    Where lanes go by deadline, the engine's look ahead (LaneLoad.eta) counts instead, once known.
    """
    if _is_foreseen(line):
        return foreseen(line, load)
    return _to_drain(load, line.rank, line.due)


def _is_foreseen(line: LaneLoad) -> bool:
    return line.due > 0 and line.eta != NEVER


def foreseen(line: LaneLoad, load: Load) -> int:
    """As `wait`, from the engine's latest look ahead, which may be some steps old. If fewer prompt
    tokens wait now than then, the wait shrinks in proportion. If more do, their prefill is added.
    """
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
    has_slot = line.running < min(line.slots, line.lane.step_tokens.most)
    return min(ahead, now * load.prefill) if has_slot and _starts_at_once(load) else ahead


def until_drained(line: LaneLoad, load: Load) -> int:
    """As `wait`, but until the line's relegated requests have started, too: they take up places."""
    return _to_drain(load, line.relegated_rank if line.relegated else line.rank)


def _to_drain(load: Load, rank: int, due: int = 0) -> int:
    """Nanoseconds until all requests up to this rank have started, at each line's drain rate. While
    a rate is unknown, its line is priced as if prompts were computed one by one.

    due: in a lane whose own `due` is larger than this, only the requests that are due first count.
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
    """Share of the line's requests in time that are due before a request that arrives now and is
    due `due` nanoseconds later; due 0: all. Arrivals since the oldest are assumed to be even."""
    if not 0 < due < line.due:
        return 1.0
    since, lead = now - line.oldest, line.due - due
    if line.relegated:  # the oldest may be relegated
        since = min(since, line.due)
    return (since - lead) / since if since > lead else 0.0


def _starts_at_once(load: Load) -> bool:
    """Whether there are slots and blocks for all waiting requests, and a slot for one more. False
    if a lane with waiting requests is limited to a share."""
    lines = [each for each in load.lanes.values() if each.waiting]
    waiting = sum([each.waiting for each in lines])
    blocks = waiting + sum([each.tokens for each in lines]) // load.block_size
    has_room = load.running + waiting < load.slots and blocks <= load.free_blocks
    return has_room and not any(each.slots != NEVER or each.lane.is_limited for each in lines)


def in_seconds(nanoseconds: int) -> str:
    """Seconds as text: two significant digits, or whole seconds from 10 on."""
    seconds = nanoseconds / 1e9
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _problem(request: Request, lane: Lane, capacity: int) -> str:
    """Describe what is wrong with the request itself; empty: nothing."""
    prompt, most = len(request.prompt), lane.max_waiting_tokens
    if not prompt:
        return "the prompt is empty"
    max_tokens: object = request.max_tokens  # from the caller: its type is unchecked
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
