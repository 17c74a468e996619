"""An executor whose steps take the time that the cost model predicts (PricedExecutor)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count, repeat
from typing import NamedTuple

from headway.core.batch import Batch, Output, Want
from headway.core.cost.features import Features, batch_features
from headway.core.cost.step_cost import WHOLE, Rates, StepCost
from headway.core.request import NEVER
from headway.engine import Executor
from headway.executor.forwarding import Forwarding
from headway.executor.traits import Traits
from headway.sim.clock import VirtualClock
from headway.sim.noise import Noise

SAYS = Want.LAST, Want.LAST | Want.PROMPT


class Filler(Executor):
    """Compute nothing: every token that a row wants is 0."""

    traits = Traits(steps_in_flight=NEVER)

    def __init__(self) -> None:
        self._outputs: dict[int, Output] = {}

    def submit(self, batch: Batch) -> int:
        says = [(0,) if row.want in SAYS else () for row in batch.rows]
        self._outputs[batch.step] = Output(tuple(says))
        return batch.step

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket)


class _PricedStep(NamedTuple):
    end: int  # when the step's output is ready
    host: int  # nanoseconds of the step in which the device waits for the host
    behind: int  # nanoseconds of host work after the step


class PricedExecutor(Forwarding):
    """Advance the clock by the predicted time of each step. Another executor makes the tokens.

    seed: for the random residuals of the step times; None: each step takes exactly its price.
    """

    def __init__(
        self,
        cost: StepCost,
        clock: VirtualClock,
        executor: Executor | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(executor or Filler())
        self.cost, self.clock = cost, clock
        self._noise = None if seed is None else Noise(cost, seed)
        self._ready = 0  # when the host had finished the last step
        self._stepped = False  # whether a step came back since then
        self._slept, self._since = 0, NEVER  # nanoseconds of the last sleep, and steps since then
        self._prompted = False  # whether the last step had prompts
        self._has_host = (cost.host, cost.after) != (Rates(), Rates())
        self._steps: dict[int, _PricedStep] = {}  # in flight, by ticket
        self._behind = 0  # nanoseconds of host work after the step that came back last

    def submit(self, batch: Batch) -> int:
        """Begin a step. If another step is in flight, this step's host part overlaps with it, and
        its device part starts as soon as the device is free."""
        cost, now = self.cost, self.clock.now()
        features = batch_features(batch, cost.gathering)
        spent = cost.predict(features) * self.factor(features) // WHOLE
        host = behind = 0
        if self._has_host:
            host, behind = cost.on_host(features), cost.behind(features)
        if self._steps:
            self.clock.advance_to(now + host)
            begins = max(now + host, *[step.end for step in self._steps.values()])
            end = begins + max(0, spent - host) + self._more(features)
            host = 0
        else:
            if now > self._ready:
                self._slept, self._since = now - self._ready, 0
            end = now + spent + self._more(features)
        ticket = self.executor.submit(batch)
        self._steps[ticket] = _PricedStep(end, host, behind)
        return ticket

    def _more(self, features: Features) -> int:
        """Extra nanoseconds of the next step because of what came before it.

        Each call counts as one step.
        """
        turned = self._prompted and not features.prompts
        more = self.cost.more(self._slept, self._since, turned)
        self._prompted = features.prompts > 0
        self._since += 1
        return more

    def factor(self, features: Features) -> int:
        """How long the next step takes, in thousandths of its price.

        `glide` does not call this method, so a subclass that overrides it must not coast.
        """
        if not self._noise:
            return WHOLE
        return self._noise.next(self.clock.now(), self.cost.regime(features))

    def glide(
        self,
        steps: int,
        features: Callable[[int], Features],
        until: int,
        has_time: Callable[[int, int], bool],
    ) -> list[tuple[int, int, int]]:
        """Take up to this many steps at once, each with the host time after it. Stop before a step
        that would begin at `until` or later, or that has no time for all its rows. The engine did
        not sleep before the first step.

        features: the features of step 1, 2 ... All steps have the same number of tokens. If rows
        are not padded, the features grow by the same amount with each step. has_time: whether
        step n has time for all its rows if it begins at this time.

        Returns, for each step, when it began, its nanoseconds, and the host's share of them.
        """
        cost, now = self.cost, self.clock.now()
        taken: list[tuple[int, int, int]] = []
        padded = bool(cost.gathering.at_once)
        known = [features(step) for step in range(1, 1 + (steps if padded else 2))]

        def prices(price: Callable[[Features], int]) -> Iterable[int]:
            return map(price, known) if padded else _even(price, *known)

        spents = prices(cost.picoseconds)
        hosts, behinds = (
            prices(rates.of) if self._has_host else repeat(0) for rates in (cost.host, cost.after)
        )
        noise, regime, woken = self._noise, cost.regime(known[0]), len(cost.wake_tail)
        numbers = range(1, 1 + steps)
        for step, spent, host, behind in zip(numbers, spents, hosts, behinds, strict=False):
            if now >= until or not has_time(step, now):
                break
            factor = noise.next(now, regime) if noise else WHOLE
            spent = spent // 1_000 * factor // WHOLE
            if self._prompted or self._since <= woken:
                spent += self._more(known[0])
            taken.append((now, spent, host // 1_000))
            now += spent + behind // 1_000
        self.clock.advance_to(now)
        self._ready = now
        return taken

    def collect(self, ticket: int) -> Output:
        """Advance the clock to the step's end and return its output. `settle` charges the host
        time after the step, once the engine has committed the output."""
        step, output = self._steps.pop(ticket), self.executor.collect(ticket)
        self.clock.advance_to(max(self.clock.now(), step.end))
        self._behind, self._stepped = step.behind, True
        return replace(output, host=step.host) if step.host else output

    def settle(self) -> None:
        """Advance the clock by the host time after a step. No step came back: the engine slept."""
        if self._stepped:
            if self._behind:
                self.clock.advance_to(self.clock.now() + self._behind)
            self._ready, self._behind, self._stepped = self.clock.now(), 0, False


def _even(price: Callable[[Features], int], first: Features, then: Features) -> Iterator[int]:
    """Prices of steps that grow by a constant: the difference between the first two."""
    begin = price(first)
    return count(begin, price(then) - begin)
