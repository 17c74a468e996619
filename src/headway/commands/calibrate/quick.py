"""A cost model in a few seconds: for a scheduler that predicts, not for a simulation.

It leaves out live traffic, where the host does more, as well as wake-ups and the time between
steps. A scheduler corrects most of that: it measures how its steps drift from their prices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

from headway.commands.calibrate.design import SHORT, Design
from headway.commands.calibrate.fit import fit_steps
from headway.commands.calibrate.trials import Trials
from headway.core.cost.step_cost import WHOLE, Residuals, StepCost
from headway.runs.testbed import Testbed

PROMPTS = (16, 64, 128, 256, 512)  # tokens of a prompt alone
CHUNKS = (32, 64, 128, 256)  # tokens of a prompt beside decodes
QUANTILES = 20  # of the residuals, in addition to the smallest


@dataclass(frozen=True, slots=True)
class QuickCost:
    """A cost model, and how well it predicts the steps it was fitted to."""

    cost: StepCost
    steps: int
    error: float  # mean absolute relative error


def learn_quickly(testbed: Testbed, seed: int, seconds: float) -> QuickCost:
    """Time a few designed batches for `seconds`, each at least once, and fit a cost model.

    Raises SettingError if scipy is missing.
    """
    batches = few_designs(testbed.slots, testbed.context, testbed.num_blocks, testbed.block_size)
    samples = Trials(testbed, seed).measure(batches, seconds, lambda share: None)
    rounding = replace(testbed.rounding, tile=1)  # too few designs to tell a tile from its tokens
    cost = replace(fit_steps(samples, rounding), gathering=testbed.gathering)
    shares = [sample.nanoseconds / max(1, cost.predict(sample.features)) for sample in samples]
    residuals = _residuals(shares)
    return QuickCost(
        replace(cost, residuals=(residuals, residuals)),
        len(samples),
        mean(abs(share - 1) for share in shares),
    )


def few_designs(slots: int, context: int, blocks: int, block_size: int) -> list[Design]:
    """A few designs of up to `slots` rows that fit into the blocks, the smallest first."""
    several = sorted({1, max(1, slots // 4), max(1, slots // 2), slots})
    holds = (SHORT, context // 8, context * 3 // 8)  # tokens
    made = [Design((held,) * count) for count in several for held in holds]
    for length in PROMPTS:
        made.append(Design(prompts=((0, length),)))
        made.append(Design(prompts=((context // 4, length),), unfinished=True))
    made += [Design(prompts=((0, SHORT),) * count) for count in several[1:]]
    for length in CHUNKS:
        for count in (*several[:-1], slots - 1):  # the prompt takes a slot too
            made.append(Design((context // 8,) * count, ((0, length),)))
    fitting = [
        each for each in dict.fromkeys(made) if each.fits(slots, context, blocks, block_size)
    ]
    return sorted(fitting, key=lambda design: design.tokens)


def _residuals(shares: Sequence[float]) -> Residuals:
    """The residuals, as evenly spaced quantiles. shares: measured over predicted times."""
    ordered, last = sorted(shares), len(shares) - 1
    return Residuals(
        tuple(round(WHOLE * ordered[last * k // QUANTILES]) for k in range(QUANTILES + 1))
    )
