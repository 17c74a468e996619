"""Three mixes of recorded traffic, cut into windows that are offered at any load.

A mix is made for an accelerator's data sheet. A Place puts it onto another machine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path

from headway.core.lane import Budget, Lane
from headway.core.request import NEVER, Request
from headway.costing.calibration import Calibration
from headway.costing.datasheet import analytical_calibration, read_accelerator, read_shape
from headway.costing.request_spec import RequestSpec
from headway.errors import SettingError
from headway.traffic.arrival_process import ArrivalProcess, Lengths
from headway.traffic.demo_workload import voice_requests
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.token_scale import fit_to_context
from headway.traffic.trace import Arrival, read_shipped_trace, read_trace

SHARED = Path("../shared/traces")  # beside the project, where they are recorded in full
MODEL, ACCELERATOR = "llama-3.1-8b", "h100-sxm"
MS, SECOND = 1_000_000, 1_000_000_000
SEED = 0
CODE, CONV, LONG = "azure2023-code", "azure2023-conv", "mooncake-conversation"
SERVEGEN = "servegen-r1-synth"  # drawn from fitted parameters: a model of traffic, no recording
VOICE_GAP = 5 * SECOND  # mean, at load 1
OFFLINE = ArrivalProcess(Lengths(256, 2_048), Lengths(64, 512), at_once=True)
BACKLOG = 100  # of its requests, at the beginning of a window
WINDOW = 2 / 3  # of the time from the beginning of one window to the next
SHIPPED = CODE, CONV
SLOWED = {LONG: 2, SERVEGEN: 16}  # else they alone are more than the machine can bear
DAY = 10**6  # seconds: longer than any trace


@dataclass(frozen=True, slots=True)
class Source:
    """Where the traces are, and which window of them is meant."""

    folder: Path | None  # None: those that come with the package
    begin: float = 0.0  # seconds of the trace
    seconds: float = DAY

    def specs(self, trace: str, lane: str, context: int, times: int = 1) -> list[RequestSpec]:
        """The requests of a trace in this window, with times from its beginning.

        times: the factor by which the trace is slowed; no request is left out for that.
        """
        recorded = RecordedTrace(arrivals(self.folder, trace), trace, scale=1)
        begin, end = self.begin * SECOND, (self.begin + self.seconds) * SECOND
        slow = [replace(spec, at=spec.at * times) for spec in recorded.specs(lane, SEED, context)]
        timed = [spec for spec in slow if begin <= spec.at < end]
        return [replace(spec, at=spec.at - int(begin)) for spec in timed]

    @property
    def seed(self) -> int:
        """Of what is drawn for this window."""
        return int(self.begin)


@cache
def arrivals(folder: Path | None, trace: str) -> Sequence[Arrival]:
    """SettingError where the trace is not there."""
    if folder is None:
        if trace not in SHIPPED:
            raise SettingError(f"{trace} does not come with the package: say where it is")
        return read_shipped_trace(trace)
    return read_trace(folder / f"{trace}.csv.gz")


@dataclass(frozen=True, slots=True)
class Place:
    """Another machine than the data sheet's, and how a mix is made to fit it."""

    priced: Calibration
    scale: float  # token counts are divided by
    pace: float  # times are multiplied by: of arrivals, and of budgets but for the TPOT

    def put(self, spec: RequestSpec) -> RequestSpec:
        """A request as it is offered there."""
        prompt, answer, block = (
            max(1, round(tokens / self.scale)) for tokens in (spec.prompt, spec.answer, spec.block)
        )
        at = int(spec.at * self.pace)
        made = replace(spec, at=at, prompt=prompt, answer=answer, block=block)
        return fit_to_context(made, self.priced.context)

    def judged(self, lane: Lane) -> Lane:
        """A lane with the budget that it has there. A step takes about as long on all machines, so
        the TPOT stays the same."""
        budget = lane.budget
        ttft, e2e = (
            time if time == NEVER else round(time * self.pace) for time in (budget.ttft, budget.e2e)
        )
        return replace(lane, budget=replace(budget, ttft=ttft, e2e=e2e))


