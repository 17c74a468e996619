"""Steps that take the time they would have cost."""

from dataclasses import replace

from headway.core.batch import Batch, Output, Want
from headway.core.cost import KNOWN, Features, Rates, StepCost, batch_features
from headway.engine import Executor
from headway.sim.clock import VirtualClock
from headway.sim.noise import Noise

SAYS = Want.LAST, Want.LAST | Want.PROMPT


class Filler:
    """Computes nothing and says token 0 wherever one is wanted."""

    def __init__(self) -> None:
        self._outputs: dict[int, Output] = {}

    def submit(self, batch: Batch) -> int:
        says = [(0,) if row.want in SAYS else () for row in batch.rows]
        self._outputs[batch.step] = Output(tuple(says))
        return batch.step

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket)


class PricedExecutor:
    """Charges the clock what the cost model predicts; the tokens are another executor's.

    seed: of the steps' residuals, as they were measured; none: each step takes its price.
    """

    def __init__(
        self,
        cost: StepCost,
        clock: VirtualClock,
        executor: Executor | None = None,
        seed: int | None = None,
    ) -> None:
        self.cost, self.clock, self.executor = cost, clock, executor or Filler()
        self._noise = None if seed is None else Noise(cost, seed)
        self._ready = 0  # when the host was done with the last step
        self._stepped = False  # one was priced since then
        self._has_host = (cost.host, cost.after) != (Rates(), Rates())
        self.host = 0  # nanoseconds of the latest step
        self._behind = 0

    def submit(self, batch: Batch) -> int:
        features = batch_features(batch)
        self.clock.advance_to(self.clock.now() + self.price(batch.step, features))
        return self.executor.submit(batch)

    def price(self, step: int, features: Features) -> int:
        """Nanoseconds of a step that begins now."""
        cost, self._stepped = self.cost, True
        spent = cost.predict(features)
        if self._noise is not None:
            spent = spent * self._noise.at(step, cost.regime(features)) // KNOWN
        if self._has_host:
            self.host, self._behind = cost.on_host(features), cost.behind(features)
        return spent + cost.wake if self.clock.now() > self._ready else spent

    def collect(self, ticket: int) -> Output:
        output = self.executor.collect(ticket)
        return replace(output, host=self.host) if self.host else output

    def settle(self) -> None:
        """Charge the clock for what the host does behind a step. Without one the engine slept."""
        if self._stepped:
            if self._behind:
                self.clock.advance_to(self.clock.now() + self._behind)
            self._ready, self._behind, self._stepped = self.clock.now(), 0, False
