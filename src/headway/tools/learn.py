"""A cost model of one model on one machine: measured, fitted, and held against other steps."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

from headway import __version__
from headway.core.cost import KNOWN
from headway.errors import HeadwayError
from headway.tools.calibration import Calibration
from headway.tools.design import Design, designs
from headway.tools.fit import fitted
from headway.tools.machine import Neighbours, machine
from headway.tools.observe import CHUNK, LOAD, TRACE, served
from headway.tools.rig import Rig
from headway.tools.stand import Sample, Stand
from headway.tools.strategy import SLOTS
from headway.tools.validate import Levelled, level
from headway.tools.workload import TOKEN_SCALE

SECONDS = 100.0  # of measuring
DESIGNED = 0.5  # of them, for the designed batches
MEETING = 0.05  # for sizes of steps that the designed batches did not have
LIVE = 1 - DESIGNED - MEETING
FEWEST = 100  # steps of live traffic that a cost model can be held against

Watch = Callable[[str, float], object]  # what is being done, and the share of it that is


def calibrate_rig(
    rig: Rig,
    kv_bytes: int,
    slots: int = SLOTS,
    threads: int = 0,
    seed: int = 0,
    seconds: float = SECONDS,
    watch: Watch = lambda phase, share: None,
) -> Calibration:
    """Designed batches, a fit, and a trace's window served live.

    kv_bytes: of KV memory per token. threads: of the executor; 0: one, unless all are much
    quicker. They stay set. Raises HeadwayError where too few steps are done in the time.
    """
    others, stand = Neighbours(), Stand(rig, seed)
    made = designs(slots, rig.context, rig.num_blocks, rig.block_size, seed)
    probes = [Design((rig.context // 8,) * slots), Design(prompts=((0, rig.context // 16),))]
    if threads:
        rig.use_threads(threads)
    threads = threads or stand.steadiest(probes)
    samples = stand.measure(
        made, seconds * DESIGNED, lambda share: watch("designed batches", share)
    )
    cost = fitted(samples)
    stand.meet(slots + CHUNK, seconds * MEETING)
    live = seconds * LIVE
    steps = served(rig, cost, slots, live, seed, lambda share: watch("live traffic", share))
    if len(steps) < FEWEST:
        raise HeadwayError(
            f"only {len(steps)} steps of live traffic ended in {live:.0f} s: give it more seconds"
        )
    levelled = level(cost, samples, steps)
    return Calibration(
        model=rig.model,
        dtype=rig.dtype,
        device=rig.device,
        machine=machine(),
        analytical=False,
        cost=levelled.cost,
        kv_bytes=kv_bytes,
        num_blocks=rig.num_blocks,
        block_size=rig.block_size,
        context=rig.context,
        slots=slots,
        threads=threads,
        about=_about(samples, levelled, _live(live, slots), seed, others.cores()),
    )


def _about(
    samples: Sequence[Sample], levelled: Levelled, live: dict[str, Any], seed: int, others: float
) -> dict[str, Any]:
    off = [
        abs(levelled.cost.predict(sample.features) / sample.nanoseconds / levelled.factor - 1)
        for sample in samples
    ]
    return {
        "headway": __version__,
        "seed": seed,
        "designed": {
            "samples": len(samples),
            "largest_tokens": max(sample.features.tokens for sample in samples),
            "mean_error": round(KNOWN * mean(off)),
        },
        "live": live,
        "factor": round(levelled.factor, 4),
        "errors_of_designed_alone": {name: asdict(each) for name, each in levelled.before.items()},
        "errors": {name: asdict(each) for name, each in levelled.after.items()},
        "cores_at_work_for_others": round(others, 2),
    }


def _live(seconds: float, slots: int) -> dict[str, Any]:
    return {
        "trace": TRACE,
        "token_scale": TOKEN_SCALE,
        "seconds": round(seconds, 1),
        "load": LOAD,
        "policy": f"continuous, {slots} slots, prompts in chunks of {CHUNK} tokens",
    }
