"""How many tokens answers have, learned from those that have ended (Lengths)."""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Iterable
from math import ceil

from headway.core.sequences.sequence import Sequence

KEPT = 512  # the latest answers, per lane and class of prompts
TOLD, LEARNED, ALLOWED = "told", "learned", "allowed"  # where an expected length is from
GOLDEN = 0.618  # successive shares that are this far apart, modulo 1, are spread evenly
ENOUGH = 16  # longer answers that a class needs to say anything


class Sample:
    """The latest answers of one kind: their lengths, or other figures."""

    def __init__(self, kept: int = KEPT) -> None:
        """kept: figures to keep, at most."""
        self._kept = kept
        self._latest = deque[int]()
        self._sorted: list[int] = []

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, length: int) -> None:
        """Add the length of an answer that has ended."""
        if len(self._latest) == self._kept:
            self.forget()
        self._latest.append(length)
        insort(self._sorted, length)

    def forget(self) -> None:
        """Drop the oldest."""
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

    The longer an answer is, the longer it is going to be: its remaining length is estimated only
    from answers that were longer. That is the estimator of LightLLM's Past-Future scheduler (2025).
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

        If the longest answers are cut off, only short ones end by themselves, and the next are
        expected to be short, too. So a cut answer counts with the length of an answer that was
        longer, each time another: that is how Efron (1967) reads the estimator of Kaplan and Meier.
        If too few were longer, it counts with twice its length, but no more than its caller allows.
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
        """Whether anything but what the caller allows is known of the answer's length."""
        sample = self._of_lane.get(sequence.request.lane, ())
        return sequence.request.expected > 0 or len(sample) >= ENOUGH

    def end(self, sequence: Sequence, share: float) -> int:
        """Tokens, prompt and answer, at its end: this share of such answers have no more.

        The end is kept until the sequence reaches it. It is never more than the caller allows. What
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
        """As `end`. But if too few known answers are longer, the answer is expected to double:
        callers often allow far more than is used."""
        end = self.end(sequence, share)
        if sequence.expected_end[2] == ALLOWED and self.knows(sequence):  # learned since then
            sequence.expected_end = 0.0, 0, ""
            end = self.end(sequence, share)
        if sequence.expected_end[2] != ALLOWED:
            return end
        return min(end, len(sequence.tokens) + max(1, sequence.generated))

    def likely_left(self, sequences: Iterable[Sequence], share: float) -> list[int]:
        """Tokens from each sequence to its `likely_end`. Most ends are kept, and need no call."""
        return [
            end - len(s.tokens)
            if (known := s.expected_end)[0] == share
            and known[2] != ALLOWED
            and (end := known[1]) > len(s.tokens)
            else self.likely_end(s, share) - len(s.tokens)
            for s in sequences
        ]

    def left(self, sequence: Sequence, share: float) -> tuple[int, str]:
        """Tokens that this share of such answers still generate at most, 1 or more; and where that
        is from: TOLD by the caller, LEARNED, or only ALLOWED."""
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
