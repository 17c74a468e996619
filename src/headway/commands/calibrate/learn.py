"""Calibration of one model on one machine: measure, fit, and check against held-out steps."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import mean
from typing import Any

from headway import __version__
from headway.commands.calibrate.design import Design, designs
from headway.commands.calibrate.fit import fit_steps
from headway.commands.calibrate.observe import (
    BUSY,
    CALM,
    CHECKED,
    CHUNKS,
    FIRST,
    LEARNED,
    LOAD,
    SLOWER,
    LiveStep,
    later,
    serve_trace,
)
from headway.commands.calibrate.trials import Sample, Trials
from headway.commands.calibrate.validate import ENOUGH, LiveFit, fit_live
from headway.core.cost.step_cost import WHOLE, StepCost
from headway.costing.calibration import CORES_AT_WORK_FOR_OTHERS, Calibration, doubt
from headway.costing.machine import NOISY_CORES, Neighbours, describe_machine
from headway.errors import HeadwayError
from headway.runs.testbed import Testbed
from headway.strategies.strategy import SLOTS
from headway.traffic.token_scale import TOKEN_SCALE

SECONDS = 100.0  # of measuring
DESIGNED = 0.5  # share of the seconds for the designed batches
MEETING = 0.05  # share for warming up the step sizes that the designed batches leave out
LEARNING, CHECKING = 0.27, 0.18  # shares for the traffic to learn from, and to check with
MORE = 1.25  # safety factor on the extra traffic, if there were too few steps

ProgressCallback = Callable[[str, float], object]  # the phase, and the share of it that is done


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements that a cost model is fitted to."""

    samples: Sequence[Sample]  # of designed batches
    learned: Sequence[LiveStep]
    held_out: Sequence[LiveStep]  # of another trace, for the errors alone
    cost: StepCost  # fitted to the samples alone
    slots: int
    threads: int  # of the executor, which keeps this number
    seed: int
    live: float  # seconds of traffic
    others: float  # cores that other processes kept busy


def calibrate_testbed(
    testbed: Testbed,
    kv_bytes: int,
    slots: int = SLOTS,
    threads: int = 0,
    seed: int = 0,
    seconds: float = SECONDS,
    watch: ProgressCallback = lambda phase, share: None,
) -> Calibration:
    """Measure designed batches and live traffic, and return the fitted calibration.

    kv_bytes: KV memory per token. threads: of the executor, which keeps this number; 0 takes one,
    or all if all are much faster. seconds: of measuring. Raises HeadwayError if too few steps end
    in that time, SettingError if scipy is missing.
    """
    return conclude(testbed, kv_bytes, measure_steps(testbed, slots, threads, seed, seconds, watch))


