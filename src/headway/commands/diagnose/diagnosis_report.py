"""A diagnosis as one screen for people, and as JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.commands.diagnose.diagnosis import KEPT, Diagnosis
from headway.commands.diagnose.finding import NAMED, Finding
from headway.commands.diagnose.replayed import Replayed
from headway.report.formatting import share

WIDTH = 80
SHOWN = 4  # causes in the table


@dataclass(frozen=True, slots=True)
class DiagnosisReport:
    """A diagnosis, and the replay of the change that it suggests first."""

    diagnosis: Diagnosis
    replay: Replayed | str  # of the first finding's change; in words: why there is none

    def print(self, console: Console) -> None:
        """Print one sentence, one table, and the change to try."""
        found = self.diagnosis
        console.print(Text(self.sentence, style="bold"))
        console.print(Text(f"{found.source}.", style="dim"))
        if self.left_out:
            console.print(Text(f"{self.left_out}."))
        if found.findings:
            console.print()
            console.print(self._table(), width=min(console.width, WIDTH))
            self._print_trial(console, found.findings[0])
        if found.not_known:
            console.print()
            console.print("Not known from this source:")
            for each in found.not_known:
                console.print(f"- {each.cause}: {each.why}.")

    @property
    def sentence(self) -> str:
        """The verdict in one or two sentences."""
        found = self.diagnosis
        kept = f"{share(found.attainment)} of {found.offered} requests met their limits"
        kept += f", {found.refused} were refused" if found.refused else ""
        kept += f", {found.failed} failed" if found.failed else ""
        if not found.hurts:
            if not found.offered and self.left_out:
                return "Nothing is known to hurt: no request with a limit was answered or late."
            if not found.offered and not found.by_rows:
                return "Nothing is known to hurt: no request ended between the two looks."
            if not found.offered:
                return "Nothing hurts: no request has a limit that it could miss."
            if found.attainment < KEPT:
                few = f"fewer than {found.few} that did not may be chance"
                return f"Nothing is known to hurt: {kept}, and {few}."
            return f"Nothing hurts: {kept}, {found.missed} missed one. {share(KEPT)} are enough."
        if (first := found.first) and not found.by_rows:
            return f"Likely cause: {first.cause}, as far as counters show; {kept}."
        if first:
            return (
                f"Likely cause: {first.cause}. It explains {share(first.score)} of the "
                f"{found.missed} misses; {kept}."
            )
        if found.missed < found.few:
            return f"It hurts: {kept}."
        return (
            f"It hurts, and no cause explains {share(NAMED)} of the {found.missed} misses; {kept}."
        )

    @property
    def left_out(self) -> str:
        """The requests that are not counted, in words."""
        found = self.diagnosis
        parts = [
            f"{found.cancelled} cancelled before their first token" if found.cancelled else "",
            f"{found.unfinished} that had not ended when the run did" if found.unfinished else "",
        ]
        said = " and ".join(filter(None, parts))
        return f"Not counted: {said}, none of them known to be late" if said else ""

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("cause", no_wrap=True)
        score = "explains" if self.diagnosis.by_rows else "score"
        table.add_column(score, justify="right", no_wrap=True)
        table.add_column("evidence")
        for each in self.diagnosis.findings[:SHOWN]:
            table.add_row(each.cause, share(each.score), "\n".join(each.evidence))
        return table

    def _print_trial(self, console: Console, first: Finding) -> None:
        console.print()
        if isinstance(self.replay, Replayed) and self.replay.is_worse:
            console.print(Text("No change is advised. The usual one for this cause was replayed."))
        else:
            console.print(Text(f"To try: {first.trial.words}."))
            for line in first.trial.snippet.splitlines():
                console.print(Text(f"    {line}"))
        said = self.replay if isinstance(self.replay, str) else self.replay.words
        console.print(Text(f"Replay: {said}."))

    @property
    def as_json(self) -> dict[str, Any]:
        """The diagnosis as `--json` prints it."""
        found = self.diagnosis
        return {
            "headway_diagnosis": 1,
            "source": found.source,
            "by_rows": found.by_rows,
            "hurts": found.hurts,
            "offered": found.offered,
            "missed": found.missed,
            "refused": found.refused,
            "failed": found.failed,
            "cancelled": found.cancelled,
            "unfinished": found.unfinished,
            "attainment": found.attainment,
            "cause": found.first.cause if found.first else None,
            "findings": [asdict(each) for each in found.findings],
            "replay": self.replay if isinstance(self.replay, str) else _plain(self.replay),
            "simulated": not isinstance(self.replay, str),
            "not_known": [asdict(each) for each in found.not_known],
        }


def _plain(replay: Replayed) -> dict[str, Any]:
    return asdict(replay) | {"is_worse": replay.is_worse}
