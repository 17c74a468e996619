"""Three mixes of recorded traffic, cut into windows that are offered at any load."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

from headway.core.lane import Budget, Lane
from headway.core.request import Request
from headway.costing.calibration import Calibration
from headway.costing.datasheet import analytical_calibration, read_accelerator, read_shape
from headway.costing.request_spec import RequestSpec
from headway.errors import SettingError
from headway.traffic.arrival_process import ArrivalProcess, Lengths
from headway.traffic.demo_workload import voice_requests
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.trace import Arrival, read_shipped_trace, read_trace

SHARED = Path("../shared/traces")  # beside the project, where they are recorded in full
MODEL, ACCELERATOR = "llama-3.1-8b", "h100-sxm"
MS, SECOND = 1_000_000, 1_000_000_000
SEED = 0
CODE, CONV, LONG = "azure2023-code", "azure2023-conv", "mooncake-conversation"
VOICE_GAP = 5 * SECOND  # mean, at load 1
OFFLINE = ArrivalProcess(Lengths(256, 2_048), Lengths(64, 512), at_once=True)
BACKLOG = 100  # of its requests, at the beginning of a window
WINDOW = 2 / 3  # of the time from the beginning of one window to the next
SHIPPED = CODE, CONV
DAY = 10**6  # seconds: longer than any trace


@dataclass(frozen=True, slots=True)
class Source:
    """Where the traces are, and which window of them is meant."""

    folder: Path | None  # None: those that come with the package
    begin: float = 0.0  # seconds of the trace
    seconds: float = DAY

    def specs(self, trace: str, lane: str, context: int) -> list[RequestSpec]:
        """The requests of a trace in this window, with times from its beginning."""
        recorded = RecordedTrace(arrivals(self.folder, trace), trace, scale=1)
        begin, end = self.begin * SECOND, (self.begin + self.seconds) * SECOND
        timed = [s for s in recorded.specs(lane, SEED, context) if begin <= s.at < end]
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
class Mix:
    """Lanes with budgets, and their recorded traffic."""

    lanes: tuple[Lane, ...]
    traces: tuple[str, ...]
    context: int
    slots: int
    every: float  # seconds from the beginning of one window to that of the next, at most
    make: Callable[[Source, int], list[RequestSpec]]

    def calibration(self) -> Calibration:
        """The data-sheet cost model, and the blocks that the accelerator has room for."""
        return _calibration(self.slots, self.context)

    def windows(self, folder: Path | None, count: int) -> list[Source]:
        """So many windows from the beginning of the traces, with a pause between them."""
        ends = min(arrivals(folder, trace)[-1].at for trace in self.traces) / SECOND
        every = min(self.every, ends / count)
        return [Source(folder, at * every, WINDOW * every) for at in range(count)]

    def requests(self, source: Source, load: float) -> list[Request]:
        """What is offered. A load divides the times of arrival."""
        specs = [replace(s, at=int(s.at / load)) for s in self.make(source, self.context)]
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
    """Tokens that nobody else has, behind the blocks that are recorded as shared."""
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
            Lane("agent", Budget(ttft=15 * SECOND, tpot=100 * MS), 1),
            Lane("batch", Budget(e2e=300 * SECOND), 2),
        ),
        (LONG,),
        context=65_536,
        slots=128,
        every=180.0,
        make=in_turn(LONG, ("chat", "agent", "batch")),
    ),
}
