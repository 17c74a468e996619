"""What every report states about the model and the endpoints behind its figures."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from headway.runs.machine_speed import MachineSpeed
from headway.runs.testbed import Testbed
from headway.traffic.endpoint import Endpoint
from headway.traffic.workload import Workload


def of_model(testbed: Testbed) -> dict[str, Any]:
    """The model, its dtype, device and memory, for the JSON of a report."""
    about = {
        "name": testbed.model,
        "dtype": testbed.dtype,
        "device": testbed.device,
        "context": testbed.context,
        "slots": testbed.slots,
        "num_blocks": testbed.num_blocks,
        "block_size": testbed.block_size,
    }
    return about | ({"cost_model": testbed.cost_source} if testbed.cost_source else {})


def of_endpoints(
    endpoints: Iterable[Endpoint], work: Workload, speed: MachineSpeed
) -> list[dict[str, Any]]:
    """Each endpoint with its requests and its unloaded latency, for the JSON of a report."""
    return [
        {
            **asdict(endpoint),
            "offered": work.count(endpoint.name),
            "unloaded_ns": _plain(speed.unloaded.get(endpoint.name)),
            "unloaded_shape": _plain(speed.shapes.get(endpoint.name)),
        }
        for endpoint in endpoints
    ]


def _plain(value: Any) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
