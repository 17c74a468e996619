"""cost.json: a cost model, what it was fitted on, and what it must not be used for."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headway.core.cost import Echo, Rates, Residuals, StepCost
from headway.errors import SettingError

VERSION = 2


@dataclass(frozen=True, slots=True)
class Calibration:
    """One model on one machine: measured there, or worked out from data sheets (`analytical`)."""

    model: str
    dtype: str
    device: str
    machine: Mapping[str, Any]  # processor or accelerator, versions of python and torch
    analytical: bool  # nobody measured it
    cost: StepCost
    kv_bytes: int  # per token of one sequence, all layers
    num_blocks: int  # of KV memory that the machine has room for
    block_size: int  # tokens
    context: int  # tokens that a request may hold
    slots: int  # rows of decoding that it was fitted up to
    threads: int = 1
    price_per_hour: float = 0.0  # of the machine; 0: nobody said
    about: Mapping[str, Any] = field(default_factory=dict)  # errors per regime, workloads, date

    def check_model(self, model: str, dtype: str = "") -> None:
        """SettingError unless it was fitted on this model, and in this dtype if one is named."""
        if model != self.model or (dtype and dtype != self.dtype):
            wanted = f"{model} in {dtype}" if dtype else model
            raise SettingError(
                f"this cost file is of {self.model} in {self.dtype}, not of {wanted}: "
                "run headway calibrate for that one"
            )


def write(calibration: Calibration, path: Path) -> None:
    """Whole or not at all."""
    beside = path.with_suffix(".part")
    plain = {"headway_cost": VERSION, **asdict(calibration)}
    beside.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> Calibration:
    """SettingError, with the remedy, if it is not there or no cost file."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(
            f"the cost file {path.name} cannot be read: {error.strerror}; headway calibrate "
            "makes one"
        ) from error
    except ValueError as error:
        raise SettingError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(plain, dict) or "headway_cost" not in plain:
        raise SettingError(f"{path.name} is not a cost file; headway calibrate makes one")
    if plain.pop("headway_cost") != VERSION:
        raise SettingError(f"{path.name} is of another version of headway: calibrate again")
    try:
        return Calibration(**plain | {"cost": _cost(plain["cost"])})
    except (KeyError, TypeError, ValueError) as error:
        raise SettingError(f"{path.name} is damaged ({error}): calibrate again") from error


def _cost(plain: Mapping[str, Any]) -> StepCost:
    made = {name: Rates(**plain[name]) for name in ("device", "host", "after")}
    memory, compute = (Residuals(tuple(each["quantiles"])) for each in plain["residuals"])
    cost = StepCost(
        pieces=tuple((int(begin), int(slope)) for begin, slope in plain["pieces"]),
        wake=plain["wake"],
        knee=plain["knee"],
        residuals=(memory, compute),
        echoes=tuple(Echo(**each) for each in plain["echoes"]),
        **made,
    )
    numbers = [*asdict(cost.device).values(), *asdict(cost.host).values(), cost.wake, cost.knee]
    numbers += [*asdict(cost.after).values(), *(each for piece in cost.pieces for each in piece)]
    if any(not isinstance(each, int) or each < 0 for each in numbers):
        raise ValueError("a coefficient is not a whole number of picoseconds, 0 or more")
    return cost
