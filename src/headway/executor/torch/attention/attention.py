"""The seam of attention: how a step's queries read the keys and values of their rows' past."""

from typing import Protocol

from torch import Tensor

from headway.core.cost.gathering import Gathering
from headway.executor.torch.attention.step_rows import StepRows


class StepAttention(Protocol):
    """Attention of one step; it knows the rows."""

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """Each query's answer: [N, heads, head_dim] -> [N, heads x head_dim].

        The step's keys and values of this layer are in the KV memory. The result depends on the
        query's own row alone, to rounding.
        """
        ...


class Attention(Protocol):
    """Attention over a model's KV memory."""

    @property
    def gathering(self) -> Gathering:
        """How it reads keys for rows of one query: what a step's cost depends on."""
        ...

    def of_step(self, rows: StepRows) -> StepAttention:
        """Prepare what all layers of a step share, once. It never waits for the device."""
        ...
