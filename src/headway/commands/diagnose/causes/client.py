"""Was the answer ready while the client did not read it?"""

from dataclasses import dataclass

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.finding import Finding, NotKnown, Trial
from headway.report.formatting import duration


@dataclass(frozen=True, slots=True)
class SlowClient:
    """Explains a request if the server was in time and the client's reading was not."""

    cause: str = "slow client"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        waits = case.evidence.client_waits
        if not waits:
            return NotKnown(self.cause, "how long answers waited for their clients is not recorded")
        explained = [each for each in case.missed if each.limit == "client"]
        if not explained:
            return None
        lost = sorted(waits[each.row.id] for each in explained)
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} were ready in time and were not read in time, "
                f"{case.when(explained)}",
                f"their answers waited {duration(lost[len(lost) // 2])} for the client in the "
                f"median (n = {len(lost)})",
            ),
            TRIAL,
        )


TRIAL = Trial(
    "# in the proxy before headway (nginx)\nproxy_buffering on;",
    "The proxy takes the answer at once and holds it for the client; tokens then come in bursts. "
    "The engine itself is not slowed down by a slow client",
)
