"""A simulated testbed: virtual time, and steps priced by a cost model."""

from headway.costing.calibration import Calibration
from headway.runs.shared_executor import SharedExecutor
from headway.runs.testbed import Testbed
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.strategies.strategy import SLOTS

TEXT = range(1 << 19)  # the tokens that simulated prompts are cut from


def simulated_testbed(calibration: Calibration, seed: int) -> Testbed:
    """A testbed in virtual time: steps take as long as the cost model says, and compute nothing.

    The slots are those of the cost file if it comes from data sheets, and else those of a live
    comparison. seed: for the steps' residuals. Prompts are cut from ascending numbers, so prompts
    that begin at different places share no block.
    """
    clock = VirtualClock()
    priced = PricedExecutor(calibration.cost, clock, seed=seed)
    kind = "data sheets" if calibration.analytical else "measured steps"
    return Testbed(
        model=calibration.model,
        dtype=calibration.dtype,
        device=calibration.device,
        num_blocks=calibration.num_blocks,
        block_size=calibration.block_size,
        context=calibration.context,
        text=TEXT,
        executor=SharedExecutor(priced),
        clock=clock,
        fit=calibration.fit,
        slots=calibration.slots if calibration.analytical else SLOTS,
        threads=calibration.threads,
        engine=lambda scheduler, executor, inbox, _: VirtualEngine(
            scheduler, executor, inbox, clock, priced, coasting=True
        ),
        depth=calibration.depth,
        simulated=f"a cost model of {kind}",
        cost=calibration.cost,
    )
