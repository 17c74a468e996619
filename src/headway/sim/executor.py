"""Steps that take the time they would have cost."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count, repeat

from headway.core.batch import Batch, Output, Want
from headway.core.cost.features import Features, batch_features
from headway.core.cost.step_cost import WHOLE, Rates, StepCost
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
        self._prompted = False  # the last step had prompts
        self._has_host = (cost.host, cost.after) != (Rates(), Rates())
        self._host = 0  # nanoseconds of the latest step
        self._behind = 0

    def submit(self, batch: Batch) -> int:
        """The host's time behind the step is charged by settle, when its output was taken in."""
        cost, now = self.cost, self.clock.now()
        features = batch_features(batch, cost.gathering)
        spent = cost.predict(features) * self.factor(features) // WHOLE
        if self._has_host:
            self._host, self._behind = cost.on_host(features), cost.behind(features)
        more = cost.wake if now > self._ready else self._turning(features)
        self._stepped, self._prompted = True, features.prompts > 0
        self.clock.advance_to(now + spent + more)
        return self.executor.submit(batch)

    def _turning(self, features: Features) -> int:
        """Nanoseconds more for a step that begins where the last one ended."""
        return self.cost.turn if self._prompted and not features.prompts else 0

    def factor(self, features: Features) -> int:
        """Thousandths of its price that the next step takes. Of skipped steps it is not asked:
        whoever overrides it takes every step by itself."""
        if not self._noise:
            return WHOLE
        return self._noise.next(self.clock.now(), self.cost.regime(features))

    def glide(
        self, steps: int, features: Callable[[int], Features], until: int
    ) -> list[tuple[int, int, int]]:
        """Take so many steps at once, settled too, but none that begins at `until` or later.
        The engine has not slept before the first: somebody runs.

        features: of one of them, from 1 on; their tokens are as many, and where rows are not
        padded, the same is added from each to the next. Of each, when it began, its nanoseconds and
        those of its host.
        """
        cost, now, taken = self.cost, self.clock.now(), list[tuple[int, int, int]]()
        padded = bool(cost.gathering.at_once)
        known = [features(step) for step in range(1, 1 + (steps if padded else 2))]

        def prices(price: Callable[[Features], int]) -> Iterable[int]:
            return map(price, known) if padded else _even(price, *known)

        spents = prices(cost.picoseconds)
        hosts, behinds = (
            prices(rates.of) if self._has_host else repeat(0) for rates in (cost.host, cost.after)
        )
        noise, regime, more = self._noise, cost.regime(known[0]), self._turning(known[0])
        for _, spent, host, behind in zip(range(steps), spents, hosts, behinds, strict=False):
            if now >= until:
                break
            factor = noise.next(now, regime) if noise else WHOLE
            spent = spent // 1_000 * factor // WHOLE + more
            taken.append((now, spent, host // 1_000))
            now += spent + behind // 1_000
            more, self._prompted = 0, False
        self.clock.advance_to(now)
        self._ready = now
        return taken

    def collect(self, ticket: int) -> Output:
        output = self.executor.collect(ticket)
        return replace(output, host=self._host) if self._host else output

    def settle(self) -> None:
        """Charge the clock for what the host does behind a step. Without one the engine slept."""
        if self._stepped:
            if self._behind:
                self.clock.advance_to(self.clock.now() + self._behind)
            self._ready, self._behind, self._stepped = self.clock.now(), 0, False


def _even(price: Callable[[Features], int], first: Features, then: Features) -> Iterator[int]:
    """Prices of steps of which each differs from the one before it as the second from the first."""
    begin = price(first)
    return count(begin, price(then) - begin)
