"""The requests of a benchmark with prompts for one server, and how their callers behave."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from random import Random

from headway.commands.bench.bench_traffic import BenchLane, BenchWork
from headway.core.request import NEVER, Request
from headway.runs.remote.offer import Offer
from headway.runs.remote.session import Turn
from headway.runs.remote.wording import Wording
from headway.traffic.arrival_process import ArrivalProcess
from headway.traffic.prompts import Prompts
from headway.traffic.workload import supersede_keys, with_prompts

BLOCK = 16  # no two prompts share their first BLOCK numbers
SUPERSEDE = "x-headway-supersede"


def offers_of(
    work: BenchWork, lanes: Sequence[BenchLane], wording: Wording, seed: int
) -> list[Offer]:
    """The offers, by arrival. The same seed draws the same turns and leavers for every server."""
    block = {spec.block: wording.prompt_numbers(spec.block) for spec in work.specs if spec.block}
    specs = [
        replace(
            spec,
            prompt=wording.prompt_numbers(spec.prompt),
            block=block.get(spec.block, 0),
        )
        for spec in work.specs
    ]
    prompts = Prompts(wording.text, BLOCK, seed)
    callers = {lane.traffic.name: _Callers(lane, wording, prompts, seed) for lane in lanes}
    keys = supersede_keys(specs)
    return [_offer(each, callers, keys.get(each.id)) for each in with_prompts(specs, prompts)]


class _Callers:
    """Draws what the callers of one lane do."""

    def __init__(self, lane: BenchLane, wording: Wording, prompts: Prompts, seed: int) -> None:
        self.lane, self.wording, self.prompts = lane, wording, prompts
        name, sessions = lane.traffic.name, lane.calling.sessions
        self.leaving = Random(f"{seed} leaving {name}")
        self.turning = Random(f"{seed} turns {name}")
        numbers = wording.prompt_numbers(sessions.prefix) if sessions.prefix else 0
        self.prefix = prompts.draw(f"{name} prefix", numbers) if numbers else ()

    def leaves_after(self, request: Request) -> int:
        return self.lane.calling.leaves_after(self.leaving, request.max_tokens)

    def turns(self, first: Request) -> tuple[Turn, ...]:
        """The turns that follow the first request of a session."""
        source, sessions, draw = self.lane.traffic.source, self.lane.calling.sessions, self.turning
        if not isinstance(source, ArrivalProcess):
            return ()
        made = []
        for number in range(2, 2 + sessions.further(draw)):
            answer, tokens = source.answer.draw(draw), source.prompt.draw(draw)
            prompt = self.prompts.draw(first.lane, self.wording.prompt_numbers(tokens))
            request = Request(f"{first.id}.{number}", prompt, answer, NEVER, first.lane)
            made.append(Turn(request, sessions.pause(draw)))
        return tuple(made)


def _offer(request: Request, callers: Mapping[str, _Callers], key: Hashable) -> Offer:
    """Make the offer. key: of requests with the same key, only the latest is wanted."""
    mine = callers[request.lane]
    headers = mine.lane.calling.headers
    if key is not None:  # hashed, because a trace's text may be invalid in a header
        hashed = blake2b(repr(key).encode(), digest_size=16).hexdigest()
        headers = {**headers, SUPERSEDE: hashed}
    return Offer(
        replace(request, prompt=(*mine.prefix, *request.prompt)) if mine.prefix else request,
        headers,
        mine.leaves_after(request),
        mine.turns(request),
    )
