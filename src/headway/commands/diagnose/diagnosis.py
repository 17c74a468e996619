"""Ask all rules and rank their answers (Diagnosis)."""

from dataclasses import dataclass, replace

from headway.commands.diagnose.causes.batch import BatchTooLarge
from headway.commands.diagnose.causes.budget import MisSetBudget
from headway.commands.diagnose.causes.cache import ColdCache
from headway.commands.diagnose.causes.client import SlowClient
from headway.commands.diagnose.causes.grammar import GrammarCompile
from headway.commands.diagnose.causes.machine import DriftOfTheMachine, NoisyNeighbour
from headway.commands.diagnose.causes.memory import KvThrash
from headway.commands.diagnose.causes.prompts import LongPromptsBlocking
from headway.commands.diagnose.causes.starvation import SlotStarvation
from headway.commands.diagnose.causes.traffic import Burst, Overload
from headway.commands.diagnose.causes.window import WindowTooLong
from headway.commands.diagnose.circumstances import circumstances
from headway.commands.diagnose.evidence import Evidence
from headway.commands.diagnose.finding import NAMED, Finding, NotKnown, Rule
from headway.commands.diagnose.missed import FAILED, LOST
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish

# If two causes explain equally much, the earlier one is named. Causes that no other cause can
# produce come first. Causes that anything slowing the engine can produce come last.
RULES: tuple[Rule, ...] = (
    MisSetBudget(),
    GrammarCompile(),
    SlowClient(),
    DriftOfTheMachine(),
    NoisyNeighbour(),
    WindowTooLong(),
    ColdCache(),
    KvThrash(),
    SlotStarvation(),
    LongPromptsBlocking(),
    BatchTooLarge(),
    Burst(),
    Overload(),
)
OF_TRAFFIC = ("burst", "overload")  # causes outside the system
KEPT = 0.95  # attainment that counts as healthy
FEW = 5  # missed requests: with fewer, a cause would be guessed from chance


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """How many requests missed their limits, and the causes, likeliest first."""

    source: str
    offered: int  # requests with a limit, or with a known client, and all that missed or failed
    missed: int
    refused: int
    failed: int
    findings: tuple[Finding, ...]  # ranked; empty if nothing hurts, or nothing explains it
    not_known: tuple[NotKnown, ...]
    few: int = FEW  # least number of missed, refused and failed requests for which it hurts
    by_rows: bool = True  # False: from counters, so scores are not shares of the missed requests
    # Not among the offered, because it is not known whether they would have been in time:
    cancelled: int = 0  # before their first token
    unfinished: int = 0  # when the run ended

    @property
    def attainment(self) -> float:
        """Share of the offered requests that missed nothing and were not refused."""
        lost = self.missed + self.refused + self.failed
        return 1 - lost / self.offered if self.offered else 1.0

    @property
    def hurts(self) -> bool:
        """Whether there is anything to explain."""
        lost = self.missed + self.refused + self.failed
        return lost >= self.few and self.attainment < KEPT

    @property
    def first(self) -> Finding | None:
        """The likely cause; None: nothing hurts, or no cause explains half of it."""
        if self.findings and self.findings[0].score >= NAMED:
            return self.findings[0]
        return None


def diagnose(evidence: Evidence) -> Diagnosis:
    """Ask every rule. A pure function of the evidence."""
    case = circumstances(evidence)
    missed = {each.row.id for each in case.missed}
    limited = [
        row
        for row in evidence.requests
        if row.budget.is_timed or evidence.client_waits or row.id in missed or row.finish in LOST
    ]
    cancelled = [row for row in limited if _left_early(row) and row.id not in missed]
    unfinished = [row for row in limited if not row.finish and row.id not in missed]
    left_out = {row.id for row in (*cancelled, *unfinished)}
    counted = [row for row in limited if row.id not in left_out]
    answers = [rule.ask(case) for rule in RULES]
    found = [each for each in answers if isinstance(each, Finding)]
    made = Diagnosis(
        evidence.source,
        len(counted),
        len(case.missed),
        sum(row.finish is Finish.REFUSED for row in counted),
        sum(row.finish in FAILED for row in counted),
        tuple(sorted(found, key=_rank)),
        tuple([each for each in answers if isinstance(each, NotKnown)]),
        cancelled=len(cancelled),
        unfinished=len(unfinished) + evidence.unfinished,
    )
    return made if made.hurts and made.missed >= made.few else replace(made, findings=())


def _left_early(row: RequestRow) -> bool:
    return row.finish is Finish.CANCELLED and row.first_token == NEVER


def _rank(finding: Finding) -> tuple[bool, float, int]:
    """Sort key: first the causes inside the system that explain half of the misses, because
    traffic alone causes nothing; then the higher score, in steps of a tenth; then the rules' order.
    """
    order = [rule.cause for rule in RULES]
    strong = finding.score >= NAMED and finding.cause not in OF_TRAFFIC
    return not strong, -round(finding.score, 1), order.index(finding.cause)
