"""What every executor's `load` returns (Loaded): the executor and the facts about it."""

from pathlib import Path
from typing import Protocol

from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import Rounding, StepCost
from headway.core.lane import Lane
from headway.core.policies.policies import Policies
from headway.core.settings import Settings
from headway.engine import Executor


class Plan(Protocol):
    """How the memory is used. Sizes are in bytes. str() is one line for people."""

    @property
    def weights(self) -> int: ...
    @property
    def per_block(self) -> int:
        """KV bytes of a block in all layers."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        ...

    @property
    def num_blocks(self) -> int:
        """Blocks that can be allocated, without the scratch block."""
        ...

    @property
    def fit(self) -> int:
        """Blocks that the memory has room for."""
        ...

    @property
    def context(self) -> int:
        """Tokens that a sequence may hold."""
        ...

    @property
    def summary(self) -> str:
        """The plan for people, in lines of less than 80 characters."""
        ...


class Loaded(Protocol):
    """A model that is ready to compute."""

    @property
    def executor(self) -> Executor: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def folder(self) -> Path:
        """The checkpoint's folder, with the tokenizer; empty: random weights."""
        ...

    @property
    def dtype(self) -> str:
        """The dtype that the model computes in."""
        ...

    @property
    def device(self) -> str: ...
    @property
    def vocab(self) -> int:
        """Width of the logits."""
        ...

    @property
    def eos(self) -> frozenset[int]:
        """The tokens that end the model's answers."""
        ...

    @property
    def threads(self) -> int:
        """Threads that the executor uses and keeps; 0: `executor.torch.threads` sets them."""
        ...

    @property
    def rounding(self) -> Rounding:
        """How the executor rounds up a step's tokens."""
        ...

    @property
    def gathering(self) -> Gathering:
        """How the executor reads keys and values."""
        ...


def settings_of(
    loaded: Loaded, lanes: tuple[Lane, ...], policies: Policies, cost: StepCost = StepCost()
) -> Settings:
    """Settings for a scheduler of this executor. cost: the cost model of the steps, if any.

    Raises SettingError if the executor cannot obey them or if they do not fit together.
    """
    plan = loaded.plan
    traits = loaded.executor.traits
    memory = plan.num_blocks, plan.block_size
    made = Settings(*memory, lanes, policies, plan.context, cost, traits.steps_in_flight)
    traits.check(made)
    return made
