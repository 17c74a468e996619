"""What a caller asks for (Request), and why it ended (Finish)."""

from collections.abc import MutableSequence
from dataclasses import dataclass, replace
from enum import StrEnum

from headway.core.sampling import UNASKED, Sampling
from headway.core.sequences.cells import Cells

NEVER = 2**63 - 1  # a time that never comes, or no limit


class Pooling(StrEnum):
    """How a request that wants no tokens has its prompt pooled into one vector of numbers."""

    NONE = ""
    LAST = "last"  # the hidden state of the last token, after the last norm
    MEAN = "mean"  # the mean of all tokens' hidden states
    FIRST = "first"  # the hidden state of the first token, [CLS]
    MAX = "max"  # the elementwise maximum of all tokens' hidden states
    WEIGHTED = "weightedmean"  # a mean in which the nth token counts n times (SGPT)
    ROOT = "mean_sqrt_len_tokens"  # the sum of all hidden states over the root of their number
    HEAD = "head"  # the scores of the checkpoint's classification head


class Finish(StrEnum):
    """Why a request ended."""

    NOT_YET = ""  # falsy, so `if event.finish` reads as it should
    STOP = "stop"  # a stop token was sampled, or the caller's side saw a stop string
    LENGTH = "length"  # max_tokens reached
    COMPUTED = "computed"  # max_tokens = 0: the prompt is computed, and nothing is sampled
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # it missed its start_by or its end_by
    REFUSED = "refused"
    UNSATISFIABLE = "unsatisfiable"  # its grammar, bad words and min_tokens let no token be sampled
    ERROR = "error"


# For code that runs per request: in Python 3.11 looking a member up takes half a microsecond.
NOT_YET, COMPUTED = Finish.NOT_YET, Finish.COMPUTED
BY_TOKENS = (Finish.STOP, Finish.LENGTH)
BY_ITSELF = (*BY_TOKENS, COMPUTED)


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt, and how it is to be answered."""

    id: str
    prompt: tuple[int, ...] | range  # a range takes no memory: its length is what an item costs
    max_tokens: int  # 0 is legal: the prompt is computed and nothing is sampled
    arrived: int  # nanoseconds, stamped when it is admitted
    lane: str = "default"
    sampling: Sampling = UNASKED
    salt: str = ""  # prefix-cache entries are shared only inside one salt (a tenant's) and adapter
    follows: str = ""  # id of a request with the same prompt, whose first token it waits for
    expected: int = 0  # tokens that the caller expects to be generated; 0: it does not say
    start_by: int = NEVER  # the latest time to start, on the clock that stamps arrivals
    end_by: int = NEVER  # the latest time to end; later it is dropped
    due: int = NEVER  # soft deadline of its end: orders the service; it is never dropped for it
    planned: int = NEVER  # it is not held for a fuller call if it would then end after this
    tenant: str = ""  # who sent it, if the tenants of a lane share it fairly
    adapter: str = ""  # name of the LoRA adapter that answers; empty: the model alone
    pooling: str = Pooling.NONE  # how its prompt is pooled; max_tokens must then be 0

    @property
    def limit(self) -> int:
        """The most tokens it may hold: prompt and generated."""
        return len(self.prompt) + self.max_tokens

    def tokens(self) -> MutableSequence[int]:
        """The tokens of the prompt, to which generated ones can be added."""
        return Cells(self.prompt) if isinstance(self.prompt, range) else list(self.prompt)

    def sibling(self, id: str, choice: int) -> "Request":
        """A request for another choice of the same prompt.

        The prompt is computed once, and its log-probabilities are given out once.
        """
        sampling = replace(self.sampling, choice=choice, prompt_logprobs=-1)
        return replace(self, id=id, sampling=sampling, follows=self.id)
