"""A formula's estimate with its assumptions, and the simulator's answer beside it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A formula's answer to one question, with its basis."""

    question: str
    value: float
    unit: str
    formula: str  # in words
    assumes: str
    source: str  # the paper or law
    holds: str  # where the tests keep it within 10 % of the simulator, or why it is exact
    outside: str = ""  # why this case is outside that range; empty: it is inside


@dataclass(frozen=True, slots=True)
class CheckedEstimate:
    """An estimate, and the real scheduler's answer in virtual time."""

    estimate: Estimate
    simulated: float | None  # in the estimate's unit; None: not simulated, and `method` says why
    method: str  # how it was simulated

    @property
    def difference(self) -> float | None:
        """The estimate's signed error, as a share of the simulator's answer; None: unknown."""
        return self.estimate.value / self.simulated - 1 if self.simulated else None
