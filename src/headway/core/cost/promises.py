"""What promises have come to, and how the next ones are corrected (Promises)."""

from headway.core.cost.lengths import Sample
from headway.core.cost.promise import Promise
from headway.core.request import NEVER

SURE = 0.9  # share of answers that end by the time that is promised
WHOLE = 1_000  # thousandths: measured over predicted
MOST = 1_000 * WHOLE  # a greater ratio says no more
PACE_DECAY = 64  # answers until the past of a lane's pace has mostly faded
STEP = 5_000  # millionths: how much one answer moves the quantile that is asked for
LOWEST, HIGHEST = 500_000, 995_000  # millionths: between which it stays


class Spans:
    """Ratios of the times that answers took over what was predicted, and the quantile that, if it
    had been asked for, would have covered SURE of them."""

    def __init__(self) -> None:
        self._ratios = Sample()
        self._asked = round(SURE * 1_000_000)  # millionths

    def corrected(self, predicted: int) -> int:
        """Nanoseconds that SURE of the answers do not exceed."""
        return _scaled(self._ratios, self._asked / 1_000_000, predicted)

    def ended(self, ratio: int, covered: bool) -> None:
        """Learn from an answer. covered: it took no longer than promised."""
        self._ratios.add(ratio)
        self._asked += round(STEP * (SURE - covered))
        self._asked = min(HIGHEST, max(LOWEST, self._asked))


class Promises:
    """Measured over predicted times of the latest requests, by lane.

    Predictions are biased: they know neither who will come later and go first nor what is found in
    the prefix cache. So they are multiplied by a quantile of these ratios: the median for the wait
    for a first token, 90 % for the time to the end. That is split conformal prediction, which needs
    no model of the errors (Vovk et al., 2005). Traffic changes, so only the latest answers count,
    and the quantile follows what was really covered: adaptive conformal inference (Gibbs and
    Candes, 2021).
    """

    def __init__(self) -> None:
        self._waits: dict[str, Sample] = {}  # by lane
        self._spans: dict[tuple[str, str], Spans] = {}  # by lane, and where lengths are from
        self._paces: dict[str, tuple[int, int]] = {}  # nanoseconds and gaps, in thousandths
        self._prompts: dict[str, Sample] = {}  # tokens of those that got a promise, by lane

    def wait(self, lane: str, predicted: int) -> int:
        """The wait for a first token, corrected."""
        known = self._waits.get(lane)
        return _scaled(known, 0.5, predicted) if known else predicted

    def span(self, lane: str, basis: str, predicted: int) -> int:
        """The time to the end, corrected."""
        known = self._spans.get((lane, basis))
        return known.corrected(predicted) if known else predicted

    def pace(self, lane: str) -> int:
        """Nanoseconds from one token to the next, in recent answers; 0: not known yet."""
        spent, gaps = self._paces.get(lane, (0, 0))
        return WHOLE * spent // max(1, gaps)

    def prompt(self, lane: str) -> int:
        """Tokens of the median prompt; 0: not known yet."""
        known = self._prompts.get(lane)
        return known.quantile(0.5, beyond=0) if known else 0

    def came(self, lane: str, prompt: int) -> None:
        """Learn the tokens of a request's prompt."""
        self._prompts.setdefault(lane, Sample()).add(prompt)

    def first_came(self, lane: str, promise: Promise, now: int) -> None:
        """Learn from a request whose first token has come."""
        if promise.wait:
            ratio = WHOLE * max(0, now - promise.after) // promise.wait
            self._waits.setdefault(lane, Sample()).add(min(MOST, ratio))

    def ended(self, lane: str, promise: Promise, now: int) -> None:
        """Learn from a request that has ended by itself."""
        if promise.end != NEVER:
            ratio = WHOLE * (now - promise.made) // max(1, promise.span)
            spans = self._spans.setdefault((lane, promise.basis), Spans())
            spans.ended(min(MOST, ratio), now <= promise.end)

    def decoded(self, lane: str, nanoseconds: int, gaps: int) -> None:
        """Learn that this time has passed from an answer's first token to its last."""
        spent, seen = self._paces.get(lane, (0, 0))
        self._paces[lane] = (
            spent + nanoseconds - spent // PACE_DECAY,
            seen + WHOLE * gaps - seen // PACE_DECAY,
        )


def _scaled(sample: Sample, share: float, predicted: int) -> int:
    """Multiplied by this quantile of the ratios, if enough are known."""
    ratio = sample.quantile(share, beyond=-1)
    return predicted * ratio // WHOLE if ratio else predicted
