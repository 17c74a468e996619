"""Steps that take the time they would have cost."""

from headway.core.batch import Batch, Output, Want
from headway.core.cost import StepCost, batch_features
from headway.engine import Executor
from headway.sim.clock import VirtualClock


class Filler:
    """Computes nothing and says token 0 wherever one is wanted."""

    def __init__(self) -> None:
        self._outputs: dict[int, Output] = {}

    def submit(self, batch: Batch) -> int:
        self._outputs[batch.step] = Output(
            tuple((0,) if row.want is Want.LAST else () for row in batch.rows)
        )
        return batch.step

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket)


class PricedExecutor:
    """Charges the clock what the cost model predicts; the tokens are another executor's."""

    def __init__(
        self, cost: StepCost, clock: VirtualClock, executor: Executor | None = None
    ) -> None:
        self.cost, self.clock, self.executor = cost, clock, executor or Filler()

    def submit(self, batch: Batch) -> int:
        self.clock.advance_to(self.clock.now() + self.cost.predict(batch_features(batch)))
        return self.executor.submit(batch)

    def collect(self, ticket: int) -> Output:
        return self.executor.collect(ticket)
