"""How far a request has got (Sequence): its tokens, its blocks and its times."""

from dataclasses import dataclass, field

from headway.core.request import NEVER, Request


@dataclass(eq=False, slots=True)
class Sequence:
    """One request in flight. It never crosses a seam: the scheduler and its parts (roster, plan,
    blocks) change it, others read it.

    tokens     |<------- prompt ------->|<-- generated -->|
    scheduled  |<-- in a step ------------->|                 scheduled <= len(tokens)
    computed   |<-- committed --->|                           computed <= scheduled
    blocks     |<-- reserved ------------------------->|      room = len(blocks) x block size
    """

    number: int  # in order of arrival: every tie is broken by it
    request: Request
    tokens: list[int]
    leader: "Sequence | None" = None  # whose prompt it shares, and whose first token it awaits
    limit: int = field(init=False)  # of its request, and so its stops: read for every token
    stops: frozenset[int] = field(init=False)
    scores: bool = field(init=False)  # its prompt's log-probabilities are wanted
    computed: int = 0
    scheduled: int = 0
    blocks: list[int] = field(default_factory=list)
    room: int = 0  # positions that its blocks can hold
    sent: int = 0  # blocks that the executor has been told of
    begun: bool = False  # the executor holds state for it
    keys: list[bytes] = field(default_factory=list)  # names of its first full blocks
    misfit: tuple[int, int, int] = (0, 0, 0)  # BlockPool.misfit(), where it did not fit last
    fills: int = 0  # the computed count at which another block is full and can be published
    published: int = 0  # blocks offered to the prefix cache, or taken from it
    cached: int = 0  # prompt tokens found in the prefix cache when it first joined
    overtaken: int = 0  # how often another joined past it, because it did not fit
    preemptions: int = 0
    lost: int = 0  # tokens computed when it was preempted last
    recomputed: int = 0  # tokens computed again after a preemption
    scored: int = 0  # the prompt's tokens up to this position: log-probabilities given out
    discarded: int = 0  # tokens sampled past its end
    ended: bool = False
    nanoseconds: int = 0  # its shares of the steps it was in
    first_scheduled: int = NEVER
    first_token: int = NEVER
    last_token: int = NEVER

    def __post_init__(self) -> None:
        self.limit = self.request.limit
        self.stops = self.request.sampling.stop_tokens
        self.scores = self.request.sampling.prompt_logprobs >= 0

    @property
    def pending(self) -> int:
        """Tokens known and not yet given to a step."""
        return len(self.tokens) - self.scheduled

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    def cut(self, keep: int) -> None:
        """Its text had ended with so many generated tokens; those past them are discarded.

        When each token came is not kept: the last one of those that stay is taken to have come as
        if all had come evenly, so that the mean gap stays what it was.
        """
        if (said := self.generated) > keep:
            first, gaps = self.first_token, max(1, said - 1)
            self.last_token = first + (self.last_token - first) * max(0, keep - 1) // gaps
            self.discarded += said - keep
            del self.tokens[len(self.request.prompt) + keep :]

    def unscored(self, end: int) -> bool:
        """Whether computing up to `end` brings log-probabilities that were not given out."""
        return self.scores and min(end, len(self.request.prompt) - 1) > self.scored

    @property
    def awaits_leader(self) -> bool:
        """Whether the prompt that it shares is still to be computed."""
        leader = self.leader
        return leader is not None and leader.first_token == NEVER and not leader.ended

    @property
    def is_started(self) -> bool:
        return self.first_scheduled != NEVER

    @property
    def is_begun_with(self) -> bool:
        """It has started, or the one whose prompt it shares has: the wait is over for both."""
        if self.is_started or self.leader is None:
            return self.is_started
        leader = self.leader
        return leader.is_started and not (leader.ended and leader.first_token == NEVER)

    @property
    def waited_until(self) -> int:
        """When it was first scheduled; or, if that came before, the prompt that it shares."""
        own, leader = self.first_scheduled, self.leader
        if own == NEVER or leader is None or leader.first_token == NEVER:
            return own
        return min(own, max(self.request.arrived, leader.first_scheduled))

    @property
    def in_flight(self) -> bool:
        return self.scheduled > self.computed
