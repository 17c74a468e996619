"""What promises have come to, and how the next ones are corrected (Promises)."""

from headway.core.cost.lengths import Sample
from headway.core.cost.paces import Paces
from headway.core.cost.promise import Promise
from headway.core.request import NEVER

SURE = 0.9  # share of answers that end by the time that is promised
WHOLE = 1_000  # thousandths: measured over predicted
MOST = 1_000 * WHOLE  # a greater ratio says no more
RECENT = 128  # answers whose ratios count: more are older, fewer tell a 90 % quantile badly
LEAST = 20  # beside the open promises: one answer moves the factor by 1 / LEAST at most
UNIT, BOUND = 1_000_000, 3  # of the factor; it is from 1 / BOUND to BOUND


class Spans:
    """Ratios of the times that answers took over what was predicted, and a factor.

    A promise is the quantile SURE of the ratios, times the factor. The factor grows with each
    answer that took longer than promised, and shrinks with each other one, so that it stays if SURE
    of them are covered. Promises that are open are not known to be kept yet: the more there are,
    the smaller the steps. So it grows or shrinks about e-fold at most until their ends can tell.
    """

    def __init__(self) -> None:
        self._ratios = Sample(RECENT)
        self._factor = UNIT  # millionths
        self._open = 0  # promises

    def corrected(self, predicted: int) -> int:
        """Nanoseconds that SURE of the answers do not exceed."""
        return _scaled(self._ratios, SURE, predicted) * self._factor // UNIT

    def made(self) -> None:
        """A promise was made."""
        self._open += 1

    def left(self) -> None:
        """A request is gone that was promised its end, and has not ended by itself."""
        self._open -= 1

    def ended(self, ratio: int, covered: bool) -> None:
        """Learn from an answer. covered: it took no longer than promised."""
        self._open -= 1
        self._ratios.add(ratio)
        parts = LEAST + self._open
        change = round(self._factor * (SURE - covered) / parts)
        self._factor = min(BOUND * UNIT, max(UNIT // BOUND, self._factor + change))


class Promises:
    """Measured over predicted times of the latest requests, by lane.

    Predictions are biased: they know neither who will come later and go first nor what is found in
    the prefix cache. So they are multiplied by a quantile of these ratios: the median for the wait
    for a first token, 90 % for the time to the end. That is split conformal prediction, which needs
    no model of the errors (Vovk et al., 2005). It holds while the next requests are like the last.
    Traffic changes, so whether promises were kept is fed back: that is adaptive conformal inference
    (Gibbs and Candes, 2021). Not the level of the quantile is moved but the quantile, because no
    level of recent ratios covers what takes longer than all of them (quantile tracking, from
    Angelopoulos et al., Conformal PID control, 2023).
    """

    def __init__(self) -> None:
        self._waits: dict[str, Sample] = {}  # by lane
        self._spans: dict[tuple[str, str], Spans] = {}  # by lane, and where lengths are from
        self._prompts: dict[str, Sample] = {}  # tokens of those that got a promise, by lane
        self.paces = Paces()

    def wait(self, lane: str, predicted: int) -> int:
        """The wait for a first token, corrected."""
        known = self._waits.get(lane)
        return _scaled(known, 0.5, predicted) if known else predicted

    def span(self, lane: str, basis: str, predicted: int) -> int:
        """The time to the end, corrected."""
        known = self._spans.get((lane, basis))
        return known.corrected(predicted) if known else predicted

    def prompt(self, lane: str) -> int:
        """Tokens of the median prompt; 0: not known yet."""
        known = self._prompts.get(lane)
        return known.quantile(0.5, beyond=0) if known else 0

    def first_came(self, lane: str, promise: Promise, now: int) -> None:
        """Learn from a request whose first token has come."""
        if promise.wait:
            ratio = WHOLE * max(0, now - promise.after) // promise.wait
            self._waits.setdefault(lane, Sample(RECENT)).add(min(MOST, ratio))

    def made(self, lane: str, basis: str, prompt: int) -> None:
        """A request with so many prompt tokens is promised its end."""
        self._prompts.setdefault(lane, Sample()).add(prompt)
        self._spans.setdefault((lane, basis), Spans()).made()

    def ended(self, lane: str, promise: Promise, now: int, *, whole: bool) -> None:
        """Learn from a request that has ended. whole: by itself."""
        if promise.end == NEVER:
            return
        spans = self._spans[lane, promise.basis]
        if whole:
            ratio = WHOLE * (now - promise.made) // max(1, promise.span)
            spans.ended(min(MOST, ratio), now <= promise.end)
        else:
            spans.left()


def _scaled(sample: Sample, share: float, predicted: int) -> int:
    """Multiplied by this quantile of the ratios, if enough are known."""
    ratio = sample.quantile(share, beyond=-1)
    return predicted * ratio // WHOLE if ratio else predicted
