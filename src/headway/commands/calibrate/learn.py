"""A cost model of one model on one machine: measured, fitted, and held against other steps."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
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
    LEARNED,
    LOAD,
    SLOWER,
    LiveStep,
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
from headway.traffic.workload import TOKEN_SCALE

SECONDS = 100.0  # of measuring
DESIGNED = 0.5  # of them, for the designed batches
MEETING = 0.05  # for sizes of steps that the designed batches did not have
LEARNING, CHECKING = 0.27, 0.18  # for one trace's traffic to learn from, and for another's

ProgressCallback = Callable[[str, float], object]  # what is being done, and the share of it that is


@dataclass(frozen=True, slots=True)
class Measurements:
    """What a cost model is concluded from."""

    samples: Sequence[Sample]  # of designed batches
    learned: Sequence[LiveStep]
    held_out: Sequence[LiveStep]  # of another trace
    cost: StepCost  # fitted on the samples alone
    slots: int
    threads: int  # of the executor; they stay set
    seed: int
    live: float  # seconds of traffic
    others: float  # cores at work for other processes meanwhile


def calibrate_rig(
    testbed: Testbed,
    kv_bytes: int,
    slots: int = SLOTS,
    threads: int = 0,
    seed: int = 0,
    seconds: float = SECONDS,
    watch: ProgressCallback = lambda phase, share: None,
) -> Calibration:
    """Designed batches, a fit, and a trace's window served live.

    kv_bytes: of KV memory per token. threads: of the executor; 0: one, unless all are much
    quicker. They stay set. Raises HeadwayError where too few steps are done in the time.
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
    """As calibrate_rig says. checking: the share of the time; 0: no steps are held out."""
    others, trials = Neighbours(), Trials(testbed, seed)
    made = designs(slots, testbed.context, testbed.num_blocks, testbed.block_size, seed)
    probes = [
        Design((testbed.context // 8,) * slots),
        Design(prompts=((0, testbed.context // 16),)),
    ]
    if threads:
        testbed.use_threads(threads)
    threads = threads or trials.choose_threads(probes)
    samples = trials.measure(
        made, seconds * DESIGNED, lambda share: watch("designed batches", share)
    )
    cost = replace(fit_steps(samples, testbed.rounding), gathering=testbed.gathering)
    trials.warm_up_sizes(slots + max(CHUNKS), seconds * MEETING)
    live = seconds * LEARNING, seconds * checking

    def steps(trace: str, span: float, done: float) -> list[LiveStep]:
        def told(share: float) -> None:
            watch("live traffic", (done + share * span) / sum(live))

        found = serve_trace(testbed, trace, cost, slots, span, seed, told)
        return check_enough(found, trace, span, others.cores())

    learned = steps(LEARNED, live[0], 0.0)
    held_out = steps(CHECKED, live[1], live[0]) if checking else []
    return Measurements(
        samples, learned, held_out, cost, slots, threads, seed, sum(live), others.cores()
    )


def conclude(testbed: Testbed, kv_bytes: int, found: Measurements) -> Calibration:
    """The cost model of what was measured on this testbed."""
    live_fit = fit_live(found.cost, found.samples, found.learned, found.held_out)
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
        slots=found.slots,
        threads=found.threads,
        about=_about(found, live_fit),
    )


def check_enough(
    found: list[LiveStep], trace: str, span: float, others: float = 0.0
) -> list[LiveStep]:
    """HeadwayError where they are too few to say how far steps spread.

    others: cores at work for other processes meanwhile, the likelier cause where they are some.
    """
    if len(found) < ENOUGH:
        few = f"only {len(found)} steps of {trace} ended in {span:.0f} s, {ENOUGH} are needed"
        if others > NOISY_CORES:
            raise HeadwayError(
                f"other processes kept {others:.1f} cores busy meanwhile, and {few}: calibrate "
                "again when they are done; more seconds help only on a machine left alone"
            )
        raise HeadwayError(f"{few}: give it more seconds with --seconds")
    return found


def _about(found: Measurements, live_fit: LiveFit) -> dict[str, Any]:
    off = [
        abs(live_fit.cost.predict(sample.features) / sample.nanoseconds / live_fit.factor - 1)
        for sample in found.samples
    ]
    about = {
        "headway": __version__,
        "seed": found.seed,
        "designed": {
            "samples": len(found.samples),
            "largest_tokens": max(sample.features.tokens for sample in found.samples),
            "mean_error": round(WHOLE * mean(off)),
        },
        "live": _live(found.live, found.slots),
        "factor": round(live_fit.factor, 4),
        "errors_of_designed_alone": {name: asdict(each) for name, each in live_fit.before.items()},
        "errors": {name: asdict(each) for name, each in live_fit.after.items()},
        CORES_AT_WORK_FOR_OTHERS: round(found.others, 2),
    }
    said = doubt(about)
    return {**about, "doubt": said} if said else about


def _live(seconds: float, slots: int) -> dict[str, Any]:
    return {
        "learned_from": LEARNED,
        "held_against": CHECKED,
        "token_scale": TOKEN_SCALE,
        "seconds": round(seconds, 1),
        "load": LOAD,
        "calm": f"{CALM} arrivals behind {BUSY} others come {SLOWER} times as late",
        "policy": f"continuous, {slots} slots, prompts in chunks of "
        f"{', '.join(map(str, CHUNKS))} tokens in turn",
    }
