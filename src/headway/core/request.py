"""What a caller asks for (Request), and why it ended (Finish)."""

from dataclasses import dataclass, replace
from enum import StrEnum

from headway.core.sampling import Sampling

NEVER = 2**63 - 1  # a time that does not come; a limit that does not bind


class Finish(StrEnum):
    """Why a request ended."""

    NOT_YET = ""  # falsy, so `if event.finish` reads as it should
    STOP = "stop"  # a stop token, or a stop string that the caller's side has seen
    LENGTH = "length"  # max_tokens
    COMPUTED = "computed"  # max_tokens = 0: the prompt is computed, nothing was to be sampled
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # not started, or not ended, by its own time
    REFUSED = "refused"
    ERROR = "error"


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
    follows: str = ""  # id of one with the same prompt: it waits for that one's first token
    start_by: int = NEVER  # the last nanosecond, of the clock that stamps arrivals, to start in
    end_by: int = NEVER  # the last to end in; of no use after it, a request is dropped

    @property
    def limit(self) -> int:
        """Tokens it may ever hold, its own and those generated."""
        return len(self.prompt) + self.max_tokens

    def sibling(self, id: str, choice: int) -> "Request":
        """Another choice of the same prompt, which is computed once, and its scores said once."""
        sampling = replace(self.sampling, choice=choice, prompt_logprobs=-1)
        return replace(self, id=id, sampling=sampling, follows=self.id)
