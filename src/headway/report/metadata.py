"""What every report states of the model, the endpoints and the traffic behind its figures."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from headway.runs.machine_speed import Yardstick
from headway.runs.testbed import Rig
from headway.traffic.endpoint import Endpoint
from headway.traffic.workload import Workload


def of_model(rig: Rig) -> dict[str, Any]:
    return {
        "name": rig.model,
        "dtype": rig.dtype,
        "device": rig.device,
        "context": rig.context,
        "slots": rig.slots,
        "num_blocks": rig.num_blocks,
        "block_size": rig.block_size,
    }


def of_endpoints(
    endpoints: Iterable[Endpoint], work: Workload, yardstick: Yardstick
) -> list[dict[str, Any]]:
    return [
        {
            **asdict(endpoint),
            "offered": work.count(endpoint.name),
            "unloaded_ns": _plain(yardstick.unloaded.get(endpoint.name)),
            "unloaded_shape": _plain(yardstick.shapes.get(endpoint.name)),
        }
        for endpoint in endpoints
    ]


def _plain(value: Any) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