@dataclass(frozen=True, slots=True)
class Mix:
    """Lanes with budgets, and their recorded traffic."""

    lanes: tuple[Lane, ...]
    traces: tuple[str, ...]
    context: int
    slots: int
    every: float  # seconds from the beginning of one window to that of the next, at most
    make: Callable[[Source, int], list[RequestSpec]]
    slowed: Mapping[str, int] = field(default_factory=dict)  # how often its time a trace takes
    place: Place | None = None  # None: the accelerator of the data sheet

    def on(self, place: Place | None) -> "Mix":
        """The mix on this machine, with the slots that it has."""
        if not place:
            return self
        lanes = tuple([place.judged(lane) for lane in self.lanes])
        return replace(self, lanes=lanes, slots=place.priced.slots, place=place)

    def calibration(self) -> Calibration:
        """The machine's cost model, and the blocks that it has room for."""
        return self.place.priced if self.place else _calibration(self.slots, self.context)

    def windows(self, folder: Path | None, count: int, is_whole: bool = False) -> list[Source]:
        """The first `count` windows of the traces, with a pause between them.

        is_whole: they cover all of the traces, without a pause.
        """
        last = {trace: arrivals(folder, trace)[-1].at for trace in self.traces}
        ends = min(at * self.slowed.get(trace, 1) for trace, at in last.items()) / SECOND
        if is_whole:
            return [Source(folder, at * ends / count, ends / count) for at in range(count)]
        every = min(self.every, ends / count)
        return [Source(folder, at * every, WINDOW * every) for at in range(count)]

    def specs(self, source: Source) -> list[RequestSpec]:
        """What is offered at load 1, in any order."""
        made = self.make(source, self.context)
        return [self.place.put(spec) for spec in made] if self.place else made

    def requests(self, source: Source, load: float) -> list[Request]:
        """What is offered. A load divides the times of arrival."""
        specs = [replace(spec, at=int(spec.at / load)) for spec in self.specs(source)]
        specs.sort(key=lambda spec: spec.at)
        return [
            Request(f"{spec.lane}-{number}", _prompt(spec, number), spec.answer, spec.at, spec.lane)
            for number, spec in enumerate(specs)
        ]


@cache
def _calibration(slots: int, context: int) -> Calibration:
    shape, sheet = read_shape(MODEL), read_accelerator(ACCELERATOR)
    return analytical_calibration(shape, sheet, MODEL, slots, context)


def _prompt(spec: RequestSpec, number: int) -> tuple[int, ...]:
    """The recorded shared blocks, then tokens that no other prompt has."""
    shared = list[int]()
    for block in spec.blocks:
        shared += [DAY + block] * spec.block
    shared = shared[: spec.prompt]
    return (*shared, *[number + 1] * (spec.prompt - len(shared)))


def _bursty(source: Source, context: int) -> list[RequestSpec]:
    specs = source.specs(CODE, "completion", context)
    for number, spec in enumerate(source.specs(CONV, "chat", context)):
        specs.append(spec if number % 3 else replace(spec, lane="batch"))
    specs += voice_requests(VOICE_GAP, int(source.seconds * SECOND), source.seed)
    specs += islice(OFFLINE.specs("offline", source.seed, context), BACKLOG)
    return [spec if spec.lane != "offline" else replace(spec, at=0) for spec in specs]


def _long(source: Source, context: int) -> list[RequestSpec]:
    lanes = ("chat", "agent", "batch")
    specs = source.specs(LONG, lanes[0], context, SLOWED[LONG])
    specs = [replace(spec, lane=lanes[at % len(lanes)]) for at, spec in enumerate(specs)]
    return [*specs, *source.specs(SERVEGEN, "reasoning", context, SLOWED[SERVEGEN])]


def in_turn(trace: str, lanes: tuple[str, ...]) -> Callable[[Source, int], list[RequestSpec]]:
    """One trace, its requests to these lanes in turn."""

    def make(source: Source, context: int) -> list[RequestSpec]:
        specs = source.specs(trace, lanes[0], context)
        return [replace(spec, lane=lanes[at % len(lanes)]) for at, spec in enumerate(specs)]

    return make


MIXES = {
    "bursty": Mix(
        (
            Lane("voice", Budget(ttft=SECOND // 2, tpot=50 * MS), 0),
            Lane("completion", Budget(ttft=SECOND, tpot=50 * MS), 1),
            Lane("chat", Budget(ttft=3 * SECOND, tpot=80 * MS), 2),
            Lane("batch", Budget(e2e=120 * SECOND), 3),
            Lane("offline", priority=4),
        ),
        (CODE, CONV),
        context=8_192,
        slots=256,
        every=180.0,
        make=_bursty,
    ),
    "smooth": Mix(
        (
            Lane("tight", Budget(ttft=SECOND // 2, tpot=30 * MS), 0),
            Lane("loose", Budget(ttft=2 * SECOND, tpot=80 * MS), 1),
            Lane("batch", Budget(e2e=120 * SECOND), 2),
        ),
        (CONV,),
        context=8_192,
        slots=256,
        every=180.0,
        make=in_turn(CONV, ("tight", "loose", "batch")),
    ),
    "long": Mix(
        (
            Lane("chat", Budget(ttft=5 * SECOND, tpot=50 * MS), 0),
            Lane("reasoning", Budget(ttft=10 * SECOND, tpot=80 * MS), 1),
            Lane("agent", Budget(ttft=15 * SECOND, tpot=100 * MS), 2),
            Lane("batch", Budget(e2e=300 * SECOND), 3),
        ),
        (LONG, SERVEGEN),
        context=65_536,
        slots=128,
        every=300.0,
        make=_long,
        slowed=SLOWED,
    ),
}
