"""The seam of attention: how a step's queries read the keys and values of their rows."""

from typing import Protocol

from torch import Tensor

from headway.core.cost.gathering import Gathering
from headway.executor.torch.attention.step_rows import StepRows


class StepAttention(Protocol):
    """Attention of one step, prepared for its rows."""

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """Attend with every query: [N, heads, head_dim] -> [N, heads x head_dim].

        The step's keys and values of this layer must already be in the KV memory. Each result
        depends only on the query's own row, to rounding.
        """
        ...


class Attention(Protocol):
    """Attention over a model's KV memory."""

    @property
    def gathering(self) -> Gathering:
        """How keys are read for rows of one query. A step's cost depends on it."""
        ...

    def of_step(self, rows: StepRows) -> StepAttention:
        """Prepare, once, what all layers of a step share. Never waits for the device."""
        ...
