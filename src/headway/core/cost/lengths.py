"""How many tokens answers have, learned from those that have ended (Lengths)."""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Iterable
from math import ceil

from headway.core.sequence import Sequence

KEPT = 512  # answers per lane and class of prompts, the latest
TOLD, LEARNED, ALLOWED = "told", "learned", "allowed"  # where an expected length is from
GOLDEN = 0.618  # the shares of one after another that are so far apart are spread evenly
ENOUGH = 16  # answers; with fewer that were longer, a class says nothing


class Sample:
    """The lengths of the latest answers of one kind, or other figures of theirs."""

    def __init__(self, kept: int = KEPT) -> None:
        """kept: of so many, at most."""
        self._kept = kept
        self._latest = deque[int]()
        self._sorted: list[int] = []

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, length: int) -> None:
        """An answer of this kind has ended."""
        if len(self._latest) == self._kept:
            self.forget()
        self._latest.append(length)
        insort(self._sorted, length)

    def forget(self) -> None:
        """The oldest counts no more."""
        oldest = self._latest.popleft()
        del self._sorted[bisect_left(self._sorted, oldest)]

    def quantile(self, share: float, beyond: int) -> int:
        """The length that this share of the answers longer than `beyond` do not exceed; 0: too
        few of them are known."""
        first = bisect_right(self._sorted, beyond)
        longer = len(self._sorted) - first
        if longer < ENOUGH:
            return 0
        return self._sorted[first + max(1, ceil(share * longer)) - 1]


class Lengths:
    """Quantiles of answers' lengths by lane and prompt length, given what is generated already.

    The longer an answer is, the longer it is going to be: its remaining length is asked of those
    answers only that were longer. That is the estimator of LightLLM's Past-Future scheduler (2025).
    Prompts are of one class if their lengths have equally many binary digits.
    """

    def __init__(self) -> None:
        self._of_class: dict[tuple[str, int], Sample] = defaultdict(Sample)
        self._of_lane: dict[str, Sample] = defaultdict(Sample)
        self._cuts = 0  # answers so far that were cut off

    def ended(self, sequence: Sequence) -> None:
        """Learn from an answer that has ended by itself."""
        self._add(sequence, sequence.generated)

    def cut(self, sequence: Sequence) -> None:
        """Learn from an answer that was cut off: it would have been longer than it is.

        Where the longest are cut off, those that end by themselves are the short ones, and the
        next are expected to be short, too. So its length is taken to be that of one of the answers
        that were longer, of each in turn: that is how Efron (1967) reads the estimator of Kaplan
        and Meier. Where too few were, it is taken to be half of its whole length.
        """
        self._cuts += 1
        generated = sequence.generated
        left, basis = self.left(sequence, self._cuts * GOLDEN % 1)
        self._add(sequence, generated + (min(left, generated) if basis == ALLOWED else left))

    def _add(self, sequence: Sequence, length: int) -> None:
        lane, digits = sequence.request.lane, len(sequence.request.prompt).bit_length()
        self._of_class[lane, digits].add(length)
        self._of_lane[lane].add(length)

    def knows(self, sequence: Sequence) -> bool:
        """Whether anything is known of its length beside what the caller allows."""
        sample = self._of_lane.get(sequence.request.lane, ())
        return sequence.request.expected > 0 or len(sample) >= ENOUGH

    def end(self, sequence: Sequence, share: float) -> int:
        """Tokens, prompt and answer, with which it ends: this share of such answers have no more.

        Asked again only once the sequence has reached it. Never more than the caller allows. What
        the caller expects counts until it is exceeded. While little is known, all that the caller
        allows is expected.
        """
        asked, end, _ = sequence.expected_end
        if asked != share or end <= len(sequence.tokens):
            known = len(sequence.tokens) - sequence.unknown
            left, basis = self.left(sequence, share)
            end = min(sequence.limit, known + left)
            sequence.expected_end = share, end, basis
        return end

    def likely_end(self, sequence: Sequence, share: float) -> int:
        """As `end`. But an answer of which nothing is known, or that is longer than all of which
        anything is, is expected to grow by as much again as it has: what callers allow is often
        far more than what is used."""
        end = self.end(sequence, share)
        if sequence.expected_end[2] == ALLOWED and self.knows(sequence):  # since it was asked
            sequence.expected_end = 0.0, 0, ""
            end = self.end(sequence, share)
        if sequence.expected_end[2] != ALLOWED:
            return end
        return min(end, len(sequence.tokens) + max(1, sequence.generated))

    def likely_left(self, sequences: Iterable[Sequence], share: float) -> list[int]:
        """Tokens that each still has to `likely_end`. Most ends are known, and need no call."""
        return [
            end - len(s.tokens)
            if (known := s.expected_end)[0] == share
            and known[2] != ALLOWED
            and (end := known[1]) > len(s.tokens)
            else self.likely_end(s, share) - len(s.tokens)
            for s in sequences
        ]

    def left(self, sequence: Sequence, share: float) -> tuple[int, str]:
        """Tokens that it will still generate, 1 or more, as `end` counts them; and how that is
        known: TOLD by the caller, LEARNED, or only ALLOWED."""
        left, basis = self._remaining(sequence, share)
        return max(1, left), basis

    def _remaining(self, sequence: Sequence, share: float) -> tuple[int, str]:
        request, generated = sequence.request, sequence.generated
        allowed = request.max_tokens - generated
        if request.expected > generated:
            return min(allowed, request.expected - generated), TOLD
        digits = len(request.prompt).bit_length()
        for sample in (
            self._of_class.get((request.lane, digits)),
            self._of_lane.get(request.lane),
        ):
            if sample and (length := sample.quantile(share, generated)):
                return min(allowed, length - generated), LEARNED
        return allowed, ALLOWED
