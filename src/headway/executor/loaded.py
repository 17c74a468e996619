"""What every executor's `load` returns (Loaded): the executor, and what its user needs to know."""

from pathlib import Path
from typing import Protocol

from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import Rounding, StepCost
from headway.core.lane import Lane
from headway.core.policies.policies import Policies
from headway.core.settings import Settings
from headway.engine import Executor


class Plan(Protocol):
    """Where the memory went. Sizes in bytes. str() is one line for people."""

    @property
    def weights(self) -> int: ...
    @property
    def per_block(self) -> int:
        """KV of all layers."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        ...

    @property
    def num_blocks(self) -> int:
        """Blocks that can be handed out; the scratch block comes on top."""
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
        """For people, in lines of less than 80 characters."""
        ...


class Loaded(Protocol):
    """A model that is ready to compute."""

    @property
    def executor(self) -> Executor: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def folder(self) -> Path:
        """The checkpoint's, tokenizer included; empty: random weights."""
        ...

    @property
    def dtype(self) -> str:
        """The dtype that it computes in."""
        ...

    @property
    def device(self) -> str: ...
    @property
    def vocab(self) -> int:
        """Width of the logits."""
        ...

    @property
    def eos(self) -> frozenset[int]:
        """The tokens that end its answers."""
        ...

    @property
    def threads(self) -> int:
        """Threads that it computes with and keeps; 0: `executor.torch.threads` sets them."""
        ...

    @property
    def rounding(self) -> Rounding:
        """How it rounds up a step's tokens."""
        ...

    @property
    def gathering(self) -> Gathering:
        """How it reads keys and values."""
        ...


def settings_of(
    loaded: Loaded, lanes: tuple[Lane, ...], policies: Policies, cost: StepCost = StepCost()
) -> Settings:
    """Settings for a scheduler of this executor. cost: the steps' cost model, if any.

    Raises SettingError for what the executor lacks, or for settings that do not go together.
    """
    plan = loaded.plan
    traits = loaded.executor.traits
    memory = plan.num_blocks, plan.block_size
    made = Settings(*memory, lanes, policies, plan.context, cost, traits.steps_in_flight)
    traits.check(made)
    return made
