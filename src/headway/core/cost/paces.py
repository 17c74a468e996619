"""How long answers take from one token to the next, by lane (Paces)."""

from collections.abc import Iterable

from headway.core.request import NEVER
from headway.core.sequences.sequence import Sequence

WHOLE = 1_000  # thousandths
DECAY = 64  # answers until the past of a lane's pace has mostly faded
ENOUGH = 8  # gaps between the tokens of running answers; with fewer, ended answers tell the pace


class Paces:
    """The pace of the answers that run now or, while too few run, of answers that have ended.

    Ended answers lag behind: while a batch fills, the answers that end began in a smaller batch.
    """

    def __init__(self) -> None:
        # By lane: nanoseconds, and gaps between tokens.
        self._running: dict[str, tuple[int, int]] = {}
        self._ended: dict[str, tuple[int, int]] = {}  # in thousandths of gaps; fading

    def see(self, running: Iterable[Sequence], now: int) -> None:
        """Measure the answers that run now. The time since an answer's last token counts, too."""
        seen = dict[str, tuple[int, int]]()
        for sequence in running:
            if sequence.first_token != NEVER and (gaps := sequence.generated - 1) > 0:
                lane = sequence.request.lane
                spent, more = seen.get(lane, (0, 0))
                seen[lane] = spent + now - sequence.first_token, more + gaps
        self._running = seen

    def ended(self, lane: str, nanoseconds: int, gaps: int) -> None:
        """Learn the time, and the number of gaps, from an answer's first token to its last."""
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
