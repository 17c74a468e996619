"""A tuning (Tuning): what to search, the search, and the check on the held-out windows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rich.console import Console

from headway.commands.compare.compare import CompareOptions, services_of
from headway.commands.simulate.capacity_text import Scope
from headway.commands.simulate.simulated_experiment import noiseless_testbed
from headway.commands.simulate.sweep_point import Job
from headway.commands.simulate.sweep_range import SweepRange, sweep_range
from headway.commands.tune.advice.legal_wait import legal_waits
from headway.commands.tune.advice.rule_of_thumb import rule_of_thumb
from headway.commands.tune.advice.vllm_arguments import vllm_arguments
from headway.commands.tune.candidate import Candidate, first_candidates
from headway.commands.tune.live_check import SHARE, LiveCheck, check_live
from headway.commands.tune.options import TuneOptions
from headway.commands.tune.ranking import Finding
from headway.commands.tune.recommendation import (
    CHOSEN,
    DEFAULT,
    FIRST_COME,
    UNIT,
    Recommendation,
    Setting,
)
from headway.commands.tune.search import Search
from headway.commands.tune.site import Site, prompt_bounds
from headway.commands.tune.trace_windows import split_windows
from headway.commands.tune.trial import Course, Rated
from headway.costing.calibration import Calibration, read_cost_file
from headway.errors import SettingError
from headway.executor.load import TORCH
from headway.models import display_name
from headway.report.formatting import tenths
from headway.runs.machine_speed import MachineSpeed, measure_speed
from headway.runs.process_pool import WorkerPool
from headway.runs.provenance import machine_of, provenance_of
from headway.runs.testbed import Testbed
from headway.strategies.window import Window
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.selection import sample_requests
from headway.yaml_values import number

WINDOWS = 4  # of the traffic: every second one is held out
TUNING, HELD_OUT = (0, 2), (1, 3)
DEFAULTS = {  # baselines: a server that has only its lanes and cost file set, and first-come
    DEFAULT: Candidate("budgets", 32),
    FIRST_COME: Candidate("first-come", 32, 256),
}


@dataclass
class Tuning:
    """What is tuned, and the state of the search."""

    site: Site
    course: Course
    speed: MachineSpeed
    range: SweepRange
    candidates: list[Candidate]
    most_slots: int
    rate: float  # the given rate; 0: the search is for the highest
    long_prompt: int  # tokens, p95
    traffic: str  # in words
    warnings: tuple[str, ...]
    search: Search | None = field(default=None, init=False)

    @property
    def others(self) -> dict[str, Candidate]:
        """The baselines that the lanes allow. Their slots are at most the cost file's, because
        larger batches were not measured."""
        found = {
            name: replace(each, slots=min(each.slots, self.most_slots))
            for name, each in DEFAULTS.items()
        }
        return {name: each for name, each in found.items() if self.site.allows(each)}

    def run(self, pool: WorkerPool, console: Console) -> Recommendation:
        """Search, and check the best on the held-out windows.

        Raises SettingError if no candidate keeps every lane.
        """
        self.search = search = Search(
            self.site, self.course, TUNING, self.range, self.most_slots, pool, console
        )
        if self.rate:
            search.least_cost(self.candidates, list(self.others.values()), self.rate)
        else:
            search.highest_rate(self.candidates, list(self.others.values()))
        best = search.best
        if best is None or not best.rated.rate:
            raise SettingError(self._nothing(best))
        checked = {CHOSEN: best.candidate, **self.others}
        unique = list(dict.fromkeys(checked.values()))
        held = self._held_out(search, unique, best.rated.rate)
        return self._recommended(best, {name: held[each] for name, each in checked.items()})

    def _held_out(
        self, search: Search, candidates: Sequence[Candidate], rate: float
    ) -> dict[Candidate, Rated]:
        if self.rate:
            scores = search.scores(candidates, self.rate, HELD_OUT)
            return {each: Rated.of(score) for each, score in scores.items()}
        found = search.capacities(candidates, HELD_OUT, rate / 2)
        return {each.candidate: each.rated for each in found}

    def live_candidates(self, found: Recommendation) -> dict[str, Candidate]:
        """What the live model serves: the recommended settings, and one baseline that differs."""
        others = {name: self.others[name] for name in (FIRST_COME, DEFAULT) if name in self.others}
        other = [name for name, each in others.items() if each != found.candidate][:1]
        return {CHOSEN: found.candidate, **{name: others[name] for name in other}}

    def checked_live(self, found: Recommendation, live: Testbed, console: Console) -> LiveCheck:
        """Serve a held-out window on the live testbed, at the given rate or below the capacity."""
        rate = self.rate or SHARE * found.evidence.rate
        candidates, trial = self.live_candidates(found), (rate, HELD_OUT[0])
        return check_live(live, self.course, self.site, candidates, trial, console)

    def so_far(self) -> Recommendation | None:
        """The best of an interrupted search; None: no candidate is known to keep every lane."""
        best = self.search.best if self.search else None
        return self._recommended(best, {}) if best and best.rated.rate else None

    def _recommended(self, best: Finding, held: dict[str, Rated]) -> Recommendation:
        calibration = self.course.calibration
        origin = provenance_of(calibration)
        kind = "computed from data sheets" if calibration.analytical else "measured"
        seconds = self.course.requests / max(best.rated.rate, 1e-9)
        config = self.site.config(best.candidate)
        found = held.get(CHOSEN, best.rated)
        return Recommendation(
            setting=Setting(
                about=f"Simulated: {calibration.model} in {calibration.dtype} on "
                f"{machine_of(origin)}, step times {kind}",
                traffic=self.traffic,
                seed=self.course.seed,
                rate=self.rate,
                requests=self.course.requests,
                scope=Scope(UNIT, seconds, self.range.end, trace_ends=True),
                warnings=(*self.warnings, *self.site.unused_windows(best.candidate)),
            ),
            candidate=best.candidate,
            tuned=best.rated,
            plain=self.site.plain(best.candidate),
            vllm=vllm_arguments(config),
            rule=rule_of_thumb(self.site.lanes, self.long_prompt, self.speed.token_cost),
            waits=tuple(legal_waits(config.core_lanes, self.speed.unloaded, found.score.step)),
            held=held,
            others=self.others,
            simulated=self.search.simulated if self.search else 0,
        )

    def _nothing(self, best: Finding | None) -> str:
        """Why there is no recommendation."""
        if best is None:
            return "no settings can be tried with these lanes"
        score = best.rated.score
        lane = min(score.attainment, key=lambda name: score.attainment[name], default="")
        kept = tenths(score.attainment[lane]) if lane else "nothing"
        end = "lower --rate, or leave it out" if self.rate else "loosen that lane's budget"
        return (
            f"no settings keep every lane: at {score.rate:.3g} {UNIT} the best "
            f"({best.candidate.text}) keeps {kept} of {lane or 'any lane'}; {end}"
        )


def prepare_tuning(options: TuneOptions) -> Tuning:
    """Read and check everything. Raises SettingError for what cannot be tuned."""
    calibration = _calibration(options)
    services = _services(options)
    windows = split_windows(services, WINDOWS, options.requests)
    testbed = noiseless_testbed(calibration)
    sample = sample_requests(services, options.seed, testbed.context)
    speed = measure_speed(testbed, [each.endpoint for each in services], sample, options.seed)
    prompts = sorted(each.prompt for each in sample)
    site = _site(options, calibration, services, speed, prompts)
    most = calibration.slots
    first = first_candidates(most, calibration.context, len(services))
    allowed = list(dict.fromkeys(site.reduced(each) for each in first if site.allows(each)))
    if not allowed:
        site.config(first[0])  # says why
    course = Course(
        calibration,
        tuple(map(tuple, windows)),
        speed.token_cost,
        options.requests,
        options.seed,
        any(each.can_enforce for each in services),
    )
    return Tuning(
        site=site,
        course=course,
        speed=speed,
        range=_range(options, calibration, windows[0]),
        candidates=allowed,
        most_slots=most,
        rate=options.rate,
        long_prompt=prompts[-(-len(prompts) * 95 // 100) - 1],
        traffic=_traffic(windows),
        warnings=_warnings(calibration),
    )


def _calibration(options: TuneOptions) -> Calibration:
    for name in ("rate", "token_scale"):
        number(getattr(options, name), f"--{name.replace('_', '-')}")
    calibration = read_cost_file(options.cost)
    if options.model is not None:
        calibration.check_model(display_name(options.model))
    if not calibration.cost.is_known:
        raise SettingError("the cost file holds no step times: run headway calibrate again")
    return calibration


def _services(options: TuneOptions) -> list[EndpointTraffic]:
    given = CompareOptions(
        traces=options.traces, lanes=options.lanes, token_scale=options.token_scale
    )
    if options.lanes is None and not options.traces:
        raise SettingError("give --lanes, endpoints with their budgets and traces, or --trace")
    services = services_of(given)
    name = options.lanes.name if options.lanes else "the traces"
    if all(each.endpoint.is_offline for each in services):
        raise SettingError(
            f"no lane of {name} has a budget, so every setting keeps it: give one a ttft, tpot, "
            "e2e or queue limit"
        )
    return services


def _site(
    options: TuneOptions,
    calibration: Calibration,
    services: Sequence[EndpointTraffic],
    speed: MachineSpeed,
    prompts: Sequence[int],
) -> Site:
    embedded = calibration.model == display_name(None)
    return Site(
        lanes=tuple(each.endpoint.lane(speed.unloaded) for each in services),
        windows={each.name: each.window for each in services if each.window != Window()},
        bounds=prompt_bounds(prompts),
        context=calibration.context,
        block_size=calibration.block_size,
        cost=str(options.cost),
        model="" if embedded else options.model or calibration.model,
        dtype="" if calibration.analytical else calibration.dtype,
        executor=calibration.executor,
        threads=_threads(calibration),
    )


def _threads(calibration: Calibration) -> int:
    """The threads that the step times hold for; 0: they are not set, or hold for any number."""
    is_set = calibration.executor == TORCH and calibration.device == "cpu"
    return calibration.threads if is_set and not calibration.analytical else 0


def _range(
    options: TuneOptions, calibration: Calibration, window: list[EndpointTraffic]
) -> SweepRange:
    """The rates to search. Raises SettingError as sweep_range does."""
    times = [
        each.source.arrivals[-1].at for each in window if isinstance(each.source, RecordedTrace)
    ]
    seconds = max(times, default=0) / 1e9 or 60.0
    given = CompareOptions(seconds=max(1.0, seconds), seed=options.seed)
    return sweep_range(Job(given, calibration, "rate"), window)


def _traffic(windows: Sequence[Sequence[EndpointTraffic]]) -> str:
    """The endpoints and their windows, in words."""
    parts = []
    for each in windows[0]:
        source = each.source
        if isinstance(source, RecordedTrace):
            parts.append(f"{each.name} ({source.name}, {len(source.arrivals):,} requests a window)")
        else:
            parts.append(f"{each.name} (drawn)")
    return (
        f"Traffic: {', '.join(parts)}; {len(TUNING)} windows to choose by, {len(HELD_OUT)} held out"
    )


def _warnings(calibration: Calibration) -> tuple[str, ...]:
    said = [f"The cost file is unreliable: {doubt}"] if (doubt := calibration.doubt) else []
    return tuple(said)
