"""A rule's answer: a Finding, or why the rule cannot know (NotKnown)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headway.commands.diagnose.circumstances import Circumstances

TOO_FEW = "there is no cost file, and there are too few step rows"
NO_STEPS = "there are no step rows, so what ran in each step is not known; a journal has it"
# How a snippet begins that changes one part of a strategy: pasted alone, it would lose the others.
STRATEGY = "engine:\n  strategy:  # beside its other parts\n"
NAMED = 0.5  # share of the misses that a cause must explain to be named: more likely than not


@dataclass(frozen=True, slots=True)
class Trial:
    """A change to try: a snippet of headway.yaml, and the same change for `headway replay`."""

    snippet: str  # YAML
    words: str  # what the change does, and what it may cost
    strategy: str = ""  # as for `headway replay --strategy`
    sets: Mapping[str, Any] = field(default_factory=dict)  # as for `headway replay --set`
    lanes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # as in headway.yaml

    @property
    def can_be_replayed(self) -> bool:
        """Whether a what-if run can make this change."""
        return bool(self.strategy or self.sets or self.lanes)


@dataclass(frozen=True, slots=True)
class Finding:
    """How many of the missed requests one cause explains.

    score: the share of the missed requests that would have met their limit without the time that
    the cause took. Scores of different causes can be compared, and may sum to more than 1.
    """

    cause: str  # such as "window too long"
    score: float  # 0 to 1
    evidence: tuple[str, ...]  # figures, each with its n and its time in the run
    trial: Trial


@dataclass(frozen=True, slots=True)
class NotKnown:
    """The answer of a rule that needs something the source does not hold."""

    cause: str
    why: str


class Rule(Protocol):
    """A frozen rule that tests the evidence for one cause."""

    @property
    def cause(self) -> str: ...

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """The finding, or why the rule cannot know; None: no sign of the cause in the evidence."""
        ...
