"""Static, dynamic and continuous batching on one engine; and the same, simulated."""

from dataclasses import dataclass, replace
from random import Random

from benchmarks.gpu.shape import Size
from benchmarks.report import Figure
from headway.commands.calibrate.quick import learn_quickly
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.sampling import Sampling
from headway.executor.torch.load import LoadedModel
from headway.figures.engine_figures import engine_figures
from headway.figures.percentile import percentile
from headway.runs.live_testbed import make_testbed
from headway.runs.outcome import Outcome
from headway.runs.run import Run
from headway.runs.shared_executor import SharedExecutor
from headway.runs.testbed import Testbed
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor

LANES, MS, LOAD, CHUNK = [Lane("all")], 1_000_000, 0.8, 512


@dataclass(frozen=True, slots=True)
class Served:
    """A testbed and the requests that every run serves."""

    testbed: Testbed
    size: Size
    requests: tuple[Request, ...]

    @classmethod
    def of(cls, loaded: LoadedModel, size: Size, seed: int) -> "Served":
        """Lengths are drawn evenly on a logarithmic scale."""
        testbed = replace(make_testbed(loaded, size.name), slots=size.slots)
        draw, made = Random(seed), list[Request]()
        for i in range(size.requests):
            prompt = round(2 ** draw.uniform(3, size.most_prompt.bit_length() - 1))
            answer = round(2 ** draw.uniform(2, size.most_answer.bit_length() - 1))
            at = draw.randrange(len(testbed.text) - prompt)
            tokens = tuple(testbed.text[at : at + prompt])
            made.append(Request(f"r{i}", tokens, answer, 0, "all", sampling=Sampling()))
        return cls(testbed, size, tuple(made))

    def policies(self) -> dict[str, Policies]:
        slots = self.size.slots
        whole = Policies(
            Static(slots), mix=PrefillFirst(), chunk=Whole(), step_tokens=8 * self.testbed.context
        )
        return {
            "static": whole,
            "dynamic": replace(whole, join=Dynamic(slots, 50 * MS)),
            "continuous": Policies(
                Continuous(slots), chunk=Fixed(CHUNK), step_tokens=slots + CHUNK
            ),
        }

    def run(self, name: str, testbed: Testbed, rate: float = 0.0, seed: int = 0) -> Outcome:
        """rate: requests a second, with Poisson arrivals; 0: all at once."""
        draw, at, timed = Random(seed), 0.0, list[Request]()
        for request in self.requests:
            at += draw.expovariate(rate) if rate else 0.0
            timed.append(replace(request, arrived=int(at * 1e9)))
        return Run(testbed, self.policies()[name], LANES, timed).serve()

    def strategies(self) -> tuple[list[Figure], float]:
        """Requests a second at saturation; end-to-end times at LOAD of static's capacity. The
        second value is that rate."""
        figures = list[Figure]()
        saturated = {
            name: engine_figures(self.run(name, self.testbed)).requests_per_second
            for name in self.policies()
        }
        figures += [Figure(f"{name}_req_s", [each]) for name, each in saturated.items()]
        rate = LOAD * saturated["static"]
        for name in self.policies():
            ends = [row.e2e for row in self.run(name, self.testbed, rate).requests]
            for share in (50, 99):
                if (value := percentile(ends, share)) is not None:
                    figures.append(Figure(f"{name}_e2e_p{share}_s", [value / 1e9], unit="s"))
        return figures, rate

    def simulated(self, rate: float, seed: int) -> list[Figure]:
        """Calibrate, then serve live and simulate the same arrivals, continuously."""
        learned = learn_quickly(self.testbed, seed, self.size.seconds)
        live = self.run("continuous", self.testbed, rate)
        clock = VirtualClock()
        priced = PricedExecutor(learned.cost, clock, seed=seed)
        virtual = replace(
            self.testbed,
            clock=clock,
            executor=SharedExecutor(priced),
            engine=lambda scheduler, executor, inbox, _: VirtualEngine(
                scheduler, executor, inbox, clock, priced, coasting=True
            ),
            cost=learned.cost,
        )
        told = self.run("continuous", virtual, rate)
        return [
            Figure("calibration_error", [learned.error], unit="of a step"),
            Figure("tpot_error", [_error(live, told, "tpot")], most=0.05),
            Figure("ttft_error", [_error(live, told, "ttft")], most=0.10),
        ]


def _error(live: Outcome, told: Outcome, name: str) -> float:
    """Of the mean over the requests that have this time, relative to the live run's."""
    means = list[float]()
    for outcome in (live, told):
        times = [time for row in outcome.requests if (time := getattr(row, name)) is not None]
        means.append(sum(times) / len(times))
    return abs(means[1] / means[0] - 1)
