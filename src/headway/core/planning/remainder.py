"""What a step has left while it is being chosen: tokens, prompt tokens and time (Remainder)."""

from collections.abc import Mapping

from headway.core.cost.sizer import Sizer
from headway.core.policies.chunk import Allowance
from headway.core.request import NEVER
from headway.core.sequences.sequence import TIMED, Sequence
from headway.core.view import View


class Remainder:
    """What the step has left. Each sequence's share of the step is taken from it."""

    def __init__(self, allow: Allowance, step_tokens: int, view: View) -> None:
        self._whole = self.tokens = step_tokens
        self.prompts = allow.tokens
        self.split = allow.split
        self.time_is_up = False
        self._least = allow.least  # prompt tokens that the step may compute whatever its time
        self._sizer: Sizer | None = None  # none: the step may take any time
        if allow.nanoseconds != NEVER:
            behind = view.ahead > 0  # another step is being computed
            self._sizer = Sizer(view.estimates, *allow.time, behind=behind)

    @property
    def is_full(self) -> bool:
        """Whether no prompt gets anything more of the step."""
        return self.tokens <= 0 or self.prompts <= 0 or self.time_is_up

    def has_any(self, *, single: bool) -> bool:
        """Whether a sequence can get anything. single: it decodes, and may miss the step."""
        return self.tokens > 0 and not self.time_is_up and (self.prompts > 0 or single)

    def cut(self, wanted: int) -> int:
        """How many of a prompt's `wanted` tokens fit, whatever the time; all if prompts are not
        split."""
        return min(wanted, self.tokens, self.prompts) if self.split else wanted

    def decode(self, shares: Mapping[Sequence, int]) -> None:
        """Take a token for each of these sequences, the first of the step. What was given back
        before, for those that lost their blocks to one of these, had not been taken."""
        self.tokens = self._whole - len(shares)
        if self._sizer:
            self._sizer.decode([sequence.scheduled for sequence in shares])

    def fits(self, singles: list[Sequence]) -> bool:
        """Whether tokens and time suffice for a token of each sequence. If so, the time is taken;
        the caller takes the tokens. Asked only while the time is not up."""
        if len(singles) > self.tokens:
            return False
        if self._sizer is None:
            return True
        latest = max([each.tier for each in singles], default=TIMED)
        return self._sizer.fit_singles([each.scheduled for each in singles], latest)

    def within_time(self, sequence: Sequence, wanted: int, kept: int, *, may_wait: bool) -> int:
        """How many of `wanted` tokens fit into the step's time. Whatever the time, the sequence may
        have `kept`, which its lane keeps for it. If it may not miss the step, it may also have what
        is left of the step's least prompt tokens."""
        if self._sizer is None:
            return wanted
        self._sizer.turn_to(sequence.tier)
        fits = self._sizer.fit(sequence.scheduled, wanted, each=sequence.scores)
        if fits == wanted:
            return fits
        least = kept if may_wait else kept + max(0, self._least)
        return max(fits, min(wanted, least))

    def take(self, sequence: Sequence, tokens: int) -> None:
        """Take this many tokens for the sequence."""
        self.tokens -= tokens
        if self._sizer:
            self._sizer.add(sequence.scheduled, tokens, each=sequence.scores)

    def take_prompt(self, tokens: int, kept: int = 0) -> None:
        """Count tokens that were taken for a prompt. `kept` of them are kept for its lane: these do
        not count towards the least that a step computes whatever its time."""
        self.prompts -= tokens
        self._least -= tokens - kept

    def keep(self, sequence: Sequence, tokens: int, *, prompt: bool) -> None:
        """Take tokens that its lane keeps for the sequence, before all others get theirs."""
        self.tokens -= tokens
        self.prompts -= tokens if prompt else 0
        if self._sizer:
            self._sizer.keep(sequence.scheduled, tokens, sequence.tier, each=sequence.scores)

    def lose(self, sequence: Sequence, tokens: int) -> None:
        """Give back the tokens of a sequence that the step preempts. The time that they would have
        taken is not given out again."""
        self.tokens += tokens
        self.prompts += tokens if sequence.pending > 1 else 0

    def give_back(self, sequence: Sequence, tokens: int) -> None:
        """Give back a prompt's tokens that its lane keeps: it gets them again, with more."""
        self.tokens += tokens
        self.prompts += tokens
        if self._sizer:
            self._sizer.drop(sequence.scheduled, tokens, each=sequence.scores)
