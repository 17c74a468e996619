"""What a step asks of the device (DeviceWork): bytes to read and FLOP to compute, as estimated.

They follow from the model's size, not from counters of the device: what a step must at least do.
"""

from dataclasses import dataclass

from headway.core.ledger import StepRow
from headway.costing.calibration import Calibration
from headway.costing.datasheet import model_work, read_shape
from headway.errors import HeadwayError
from headway.executor.loaded import Loaded


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Of one model on one device. Zeros: not known."""

    weights: int = 0  # bytes, which each step reads once
    block: int = 0  # bytes of a KV block
    num_blocks: int = 0
    token: int = 0  # FLOP of a token, in all layers' matrix products
    head: int = 0  # FLOP of a row's logits
    read_peak: float = 0.0  # bytes per second that this device was measured to read
    products_peak: float = 0.0  # FLOP per second that it was measured to compute in this dtype

    def kv_read(self, row: StepRow) -> int:
        """Bytes of keys and values: at most all blocks in use, each once."""
        return self.block * max(0, self.num_blocks - row.free_blocks)

    def flops(self, row: StepRow) -> int:
        """FLOP of a step without those of attention, which grow with the context."""
        return self.token * (row.tokens + row.waste_tokens) + self.head * row.rows


def device_work(loaded: Loaded, calibration: Calibration | None) -> DeviceWork:
    """By the checkpoint's shape, and the ceilings that `headway calibrate --profile` measured."""
    plan = loaded.plan
    ceilings = calibration.about.get("profile", {}).get("ceilings", {}) if calibration else {}
    token = head = 0
    try:
        shape = model_work(read_shape(str(loaded.folder)))
        token, head = shape.flops, shape.head
    except (HeadwayError, OSError):  # a model of an executor that reads other families than ours
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
