"""A request in flight (Sequence): its tokens, its blocks and its times."""

from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass, field

from headway.core.batch import UNKNOWN, Logprobs, Row
from headway.core.cost.promise import NO_PROMISE, Promise
from headway.core.request import NEVER, Finish, Pooling, Request

# Tiers in the order of service, where a strategy goes by budgets (Sequence.tier):
TIMED = 0  # its lane has a budget, and the sequence can still keep it
RELEGATED = 1  # the sequence can no longer keep its lane's budget
UNTIMED = 2  # its lane has no budget

OF_LAST = (Pooling.LAST, Pooling.HEAD)  # vectors for which earlier tokens may come from the cache


@dataclass(eq=False, slots=True)
class Sequence:
    """How far one request has got. It never crosses a seam. The roster, the plan, the block table
    and the scheduler change it; other parts only read it or note their own figures in it.

    tokens     |<------- prompt ------->|<-- generated -->| UNKNOWN |
    scheduled  |<-- in a step ------------->|                 scheduled <= len(tokens)
    computed   |<-- committed --->|                           computed <= scheduled
    blocks     |<-- reserved ------------------------->|      room = len(blocks) x block size

    If the next step is decided while a step is in flight, the token that the step in flight samples
    has its place already: UNKNOWN, at the end of `tokens`.
    """

    number: int  # in order of arrival: every tie is broken by it
    request: Request
    tokens: MutableSequence[int]
    leader: "Sequence | None" = None  # has the same prompt: this one waits for its first token
    version: int = 0  # the configuration's number when the request came; 0: none
    # Copies from the request, because they are read for every token:
    limit: int = field(init=False)
    stops: frozenset[int] = field(init=False)
    scores: bool = field(init=False)  # the prompt's log-probabilities are wanted
    pools: bool = field(init=False)  # a vector of the prompt is wanted
    whole: bool = field(init=False)  # every position of the prompt must be computed for it
    prompt: int = field(init=False)  # tokens of the prompt
    reads: bool = field(init=False)  # its tokens must be known before the next one is sampled
    computed: int = 0
    scheduled: int = 0
    unknown: int = 0  # tokens at its end that are still being sampled
    blocks: list[int] = field(default_factory=list)
    room: int = 0  # positions in its blocks
    sent: int = 0  # blocks that the executor has been told of
    begun: bool = False  # the executor holds state for it
    hashes: list[bytes] = field(default_factory=list)  # of its first full blocks
    hit: int = 0  # while it waits: leading tokens that were cached at the last lookup
    tier: int = UNTIMED  # TIMED, RELEGATED or UNTIMED
    was_relegated: bool = False  # at some time; it may be in time again
    # The deadlines of its lane's budget, and of its own `due`; NEVER where there is none:
    first_by: int = NEVER  # when its first token must have come
    tpot: int = NEVER  # nanoseconds from one token to the next, on average
    done_by: int = NEVER  # when it must have ended
    work: int = 0  # nanoseconds that its pending tokens add to a full step (Estimates.work)
    alone: int = 0  # nanoseconds of a step of these tokens alone
    priced_from: int = 0  # `work` and `alone` are of its tokens from this position
    priced_to: int = 0  # up to this one
    # The latest Lengths.end: the share asked for, the end and its basis; share 0.0: not asked yet.
    expected_end: tuple[float, int, str] = (0.0, 0, "")
    promise: Promise = NO_PROMISE
    misfit: tuple[int, int, int] = (0, 0, 0)  # BlockPool.misfit() when it did not fit last
    full_at: int = 0  # value of computed at which its next block is full and can be published
    published: int = 0  # blocks offered to the prefix cache, or taken from it
    cached: int = 0  # prompt tokens found in the prefix cache when it first joined
    counted: int = 0  # its tokens in its tenant's counter (TokenCounters); 0: it never joined
    overtaken: int = 0  # how often another joined before it, because it did not fit
    preemptions: int = 0
    lost: int = 0  # tokens that were computed when it was last preempted
    recomputed: int = 0  # tokens computed again after a preemption
    scored: int = 0  # log-probabilities are given out for the prompt up to this position
    discarded: int = 0  # tokens sampled past its end
    ended: bool = False  # and its caller has been told
    nanoseconds: int = 0  # its shares of the steps it was in
    first_scheduled: int = NEVER
    first_token: int = NEVER
    first_seen: int = NEVER  # as first_token; while that step is in flight, its expected end
    last_token: int = NEVER

    def __post_init__(self) -> None:
        self.limit = self.request.limit
        self.prompt = len(self.request.prompt)
        self.stops = self.request.sampling.stop_tokens
        self.scores = self.request.sampling.prompt_logprobs >= 0
        self.pools = bool(self.request.pooling)
        self.whole = self.scores or (self.pools and self.request.pooling not in OF_LAST)
        self.reads = self.request.sampling.reads_tokens

    @property
    def pending(self) -> int:
        """Tokens that are not yet part of a step."""
        return len(self.tokens) - self.scheduled

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.prompt - self.unknown

    def expect(self) -> None:
        """Add an UNKNOWN token: the step being built samples it, and is not waited for."""
        self.tokens.append(UNKNOWN)
        self.unknown += 1

    def learn(self, sampled: tuple[int, ...]) -> None:
        """Replace the first UNKNOWN token by the one token that was sampled."""
        at = len(self.tokens) - self.unknown
        (self.tokens[at],) = sampled
        self.unknown -= 1

    def forget_unknown(self) -> None:
        """Drop the tokens that are still being sampled: no caller hears of them."""
        if self.unknown:
            del self.tokens[-self.unknown :]
            self.unknown = 0

    def truncate(self, keep: int) -> None:
        """Keep this many generated tokens, and count the others as discarded.

        The time of each token is not stored. The last token that stays gets the time it would have
        had if all gaps had been equal, so the mean gap stays the same.
        """
        self.forget_unknown()
        if (generated := self.generated) > keep:
            first, gaps = self.first_token, max(1, generated - 1)
            self.last_token = first + (self.last_token - first) * max(0, keep - 1) // gaps
            self.discarded += generated - keep
            del self.tokens[self.prompt + keep :]

    def cut_at_end(self, sampled: int) -> tuple[int, Finish]:
        """Discard the tokens after the one that ends the sequence. That is one of the last
        `sampled` tokens. Returns how many of these stay, and why the sequence has ended."""
        self.forget_unknown()
        tokens = self.tokens
        before = len(tokens) - sampled
        kept = min(sampled, self.limit - before)
        kept = next((i for i in range(1, kept) if tokens[before + i - 1] in self.stops), kept)
        del tokens[before + kept :]
        self.discarded += sampled - kept
        return kept, Finish.STOP if tokens[-1] in self.stops else Finish.LENGTH

    def take_scores(self, row: Row, scores: Logprobs) -> Logprobs:
        """Give out those of the row's log-probabilities of the prompt that are still new."""
        assert row.start <= self.scored, "no position of such a prompt is skipped"
        new = scores[self.scored - row.start :]
        self.scored = min(row.start + len(row.tokens), self.prompt - 1)
        return new

    def unscored(self, start: int, end: int) -> bool:
        """Whether computing from `start` to `end` brings log-probabilities of the prompt that were
        not given out yet. Those before `start` may still be in flight."""
        return self.scores and min(end, self.prompt - 1) > max(start, self.scored)

    @property
    def next_by(self) -> int:
        """When its next token must have come: the first by its ttft limit, any other so that the
        mean gap stays in its budget."""
        return next_times([self])[0]

    @property
    def awaits_leader(self) -> bool:
        """Whether its leader is still to compute the prompt they share."""
        leader = self.leader
        return leader is not None and leader.first_token == NEVER and not leader.ended

    @property
    def shared(self) -> int:
        """Tokens of its prompt that its leader has computed or will: all but the last, which it
        computes itself. 0 if it has no leader, or one that ended before its first token."""
        leader = self.leader
        if leader is None or self.whole or (leader.ended and leader.first_token == NEVER):
            return 0
        return self.prompt - 1

    @property
    def is_started(self) -> bool:
        """Whether it has been in a step."""
        return self.first_scheduled != NEVER

    @property
    def has_stopped_waiting(self) -> bool:
        """Whether this sequence or its leader has started. If the leader fails before its first
        token, this sequence must start by itself, but still counts as having stopped waiting."""
        return self.is_started or (self.leader is not None and self.leader.is_started)

    @property
    def waited_until(self) -> int:
        """When it was first scheduled, or, if earlier, when its leader was, but not before its own
        arrival. Only a leader that had a first token counts."""
        own, leader = self.first_scheduled, self.leader
        if own == NEVER or leader is None or leader.first_token == NEVER:
            return own
        return min(own, max(self.request.arrived, leader.first_scheduled))

    @property
    def in_flight(self) -> bool:
        """Whether a step that computes it is not back yet."""
        return self.scheduled > self.computed


def next_times(sequences: Iterable[Sequence]) -> list[int]:
    """Sequence.next_by of each: a step needs it of all that run, and one call is faster."""
    return [
        s.first_by
        if s.first_seen == NEVER
        else NEVER
        if s.tpot == NEVER
        else s.first_seen + (len(s.tokens) - s.prompt) * s.tpot
        for s in sequences
    ]


def due_before(sequences: Iterable[Sequence], time: int) -> list[Sequence]:
    """The sequences in time that lack only their next token, if it is due before `time`."""
    return [
        s
        for s in sequences
        if s.tpot != NEVER
        and s.tier == TIMED
        and s.first_seen + (len(s.tokens) - s.prompt) * s.tpot < time
        and len(s.tokens) - s.scheduled == 1
    ]


def due_after(sequences: Iterable[Sequence], time: int) -> list[Sequence]:
    """The sequences in time that lack only their next token, if it is due after `time` or never."""
    return [
        s
        for s in sequences
        if s.tier == TIMED
        and s.first_seen != NEVER
        and (s.tpot == NEVER or s.first_seen + (len(s.tokens) - s.prompt) * s.tpot > time)
        and len(s.tokens) - s.scheduled == 1
    ]
