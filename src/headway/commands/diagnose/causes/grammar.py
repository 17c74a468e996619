"""Did requests wait at intake while a grammar was compiled?"""

from collections.abc import Mapping
from dataclasses import dataclass

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.finding import Finding, NotKnown, Trial
from headway.commands.diagnose.missed import Missed
from headway.report.formatting import duration


@dataclass(frozen=True, slots=True)
class GrammarCompile:
    """Explains a request if its intake took its excess beyond the usual, and overlapped the intake
    of a request with a grammar (its own included). Usual is the median without a grammar."""

    cause: str = "grammar compile"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        evidence, taken = case.evidence, case.evidence.taken
        if not evidence.knows_grammars:
            return NotKnown(self.cause, "who asked for a grammar is not recorded")
        if not taken:
            return NotKnown(self.cause, "when the engine took requests in is not recorded")
        waits = {r.id: taken[r.id] - r.arrived for r in evidence.requests if r.id in taken}
        plain = sorted(wait for id, wait in waits.items() if id not in evidence.with_grammar)
        usual = plain[len(plain) // 2] if plain else 0
        compiled = [r for r in evidence.requests if r.id in evidence.with_grammar and r.id in taken]
        at_door = [(r.arrived, taken[r.id]) for r in compiled]
        explained = [
            each
            for each in case.missed
            if each.row.id in waits
            and case.explains(waits[each.row.id] - usual, each)
            and _beside(each, taken, at_door)
        ]
        if not explained:
            return None
        spent = sorted(waits[row.id] for row in compiled)
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} lost their excess before the engine had them, "
                f"{case.when(explained)}",
                f"with a grammar {duration(spent[len(spent) // 2])} passed until then in the "
                f"median (n = {len(spent)}), without one {duration(usual)} (n = {len(plain)})",
            ),
            Trial(
                "server:\n  limits:\n    grammar_compile: 200ms",
                "A grammar that takes longer is refused. Compiled grammars are kept, so send the "
                "same text each time: no ids or dates in a schema; and make it smaller",
            ),
        )


def _beside(each: Missed, taken: Mapping[str, int], at_door: list[tuple[int, int]]) -> bool:
    begin, end = each.row.arrived, taken[each.row.id]
    return any(came < end and begin < left for came, left in at_door)
