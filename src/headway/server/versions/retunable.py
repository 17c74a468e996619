"""What a running engine can change to (check_retune)."""

from dataclasses import replace

from headway.core.cost.step_cost import StepCost
from headway.core.policies.chunk import Whole
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.settings import Settings
from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.server.intake.model import Model


def check_retune(engine: Model, base: ServerConfig, config: ServerConfig) -> None:
    """Check that the running engine can change to a configuration. Raises SettingError, by name.

    base: the file's configuration, with which the engine was started and its memory planned.
    """
    load, after = engine.engine.load, policies_of(engine, config)
    started = policies_of(engine, base)
    cost = StepCost.of(1) if base.engine.cost else StepCost()
    blocks, context = load.num_blocks or NEVER, load.capacity or NEVER
    # The file's lanes with the file's policies: those in force may go with theirs alone.
    file = Settings(blocks, base.engine.tokens_per_block, base.core_lanes, started, context, cost)
    file.retuned(after, config.core_lanes, 1)
    engine.vectors.traits.check_policies(after)
    padded = "the tokens of a step, padding included,"
    planned = (
        ("engine.slots", started.slots, after.slots),
        ("engine.step_tokens", started.step_tokens, after.step_tokens),
        (padded, started.cells(context), after.cells(context)),
    )
    for name, most, wanted in planned:
        if wanted > most:
            raise SettingError(
                f"{name} cannot grow to {wanted} while requests are served: the memory was "
                f"planned for {most}. Set it in the file, and restart"
            )


def policies_of(engine: Model, config: ServerConfig) -> Policies:
    """The policies as the engine's process has them: an encoder computes prompts whole."""
    if engine.vectors.traits.splits_prompts:
        return config.policies
    return replace(config.policies, chunk=Whole())
