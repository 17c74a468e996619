"""What live run and simulation share: a model, its cost model, endpoints with budgets, requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from benchmarks.fidelity.pace import Pace, pace, paced_testbed, split
from benchmarks.fidelity.turns import HaltingClock, Turn, in_turns
from headway.commands.calibrate.learn import Measurements, check_enough, conclude, measure_steps
from headway.commands.calibrate.observe import LEARNED, LiveStep, ObservedRun, observed_trace
from headway.commands.calibrate.validate import with_residuals
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.costing.calibration import Calibration
from headway.costing.request_spec import RequestSpec
from headway.errors import SettingError
from headway.executor.load import VLLM
from headway.figures.lane_figures import lane_figures
from headway.figures.warm_up import requests_after_warm_up
from headway.runs.live_testbed import (
    kv_bytes_per_token,
    load_with,
    make_corpus_testbed,
    make_testbed,
)
from headway.runs.machine_speed import choose_threads, long_request, measure_unloaded, warm_up
from headway.runs.outcome import Outcome
from headway.runs.run import Run
from headway.runs.simulated_testbed import simulated_testbed
from headway.runs.testbed import BLOCK_SIZE, Testbed
from headway.strategies.strategy import SLOTS
from headway.traffic.endpoint import Endpoint
from headway.traffic.prompts import Prompts
from headway.traffic.token_scale import scale_trace
from headway.traffic.trace import read_shipped_trace
from headway.traffic.workload import with_prompts

WARM_UP = 0.1  # of a run's arrivals, left out of the figures
DRAIN = 20_000_000_000  # nanoseconds behind the last arrival, after which the rest is cancelled
CHUNK = 64  # prompt tokens of a step
SEEDS = 4  # simulations of a live run
MOST = 2  # times as long as a live run: what there is to learn from
SMOOTH = 2  # spans: the bell's standard deviation, by which pauses say how fast a moment was
SECOND = 1e9
MS = 1_000_000
# With two steps in flight, one is computed while a run is halted, and seems to take no time. In a
# span of this length there are so many steps that it does not matter.
LONG = 2_000 * MS
TRACES = {"chat": "azure2023-conv", "code": "azure2023-code"}
# Wide enough that saturation breaks them and not the bursts, which come at every rate: else a
# capacity is decided by a handful of requests, and two live searches differ by a fifth.
ENDPOINTS = (
    Endpoint("chat", "answers", TRACES["chat"], priority=0, ttft=20.0, tpot=8.0),
    Endpoint("code", "completions", TRACES["code"], priority=0, ttft=20.0, tpot=8.0),
)
POLICIES = Policies(Continuous(SLOTS), chunk=Fixed(CHUNK), step_tokens=SLOTS + CHUNK)


@dataclass(frozen=True, slots=True)
class Scale:
    """How a model's share of the machine is made affordable. Stated in the report."""

    model: str
    tokens: float  # that the trace's token counts are divided by
    requests: int  # of a run: a window of the traces
    seconds: float  # of calibrating, before anything is compared
    span: int  # nanoseconds that a live run is given at once, and learning between
    rounds: int  # each with a window of its own


SCALES = {
    "tiny": Scale("headway-tiny (embedded)", 16, requests=400, seconds=45, span=250 * MS, rounds=4),
    "half-b": Scale(
        "random weights in the shape of Qwen2.5-0.5B",
        24,
        requests=260,
        seconds=150,  # a step takes a fifth of a second: so long for enough of them
        span=3_000 * MS,
        rounds=2,
    ),
}


@dataclass(frozen=True, slots=True)
class Lived:
    """A run on the machine, and what was learned in its pauses."""

    outcome: Outcome
    window: int  # that was served
    steps: list[LiveStep]
    level: Calibration  # one for the whole run
    pace: Pace
    even: Calibration  # what is left of its residuals beside the pace


