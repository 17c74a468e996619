"""An engine's cost file: its prices, and the reasons to doubt them for the steps here."""

from headway.core.cost.step_cost import StepCost
from headway.costing.calibration import Calibration
from headway.costing.machine import cores, processor
from headway.executor.loaded import Loaded


def step_cost(calibration: Calibration | None, name: str, loaded: Loaded) -> StepCost:
    """The cost file's prices; none without a file. name: the model's. Raises SettingError if the
    file is for another model, dtype or device. The device is not checked if the prices come from a
    data sheet."""
    if calibration is None:
        return StepCost()
    calibration.check_model(name, loaded.dtype)
    if not calibration.analytical:
        calibration.check_device(loaded.device)
    return calibration.cost


def cost_warnings(
    calibration: Calibration | None, device: str = "", threads: int = 0, slots: int = 0
) -> tuple[str, ...]:
    """One sentence for each reason to doubt the cost file's prices. threads: the compute threads
    here; compared only on a CPU. slots: of the engine."""
    if calibration is None:
        return ()
    said = [f"the cost file is unreliable: {calibration.doubt}"] if calibration.doubt else []
    if calibration.analytical:
        said.append(
            f"the cost file was computed from the data sheet of {calibration.device}, not measured"
        )
        return tuple(said)
    here: dict[str, str | int] = {"processor": processor(), "cores": cores()}
    there = dict(calibration.machine)
    if device == "cpu":
        here["threads"], there["threads"] = threads, calibration.threads
    other = [
        f"{name} {there[name]} (here {own})"
        for name, own in here.items()
        if there.get(name, own) != own
    ]
    if other:
        said.append(
            f"the cost file was measured elsewhere or otherwise: {', '.join(other)}; "
            "run headway calibrate here"
        )
    if slots > calibration.slots:
        said.append(
            f"the cost file was measured up to {calibration.slots} slots, and the engine has "
            f"{slots}: run headway calibrate --slots {slots}"
        )
    return tuple(said)
