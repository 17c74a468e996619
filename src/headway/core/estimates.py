"""What was learned while serving. Only commit changes it, so a replay learns the same."""

from headway.core.batch import Batch
from headway.core.cost import KNOWN, Features, StepCost, batch_features

EVERY = 16  # one step of so many is looked at: pricing each would cost a tenth of deciding it
SLOWNESS = 32  # looks in which most of a change is followed: half a thousand steps
LEAST, MOST = 500_000, 2_000_000  # millionths: beyond, the model is wrong and has not drifted


class Estimates:
    """The cost model's correction: a machine that grows warm, or gets a neighbour.

    An exponential mean of measured over predicted, slow, so that no burst of slow steps moves
    it far, and bounded, so that nothing that is not a drift is ever called one.
    """

    def __init__(self, cost: StepCost) -> None:
        self.cost = cost
        self._drift = 1_000_000  # millionths
        self._is_known = cost.is_known

    @property
    def drift(self) -> int:
        """Thousandths that steps take of what the cost model says."""
        return self._drift // (1_000_000 // KNOWN)

    def looks_at(self, step: int) -> bool:
        return self._is_known and step % EVERY == 0

    def see(self, batch: Batch, nanoseconds: int) -> None:
        """A step that has taken so long, if it is one of those to be looked at."""
        if self.looks_at(batch.step):
            self.learn(batch_features(batch), nanoseconds)

    def learn(self, features: Features, nanoseconds: int) -> None:
        """Such a step has taken so long."""
        seen = nanoseconds * 1_000_000 // max(1, self.cost.predict(features))
        seen = min(MOST, max(LEAST, seen))
        self._drift += (seen - self._drift) // SLOWNESS

    def predict(self, features: Features) -> int:
        """Nanoseconds of a step, as things are now."""
        return self.cost.predict(features) * self._drift // 1_000_000
