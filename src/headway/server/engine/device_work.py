"""DeviceWork: the estimated work of a step on the device, in bytes to read and FLOP to compute.

The estimates follow from the model's size, not from device counters.
"""

from dataclasses import dataclass

from headway.core.ledger import StepRow
from headway.costing.calibration import Calibration
from headway.costing.datasheet import model_work, read_shape
from headway.errors import HeadwayError
from headway.executor.loaded import Loaded


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """The work of one model on one device. A zero means not known."""

    weights: int = 0  # bytes of the weights; each step reads them once
    block: int = 0  # bytes of a KV block
    num_blocks: int = 0
    token: int = 0  # FLOP per token, in all layers' matrix products
    head: int = 0  # FLOP per row, for its logits
    read_peak: float = 0.0  # measured peak of reading on this device, bytes per second
    products_peak: float = 0.0  # measured peak of matrix products in this dtype, FLOP per second

    def kv_read(self, row: StepRow) -> int:
        """Bytes of keys and values read: an upper bound, every block in use once."""
        return self.block * max(0, self.num_blocks - row.free_blocks)

    def flops(self, row: StepRow) -> int:
        """FLOP of a step, without attention, whose FLOP grow with the context."""
        return self.token * (row.tokens + row.waste_tokens) + self.head * row.rows


def device_work(loaded: Loaded, calibration: Calibration | None) -> DeviceWork:
    """The work by the checkpoint's shape, with the peaks that `headway calibrate --profile`
    measured."""
    plan = loaded.plan
    ceilings = calibration.about.get("profile", {}).get("ceilings", {}) if calibration else {}
    token = head = 0
    try:
        shape = model_work(read_shape(str(loaded.folder)))
        token, head = shape.flops, shape.head
    except (HeadwayError, OSError):  # another executor's model, of a family ours cannot read
        pass
    return DeviceWork(
        plan.weights,
        plan.per_block,
        plan.num_blocks,
        token,
        head,
        float(ceilings.get("read", 0.0)),
        float(ceilings.get("products", 0.0)),
    )
