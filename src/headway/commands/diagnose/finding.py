"""What a rule answers: a Finding, or why it cannot know (NotKnown)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headway.commands.diagnose.circumstances import Circumstances

TOO_FEW = "there is no cost file, and there are too few step rows"
NO_STEPS = "there are no step rows, so what ran in each step is not known; a journal has it"
NAMED = 0.5  # of the misses that a cause must explain to be named: more likely than not


@dataclass(frozen=True, slots=True)
class Trial:
    """A change to try: a piece of headway.yaml, and the same for `headway replay`."""

    snippet: str  # YAML
    words: str  # what it does, and what it may cost
    strategy: str = ""  # as `headway replay --strategy`
    sets: Mapping[str, Any] = field(default_factory=dict)  # as `headway replay --set`
    lanes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # as in headway.yaml

    @property
    def can_be_replayed(self) -> bool:
        """Whether a what-if run can make this change."""
        return bool(self.strategy or self.sets or self.lanes)


@dataclass(frozen=True, slots=True)
class Finding:
    """How much of what hurts one cause explains.

    score is the share of the missed requests that would have been inside their limit without the
    time that the cause took. So scores of different causes compare, and may sum to more than 1.
    """

    cause: str  # such as "window too long"
    score: float  # 0 to 1
    evidence: tuple[str, ...]  # figures, each with its n, and where in time
    trial: Trial


@dataclass(frozen=True, slots=True)
class NotKnown:
    """The source does not hold what the rule needs."""

    cause: str
    why: str


class Rule(Protocol):
    """A frozen rule. It answers for one cause."""

    @property
    def cause(self) -> str: ...

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """None: the evidence shows nothing of it."""
        ...
