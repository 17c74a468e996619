"""What a request is promised: when its first token comes, and when it ends (Promise)."""

from dataclasses import dataclass

from headway.core.request import NEVER


@dataclass(frozen=True, slots=True)
class Promise:
    """Times in nanoseconds, on the engine's clock; NEVER: cannot be told, or will not come.

    The fields from `after` on are what the promise was made of. With them the next are corrected.
    """

    made: int = NEVER  # when: with the first step chosen after the request came, or a later one
    first: int = NEVER  # half of such first tokens have come by then
    end: int = NEVER  # nine of ten such answers have ended by then
    after: int = NEVER  # predicted end of the step with which it was made
    wait: int = 0  # nanoseconds from `after` to its first token, uncorrected
    span: int = 0  # from `made` to its end, uncorrected
    basis: str = ""  # where the length of its answer is from (Lengths.left)


NO_PROMISE = Promise()