def measure_steps(
    testbed: Testbed,
    slots: int,
    threads: int,
    seed: int,
    seconds: float,
    watch: ProgressCallback = lambda phase, share: None,
    *,
    checking: float = CHECKING,
) -> Measurements:
    """Time designed batches and live traffic; parameters and errors as in calibrate_testbed.

    checking: the share of the time for held-out traffic; 0 leaves it out.
    """
    others, trials = Neighbours(), Trials(testbed, seed)
    memory = testbed.context, testbed.num_blocks, testbed.block_size
    batches = designs(slots, *memory, seed, testbed.rounding.tile)
    if not testbed.executor.traits.exclusive_groups:
        batches = [each for each in batches if not each.width]
    probes = [
        Design((testbed.context // 8,) * slots),
        Design(prompts=((0, testbed.context // 16),)),
    ]
    if threads:
        testbed.use_threads(threads)
    threads = threads or trials.choose_threads(probes)
    samples = trials.measure(
        batches, seconds * DESIGNED, lambda share: watch("designed batches", share)
    )
    cost = replace(fit_steps(samples, testbed.rounding), gathering=testbed.gathering)
    trials.warm_up_sizes(slots + max(CHUNKS), seconds * MEETING)
    live = seconds * LEARNING, seconds * checking
    traffic = LiveTraffic(testbed, cost, slots, seed, seconds, others.cores, watch, sum(live))
    learned = traffic.steps(LEARNED, live[0])
    held_out = traffic.steps(CHECKED, live[1]) if checking else []
    return Measurements(
        samples, learned, held_out, cost, slots, threads, seed, traffic.served, others.cores()
    )


@dataclass(slots=True)
class LiveTraffic:
    """Serves traces until there are enough steps, and counts the seconds."""

    testbed: Testbed
    cost: StepCost
    slots: int
    seed: int
    seconds: float  # of the whole measurement; a trace may exceed its span by at most as many
    others: Callable[[], float]  # cores that other processes kept busy so far
    watch: ProgressCallback
    planned: float  # seconds of all traces
    served: float = 0.0

    def steps(self, trace: str, span: float) -> list[LiveStep]:
        """The steps of a window of `span` seconds, and of further windows while they are too few.
        Raises HeadwayError if that would take too long."""
        done = self.served

        def watch_planned(share: float) -> None:
            self.watch("live traffic", (done + share * span) / self.planned)

        steps = self._serve(trace, span, self.seed, watch_planned)
        windows, spent = 1, span
        while len(steps) < ENOUGH and self.others() <= NOISY_CORES:
            more = seconds_more(len(steps), windows, spent)
            if spent + more > span + self.seconds:
                break
            phase = f"{more:.0f} s more of live traffic, for {ENOUGH} steps"
            again = self._serve(trace, more, self.seed + windows, partial(self.watch, phase))
            steps += (later(step, 2 * spent) for step in again)  # keep the windows well apart
            windows, spent = windows + 1, spent + more
        enough = self.seconds * (spent + seconds_more(len(steps), windows, spent)) / span
        return check_enough(steps, trace, spent, self.others(), enough)

    def _serve(
        self, trace: str, span: float, seed: int, watch: Callable[[float], object]
    ) -> list[LiveStep]:
        self.served += span
        return serve_trace(self.testbed, trace, self.cost, self.slots, span, seed, watch)


def seconds_more(count: int, windows: int, span: float) -> float:
    """Seconds of traffic that should bring the missing steps. So far, `windows` windows of `span`
    seconds in all had `count` steps."""
    return MORE * span * (ENOUGH - count + FIRST) / (count + windows * FIRST)


def conclude(testbed: Testbed, kv_bytes: int, measured: Measurements) -> Calibration:
    """The calibration from the measurements on this testbed. kv_bytes: KV memory per token."""
    live_fit = fit_live(measured.cost, measured.samples, measured.learned, measured.held_out)
    return Calibration(
        model=testbed.model,
        dtype=testbed.dtype,
        device=testbed.device,
        machine=describe_machine(),
        analytical=False,
        cost=live_fit.cost,
        kv_bytes=kv_bytes,
        num_blocks=testbed.num_blocks,
        fit=testbed.fit or testbed.num_blocks,
        block_size=testbed.block_size,
        context=testbed.context,
        slots=measured.slots,
        threads=measured.threads,
        executor=testbed.kind,
        depth=testbed.depth,
        about=_about(measured, live_fit),
    )


def check_enough(
    steps: list[LiveStep], trace: str, span: float, others: float = 0.0, enough: float = 0.0
) -> list[LiveStep]:
    """Return the steps. Raise HeadwayError if they are too few to know the spread of step times.

    span: seconds of traffic. others: cores that other processes kept busy; above NOISY_CORES the
    message names them as the likely cause. enough: seconds of measuring that would do; 0: unknown.
    """
    if len(steps) < ENOUGH:
        few = f"only {len(steps)} steps of {trace} ended in {span:.0f} s, {ENOUGH} are needed"
        if others > NOISY_CORES:
            raise HeadwayError(
                f"other processes kept {others:.1f} cores busy, and {few}: calibrate again "
                "when they are done; more seconds help only on an idle machine"
            )
        about = f", about {enough:.0f}" if enough else ""
        raise HeadwayError(f"{few}: measure for more seconds with --seconds{about}")
    return steps


def _about(measured: Measurements, live_fit: LiveFit) -> dict[str, Any]:
    off = [
        abs(live_fit.cost.predict(sample.features) / sample.nanoseconds / live_fit.factor - 1)
        for sample in measured.samples
    ]
    about = {
        "headway": __version__,
        "seed": measured.seed,
        "designed": {
            "samples": len(measured.samples),
            "largest_tokens": max(sample.features.tokens for sample in measured.samples),
            "mean_error": round(WHOLE * mean(off)),
        },
        "live": _live(measured.live, measured.slots),
        "factor": round(live_fit.factor, 4),
        "errors_of_designed_alone": {name: asdict(each) for name, each in live_fit.before.items()},
        "errors": {name: asdict(each) for name, each in live_fit.after.items()},
        CORES_AT_WORK_FOR_OTHERS: round(measured.others, 2),
    }
    reason = doubt(about)
    return {**about, "doubt": reason} if reason else about


def _live(seconds: float, slots: int) -> dict[str, Any]:
    return {
        "learned_from": LEARNED,
        "held_against": CHECKED,
        "token_scale": TOKEN_SCALE,
        "seconds": round(seconds, 1),
        "load": LOAD,
        "calm": f"after {BUSY} arrivals, {CALM} come {SLOWER} times as far apart",
        "policy": f"continuous, {slots} slots, prompts in chunks of "
        f"{', '.join(map(str, CHUNKS))} tokens in turn",
    }
