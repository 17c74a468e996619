"""How long answers take from one token to the next, by lane (Paces)."""

from collections.abc import Iterable

from headway.core.request import NEVER
from headway.core.sequence import Sequence

WHOLE = 1_000  # thousandths
DECAY = 64  # answers until the past of a lane's pace has mostly faded
ENOUGH = 8  # gaps between the tokens of running answers; with fewer, those that ended tell it


class Paces:
    """The pace of the answers that run now; of those that have ended while too few run.

    An answer that ends tells of the time since it began: while a batch fills, answers that end are
    those that began in a smaller one.
    """

    def __init__(self) -> None:
        # By lane: nanoseconds, and gaps between tokens.
        self._running: dict[str, tuple[int, int]] = {}
        self._ended: dict[str, tuple[int, int]] = {}  # in thousandths of gaps; fading

    def see(self, running: Iterable[Sequence], now: int) -> None:
        """Look at those that run now. A sequence's time without a token counts, too."""
        seen = dict[str, tuple[int, int]]()
        for sequence in running:
            if sequence.first_token != NEVER and (gaps := sequence.generated - 1) > 0:
                lane = sequence.request.lane
                spent, more = seen.get(lane, (0, 0))
                seen[lane] = spent + now - sequence.first_token, more + gaps
        self._running = seen

    def ended(self, lane: str, nanoseconds: int, gaps: int) -> None:
        """Learn that this time has passed from an answer's first token to its last."""
        spent, seen = self._ended.get(lane, (0, 0))
        self._ended[lane] = (
            spent + nanoseconds - spent // DECAY,
            seen + WHOLE * gaps - seen // DECAY,
        )

    def of(self, lane: str) -> int:
        """Nanoseconds from one token to the next; 0: not known yet."""
        spent, gaps = self._running.get(lane, (0, 0))
        if gaps >= ENOUGH:
            return spent // gaps
        spent, gaps = self._ended.get(lane, (0, 0))
        return WHOLE * spent // max(1, gaps)
