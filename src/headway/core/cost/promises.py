"""How promises turned out, and how that corrects the next ones (Promises)."""

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from headway.core.cost.lengths import ENOUGH, Sample
from headway.core.cost.paces import Paces
from headway.core.cost.promise import Promise
from headway.core.request import NEVER

SURE = 0.9  # share of answers that end by the time that is promised
WHOLE = 1_000  # thousandths: measured over predicted
MOST = 1_000 * WHOLE  # a greater ratio says no more
# The ratio while too little is known: predictions miss requests that come later and go first.
UNKNOWN = 1_500
# Answers whose ratios count, beside the open ones: more are older, fewer tell a quantile badly.
RECENT = 128
STALE = 16  # the quantile is taken again once one part in this many has changed
LEAST = 20  # added to the open promises: one answer moves the factor by 1 / LEAST at most
UNIT, BOUND = 1_000_000, 3  # of the factor; it is from 1 / BOUND to BOUND
FADING = 512  # answers until past shortfalls of coverage have mostly faded
REACH, MOST_MOVED = 256, 0.1  # the goal moves by the shortfall / REACH, and so far at most
TRIED = 16  # one in this many requests that only a correction finds late is served


@dataclass(slots=True, eq=False)
class Span:
    """The time to an answer's end, as predicted and as it turned out."""

    made: int  # when it was promised
    predicted: int  # nanoseconds, uncorrected
    by: int  # the promised end
    is_guess: bool  # promised with UNKNOWN: keeping it tells nothing
    ended: int = NEVER  # when the answer ended, or its request left; NEVER: it is open
    whole: bool = False  # the answer ended by itself
    is_broken: bool = False  # the answer still ran when its promised end had passed

    def ratio(self, now: int) -> int:
        """Measured over predicted, in thousandths; a lower bound unless the answer is whole."""
        took = min(now, self.ended) - self.made
        return min(MOST, WHOLE * took // max(1, self.predicted))


class Spans:
    """Ratios of the times that answers took over what was predicted, and a factor.

    A promise is the prediction, times the quantile SURE of the ratios, times the factor. The ratios
    are those of the latest promises, open ones included: an answer that still runs takes at least
    the time that has passed. Without them short answers would rule at first, because they end
    first. The quantile is of the product-limit estimate (Kaplan and Meier, 1958). UNKNOWN stands
    for it until ENOUGH answers have ended.

    The factor grows with each answer that takes longer than promised, as soon as its promised end
    has passed, and shrinks with each answer that ends earlier. It stays if SURE of the answers are
    covered. Open promises are not known to be kept yet, so the more there are, the smaller the
    steps. So the factor grows or shrinks about e-fold at most until their ends can tell.

    The factor lags behind a change: while load changes one way, a little more or less than SURE are
    covered. So the recent shortfall of covered answers is summed, and the goal moves by that sum.
    """

    def __init__(self) -> None:
        self._latest = deque[Span]()  # as they were promised
        self._open: dict[tuple[int, int, int], list[Span]] = {}  # by made, predicted and `by`
        self._count = 0  # of the open ones
        self._due: list[tuple[int, int, Span]] = []  # a heap: promised end, number; some have ended
        self._number = 0  # of promises
        self._factor = UNIT  # millionths
        self._missing = 0.0  # recent shortfall of covered answers below SURE; negative: excess
        self._ratio = UNKNOWN  # the quantile
        self._news = 0  # promises made and closed since the quantile was taken
        self._is_guess = True  # too few answers had ended for the quantile

    def corrected(self, predicted: int, now: int) -> int:
        """The prediction, corrected: nanoseconds that SURE of the answers do not exceed."""
        self._note_broken(now)
        if self._news * STALE >= len(self._latest):
            self._ratio, self._news = self._quantile(now), 0
        return predicted * self._ratio // WHOLE * self._factor // UNIT

    def _quantile(self, now: int) -> int:
        """The ratio that SURE of the answers do not exceed. UNKNOWN while too few have ended. If it
        lies beyond all that are known: the largest ratio so far, but at least WHOLE."""
        seen = sorted([(each.ratio(now), not each.whole) for each in self._latest])
        self._is_guess = sum([not cut for _, cut in seen]) < ENOUGH
        if self._is_guess:
            return UNKNOWN
        left, share = len(seen), 1.0  # of the answers that take longer than this
        for ratio, cut in seen:
            if not cut:
                share *= 1 - 1 / left
                if share <= 1 - SURE:
                    return ratio
            left -= 1
        return max(WHOLE, seen[-1][0])

    def made(self, now: int, predicted: int, by: int) -> None:
        """Note an answer that is promised to end by the time `by`."""
        span = Span(now, predicted, by, self._is_guess)
        self._latest.append(span)
        self._open.setdefault((now, predicted, by), []).append(span)
        heappush(self._due, (by, self._number, span))
        self._number += 1
        self._count += 1
        if len(self._due) > 2 * self._count + RECENT:  # most have ended long before their time
            self._due = [each for each in self._due if each[2].ended == NEVER]
            heapify(self._due)
        self._news += 1
        while len(self._latest) > self._count + RECENT:
            self._latest.popleft()

    def left(self, now: int, made: int, predicted: int, by: int) -> None:
        """Close the promise of a request that left, and did not end by itself."""
        self._close(now, made, predicted, by)

    def ended(self, now: int, made: int, predicted: int, by: int) -> None:
        """Close the promise of an answer that ended by itself now, and learn from it."""
        self._note_broken(now)
        span = self._close(now, made, predicted, by)
        span.whole = True
        if not (span.is_broken or span.is_guess):
            self._learn(covered=True)

    def _note_broken(self, now: int) -> None:
        """Learn from the promises whose ends have passed, though their answers still run."""
        while self._due and self._due[0][0] < now:
            _, _, span = heappop(self._due)
            if span.ended == NEVER:
                span.is_broken = True
                self._learn(covered=False)

    def _learn(self, *, covered: bool) -> None:
        self._missing += SURE - covered - self._missing / FADING
        goal = SURE + min(MOST_MOVED, max(-MOST_MOVED, self._missing / REACH))
        change = round(self._factor * (goal - covered) / (LEAST + self._count))
        self._factor = min(BOUND * UNIT, max(UNIT // BOUND, self._factor + change))

    def _close(self, now: int, made: int, predicted: int, by: int) -> Span:
        spans = self._open[made, predicted, by]
        span = spans.pop()
        if not spans:
            del self._open[made, predicted, by]
        self._count -= 1
        self._news += 1
        span.ended = now
        return span


class Promises:
    """Measured over predicted times of the latest requests, by lane.

    Predictions are biased: they miss requests that will come later and go first, and they do not
    know what the prefix cache holds. So they are multiplied by a quantile of these ratios: the
    median for the wait for a first token, 90 % for the time to the end. That is split conformal
    prediction, which needs no model of the errors (Vovk et al., 2005). It holds while the next
    requests are like the last. Traffic changes, so whether promises were kept is fed back: that is
    adaptive conformal inference (Gibbs and Candes, 2021). The feedback moves the quantile itself
    and not its level, because no level of recent ratios covers what takes longer than all of them.
    That is quantile tracking, and the sum of the recent shortfall is error integration
    (Angelopoulos et al., Conformal PID control, 2023).
    """

    def __init__(self) -> None:
        self._waits: dict[str, Sample] = {}  # by lane
        self._spans: dict[tuple[str, str], Spans] = {}  # by lane, and where lengths are from
        self._prompts: dict[str, Sample] = {}  # by lane: prompt tokens of the requests promised
        self._counts: dict[str, tuple[int, int]] = {}  # by lane: promises open, and settled
        self._doubted: dict[str, int] = {}  # by lane: see `refuses`
        self.paces = Paces()

    def wait(self, lane: str, predicted: int) -> int:
        """The wait for a first token, corrected."""
        known = self._waits.get(lane)
        return _scaled(known, 0.5, predicted) if known else predicted

    def span(self, lane: str, basis: str, predicted: int, now: int) -> int:
        """The time to the end, corrected."""
        known = self._spans.get((lane, basis))
        return known.corrected(predicted, now) if known else predicted * UNKNOWN // WHOLE

    def is_young(self, lane: str) -> bool:
        """Whether fewer promises of the lane are settled than are open. The answers that have ended
        are then mostly short ones."""
        open_, settled = self._counts.get(lane, (0, 0))
        return settled < open_

    def prompt(self, lane: str) -> int:
        """Tokens of the median prompt; 0: not known yet."""
        known = self._prompts.get(lane)
        return known.quantile(0.5, beyond=0) if known else 0

    def first_came(self, lane: str, promise: Promise, now: int) -> None:
        """Learn from a request whose first token has come."""
        if promise.wait:
            ratio = WHOLE * max(0, now - promise.after) // promise.wait
            self._waits.setdefault(lane, Sample(RECENT)).add(min(MOST, ratio))

    def refuses(self, lane: str) -> bool:
        """Whether to refuse a request that is late only because of the correction of its wait.

        A refused request teaches nothing, so a correction could keep all requests out for ever. So
        each such request makes the correction fade, and one in TRIED is served.
        """
        doubted = self._doubted[lane] = self._doubted.get(lane, 0) + 1
        if (known := self._waits.get(lane)) and len(known) > ENOUGH:
            known.forget()
        return doubted % TRIED > 0

    def made(self, lane: str, prompt: int, promise: Promise) -> None:
        """Note the promise of a request with this many prompt tokens."""
        self._prompts.setdefault(lane, Sample()).add(prompt)
        self._spans.setdefault((lane, promise.basis), Spans()).made(
            promise.made, promise.span, promise.end
        )
        open_, settled = self._counts.get(lane, (0, 0))
        self._counts[lane] = open_ + 1, settled

    def ended(self, lane: str, promise: Promise, now: int, *, whole: bool) -> None:
        """Learn from a request that has ended. whole: by itself."""
        if promise.end == NEVER:
            return
        open_, settled = self._counts[lane]
        self._counts[lane] = open_ - 1, settled + 1
        spans, of = self._spans[lane, promise.basis], (promise.made, promise.span, promise.end)
        if whole:
            spans.ended(now, *of)
        else:
            spans.left(now, *of)


def _scaled(sample: Sample, share: float, predicted: int) -> int:
    """The prediction times this quantile of the ratios, if enough are known."""
    ratio = sample.quantile(share, beyond=-1)
    return predicted * ratio // WHOLE if ratio else predicted
