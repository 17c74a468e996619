"""A formula's answer, with all that one must know before believing it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a formula says. Whoever calls one has its inputs; nothing is simulated here."""

    question: str
    value: float
    unit: str
    formula: str  # in words
    assumes: str
    source: str
    holds: str  # where the tests keep it within 10 % of the simulator, or why it is exact
    outside: str = ""  # why this case is not there; empty: it is


@dataclass(frozen=True, slots=True)
class CheckedEstimate:
    """The same question, asked of the real scheduler in virtual time."""

    estimate: Estimate
    simulated: float | None  # None: it was not asked, and `asked` says why
    asked: str  # how the simulator was asked

    @property
    def difference(self) -> float | None:
        """Of the estimate, as a share of the simulator's answer."""
        return self.estimate.value / self.simulated - 1 if self.simulated else None
