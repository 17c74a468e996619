"""What a request is told at admission: when its first token comes, and when it ends (Promise)."""

from dataclasses import dataclass

from headway.core.request import NEVER


@dataclass(frozen=True, slots=True)
class Promise:
    """Times in nanoseconds, on the engine's clock; NEVER: cannot be told, or will not come.

    The fields from `after` on are what it was made of. From them the next promises are corrected.
    """

    made: int = NEVER  # when: with the first step that was chosen after the request came
    first: int = NEVER  # half of such first tokens have come by then
    end: int = NEVER  # nine of ten such answers have ended by then
    after: int = NEVER  # when the step ends with which it was made
    wait: int = 0  # nanoseconds from then to its first token, uncorrected
    span: int = 0  # from `made` to its end, uncorrected
    basis: str = ""  # where the length of its answer is from (Lengths.left)


NO_PROMISE = Promise()