@dataclass(frozen=True, slots=True)
class Stage:
    testbed: Testbed
    beside: Testbed  # the same model once more, for learning
    kv_bytes: int  # per token
    first: Measurements  # designed batches, and traffic, before anything is compared
    lanes: tuple[Lane, ...]
    windows: tuple[tuple[Request, ...], ...]  # of each round; the last arrives after one second
    scale: Scale

    def close(self) -> None:
        """End what the executors have started."""
        self.testbed.executor.close()
        self.beside.executor.close()

    def live(self, rate: float, window: int, seed: int) -> Lived:
        """Requests per second, on the machine. seed: of the traffic that is learned from."""
        clock, other = HaltingClock(self.testbed.clock), HaltingClock(self.beside.clock)
        mine = ObservedRun(
            replace(self.testbed, clock=clock),  # which observes steps one by one unless told
            lambda each: self._run(replace(each, depth=self.testbed.depth), rate, window),
        )
        seconds = MOST * (self.scale.requests / rate + DRAIN / SECOND)
        beside, cost = replace(self.beside, clock=other), self.first.cost
        learning = observed_trace(beside, LEARNED, cost, SLOTS, seconds, seed)
        span = self.scale.span
        both = Turn(mine.run.going(), clock, span), Turn(learning.run.going(), other, span)
        ends = in_turns(*both)
        learned = check_enough(learning.steps(), LEARNED, seconds)
        level = self.learned(learned)
        began = mine.run.began, learning.run.began
        pauses = split(learned, [(at - began[0], end - began[1]) for at, end in ends])
        found = pace(level.cost, pauses, SMOOTH * span)
        even = replace(level, cost=with_residuals(level.cost, found.evened(pauses)))
        return Lived(mine.run.outcome(), window, mine.steps(), level, found, even)

    def learned(self, steps: Sequence[LiveStep]) -> Calibration:
        """The designed batches' cost model, at the level and with the spread of these steps."""
        return conclude(self.testbed, self.kv_bytes, replace(self.first, learned=steps))

    def simulated(self, calibration: Calibration, rate: float, window: int, seed: int) -> Outcome:
        """Simulated at one level from beginning to end."""
        return self._run(simulated_testbed(calibration, seed), rate, window).serve()

    def again(self, lived: Lived, rate: float, turn: int, *, paced: bool) -> list[Outcome]:
        """Simulations of a run's window, priced by what was learned in its pauses. The simulations
        of each turn have seeds of their own; otherwise all would share the same luck."""
        seeds = range(SEEDS * turn, SEEDS * (turn + 1))
        if not paced:
            return [self.simulated(lived.level, rate, lived.window, seed) for seed in seeds]
        testbeds = [paced_testbed(lived.even, seed, lived.pace) for seed in seeds]
        return [self._run(testbed, rate, lived.window).serve() for testbed in testbeds]

    def _run(self, testbed: Testbed, rate: float, window: int) -> Run:
        """The same requests at every rate: their arrivals are compressed, none is dropped."""
        requests = self.windows[window]
        seconds = len(requests) / rate
        timed = [replace(each, arrived=round(each.arrived * seconds)) for each in requests]
        limit = round(seconds * SECOND) + DRAIN
        return Run(testbed, POLICIES, self.lanes, timed, limit)

    def counted(self, outcome: Outcome) -> Outcome:
        """The outcome without the requests that arrived in the warm-up."""
        last = max(row.arrived for row in outcome.requests)
        return requests_after_warm_up(outcome, round(WARM_UP * last))

    def attainment(self, outcome: Outcome) -> Mapping[str, float]:
        counted = self.counted(outcome)
        return {lane.name: lane_figures(counted, lane.name).attainment for lane in self.lanes}


def staged(name: str, seed: int, rounds: int, requests: int, executor: str) -> Stage:
    """Loads the model, and measures steps and the unloaded latencies that the budgets are made of.
    rounds, requests: 0: the scale's own. SettingError: the traces have too few requests."""
    scale = SCALES[name]
    scale = replace(scale, rounds=rounds or scale.rounds, requests=requests or scale.requests)
    if executor == VLLM:
        scale = replace(scale, span=LONG)
    made = partial(_tiny, executor) if name == "tiny" else _half_b
    (testbed, bytes_per_token), (beside, _) = made(), made()
    windows = asked(scale, testbed.context)
    asks = list(chain.from_iterable(windows))
    prompts = Prompts(testbed.text, testbed.block_size, seed)
    warm_up(testbed, asks, prompts)
    threads = choose_threads(testbed, asks, prompts)
    unloaded = {
        name: measure_unloaded(testbed, long_request(asks, name, testbed.context), prompts)
        for name in TRACES
    }
    lanes = tuple(each.lane(unloaded) for each in ENDPOINTS)
    # The live runs are the check: nothing else is held out.
    first = measure_steps(beside, SLOTS, threads, seed, scale.seconds, checking=0.0)
    spoken = tuple(with_prompts(window, prompts) for window in windows)
    return Stage(testbed, beside, bytes_per_token, first, lanes, spoken, scale)


def asked(scale: Scale, context: int) -> list[list[RequestSpec]]:
    """Of the traces' shipped window, both together: of each round its own, one behind the other,
    each within one second."""
    both = [
        ask
        for lane, trace in TRACES.items()
        for ask in scale_trace(read_shipped_trace(trace), lane, context, scale.tokens)
    ]
    both.sort(key=lambda ask: ask.at)
    if len(both) < (wanted := scale.rounds * scale.requests):
        raise SettingError(f"the traces have {len(both)} requests, and {wanted} were asked for")
    return [
        _within_a_second(both[at : at + scale.requests]) for at in range(0, wanted, scale.requests)
    ]


def _within_a_second(asks: Sequence[RequestSpec]) -> list[RequestSpec]:
    first, last = asks[0].at, asks[-1].at
    return [replace(ask, at=round((ask.at - first) / (last - first) * SECOND)) for ask in asks]


def _tiny(executor: str) -> tuple[Testbed, int]:
    eager = {"enforce_eager": True} if executor == VLLM else {}
    loaded = load_with(executor, None, SLOTS, options=eager)
    return make_corpus_testbed(loaded, None), kv_bytes_per_token(loaded)


def _half_b() -> tuple[Testbed, int]:
    from headway.costing.datasheet import read_shape as shape_of
    from headway.executor.torch.load import load_random
    from headway.executor.torch.memory.memory_plan import Limits

    context = 1_024
    limits = Limits(SLOTS, SLOTS * context, context, BLOCK_SIZE)
    loaded = load_random(shape_of("qwen2.5-0.5b"), limits)
    return make_testbed(loaded, SCALES["half-b"].model), kv_bytes_per_token(loaded)
