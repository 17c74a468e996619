"""What a caller asked for (Request) and how far it has got (Sequence)."""

from dataclasses import dataclass, field
from enum import StrEnum

NEVER = 2**63 - 1  # a time that does not come; a limit that does not bind


class Finish(StrEnum):
    """Why a request ended."""

    NOT_YET = ""  # falsy, so `if event.finish` reads as it should
    STOP = "stop"  # a stop token, or a stop string that the caller's side has seen
    LENGTH = "length"  # max_tokens
    COMPUTED = "computed"  # max_tokens = 0: the prompt is computed, nothing was to be sampled
    CANCELLED = "cancelled"
    REFUSED = "refused"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is picked. The random stream is keyed (seed, position), never by slot or call.

    Greedy where temperature is 0. The filters apply in the order top_k, top_p, min_p, each to
    what the one before it has left (the order of transformers and vLLM).
    """

    temperature: float = 0.0
    top_k: int = 0  # keep the k most likely; 0: all
    top_p: float = 1.0  # keep the fewest whose probabilities reach this; 1: all
    min_p: float = 0.0  # keep those at least this share of the most likely one; 0: all
    seed: int = 0
    stop_tokens: frozenset[int] = frozenset()  # each ends the answer, and is its last token
    min_tokens: int = 0  # until so many are generated, no stop token can be sampled
    logprobs: int = -1  # -1: none; n: of the sampled token and of the n most likely

    def problem(self) -> str:
        """What is wrong with it, in words for the caller; empty if nothing is."""
        if not 0 <= self.temperature < float("inf"):
            return f"temperature must be 0 or more and finite, not {self.temperature}"
        if self.top_k < 0:
            return f"top_k must be 0 (off) or more, not {self.top_k}"
        if not 0 < self.top_p <= 1:
            return f"top_p must be in (0, 1], not {self.top_p}"
        if not 0 <= self.min_p <= 1:
            return f"min_p must be in [0, 1], not {self.min_p}"
        if not 0 <= self.seed < 2**63:
            return f"seed must be in [0, 2**63), not {self.seed}"
        if self.min_tokens < 0:
            return f"min_tokens must be 0 or more, not {self.min_tokens}"
        if not -1 <= self.logprobs <= 20:
            return f"logprobs must be from 0 to 20, or -1 for none, not {self.logprobs}"
        return ""


@dataclass(frozen=True, slots=True)
class Request:
    """The ask."""

    id: str
    prompt: tuple[int, ...]
    max_tokens: int  # 0 is legal: the prompt is computed and nothing is sampled
    arrived: int  # nanoseconds, stamped at the door
    lane: str = "default"
    sampling: Sampling = Sampling()
    salt: str = ""  # root of the prefix-cache chain: tenants cannot probe each other

    @property
    def limit(self) -> int:
        """Tokens it may ever hold, its own and those generated."""
        return len(self.prompt) + self.max_tokens


@dataclass(eq=False, slots=True)
class Sequence:
    """One request in flight. Only the scheduler changes it; it never crosses a seam.

    tokens     |<------- prompt ------->|<-- generated -->|
    scheduled  |<-- in a step ------------->|                 scheduled <= len(tokens)
    computed   |<-- committed --->|                           computed <= scheduled
    blocks     |<-- reserved ------------------------->|      room = len(blocks) x block size
    """

    number: int  # in order of arrival: every tie is broken by it
    request: Request
    tokens: list[int]
    limit: int = field(init=False)  # of its request, and so its stops: read for every token
    stops: frozenset[int] = field(init=False)
    computed: int = 0
    scheduled: int = 0
    blocks: list[int] = field(default_factory=list)
    room: int = 0  # positions that its blocks can hold
    sent: int = 0  # blocks that the executor has been told of
    begun: bool = False  # the executor holds state for it
    keys: list[bytes] = field(default_factory=list)  # names of its first full blocks
    fills: int = 0  # the computed count at which another block is full and can be published
    published: int = 0  # blocks offered to the prefix cache, or taken from it
    cached: int = 0  # prompt tokens found in the prefix cache when it first joined
    overtaken: int = 0  # how often another joined past it, because it did not fit
    preemptions: int = 0
    discarded: int = 0  # tokens sampled past its end
    nanoseconds: int = 0  # its shares of the steps it was in
    first_scheduled: int = NEVER
    first_token: int = NEVER
    last_token: int = NEVER

    def __post_init__(self) -> None:
        self.limit = self.request.limit
        self.stops = self.request.sampling.stop_tokens

    @property
    def pending(self) -> int:
        """Tokens known and not yet given to a step."""
        return len(self.tokens) - self.scheduled

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def in_flight(self) -> bool:
        return self.scheduled > self.computed
