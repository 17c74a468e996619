"""What was learned while serving. Only commit changes it, so a replay learns the same."""

from collections.abc import Iterable

from headway.core.batch import Batch
from headway.core.cost.features import Features, batch_features
from headway.core.cost.step_cost import WHOLE, StepCost
from headway.core.lane import Line
from headway.core.request import NEVER
from headway.core.sequence import Sequence

EVERY = 16  # one step of so many is looked at: pricing each would cost a tenth of deciding it
SLOWNESS = 32  # looks in which most of a change is followed: half a thousand steps
LEAST, MOST = 500_000, 2_000_000  # millionths: beyond, the model is wrong and has not drifted
DRAIN_DECAY = 32  # steps that start somebody in which most of a drain rate's past is forgotten
PREFILL_DECAY = 32  # requests in which most of what prompts took is forgotten


class Drain:
    """How fast a line empties into the batch: prompt tokens started, over the time in which
    some waited. Both are forgotten at the same pace, so that a long wait weighs what it lasted,
    and only where somebody starts: a line that stands still is not forgotten, it slows down."""

    def __init__(self) -> None:
        self.millitokens = self.nanoseconds = 0  # of whole tokens, a few would never fade
        self._seen = 0  # of those that its line has ever started

    def see(self, line: Line, nanoseconds: int) -> None:
        if new := line.started - self._seen:
            self._seen = line.started
            self.millitokens += 1_000 * new - self.millitokens // DRAIN_DECAY
            self.nanoseconds += nanoseconds - self.nanoseconds // DRAIN_DECAY
        elif line.waiting:
            self.nanoseconds += nanoseconds


class Estimates:
    """The cost model's correction, for a machine that grows warm or gets a neighbour; drain rates;
    how long prompts take once they have started.

    The correction is an exponential mean of measured over predicted, slow, so that no burst of
    slow steps moves it far, and bounded, so that nothing that is not a drift is ever called one.
    """

    def __init__(self, cost: StepCost) -> None:
        self.cost = cost
        self._drift = 1_000_000  # millionths
        self._is_known = cost.is_known
        self._drains: dict[str, Drain] = {}  # by lane
        self._prompts = self._prefills = 0  # millitokens; nanoseconds from start to first token

    @property
    def drift(self) -> int:
        """Thousandths that steps take of what the cost model says; 0: there is none."""
        return self._drift // (1_000_000 // WHOLE) if self._is_known else 0

    def looks_at(self, step: int) -> bool:
        return self._is_known and step % EVERY == 0

    def see(self, batch: Batch, nanoseconds: int) -> None:
        """A step that has taken so long, if it is one of those to be looked at."""
        if self.looks_at(batch.step):
            self.learn(batch_features(batch, self.cost.gathering), nanoseconds)

    def learn(self, features: Features, nanoseconds: int) -> None:
        """Such a step has taken so long."""
        seen = nanoseconds * 1_000_000 // max(1, self.cost.predict(features))
        seen = min(MOST, max(LEAST, seen))
        self._drift += (seen - self._drift) // SLOWNESS

    def drain(self, lines: Iterable[Line], nanoseconds: int) -> None:
        """So long has passed, in one step or in several in which nobody has started."""
        for line in lines:
            self._drains.setdefault(line.lane.name, Drain()).see(line, nanoseconds)

    def drain_rate(self, lane: str) -> float:
        """Prompt tokens that start per second, while some wait; 0: none has yet."""
        drain = self._drains.get(lane)
        return drain.millitokens * 1e6 / max(1, drain.nanoseconds) if drain else 0.0

    def ended(self, sequence: Sequence) -> None:
        """It will say no more. Learned at the end, where a sequence passes once."""
        if sequence.first_token != NEVER:
            spent = sequence.first_token - sequence.first_scheduled
            self._prompts += 1_000 * len(sequence.request.prompt) - self._prompts // PREFILL_DECAY
            self._prefills += spent - self._prefills // PREFILL_DECAY

    @property
    def prefill(self) -> int:
        """Nanoseconds from start to first token, per token of the prompt; 0: not known yet."""
        return 1_000 * self._prefills // max(1, self._prompts)

    def predict(self, features: Features) -> int:
        """Nanoseconds of a step, as things are now."""
        return self.cost.predict(features) * self._drift // 1_000_000
