"""cost.json: a cost model, the model and machine it belongs to, and how well it fits."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from os.path import realpath
from pathlib import Path
from secrets import token_hex
from typing import Any

from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import WHOLE, Echo, Rates, Residuals, Rounding, StepCost
from headway.costing.machine import NOISY_CORES
from headway.errors import SettingError

VERSION = 8
# The first bytes of a cost file: as it is written, or as an editor formats it.
BEGINNINGS = tuple(b'{%s"headway_cost' % gap for gap in (b"\n ", b"", b"\n  ", b"\n    "))
ERROR_NAMES = ("median", "p90")  # the errors that a cost file states for each regime
CORES_AT_WORK_FOR_OTHERS = (
    "cores_at_work_for_others"  # key of `about`: mean number of cores during the measurement
)
DOUBTFUL = 200  # thousandths: from this error of the steps' median or sum on, the fit is bad


@dataclass(frozen=True, slots=True)
class Calibration:
    """The cost of one model on one machine, measured there or computed (`analytical`)."""

    model: str
    dtype: str
    device: str
    machine: Mapping[str, Any]  # processor or accelerator, versions of python and torch
    analytical: bool  # computed from data sheets, not measured
    cost: StepCost
    kv_bytes: int  # per token of one sequence, all layers
    num_blocks: int  # KV blocks that an engine with these slots takes
    fit: int  # KV blocks that fit into memory beside the weights; may be more than the slots need
    block_size: int  # tokens
    context: int  # tokens that a request may hold
    slots: int  # largest number of decoding rows in the fit
    threads: int = 1
    depth: int = 1  # steps in flight when serving; the steps were measured one by one
    price_per_hour: float = 0.0  # of the machine; 0: not stated
    executor: str = "torch"  # the executor that computed the steps
    about: Mapping[str, Any] = field(default_factory=dict)  # errors per regime, workloads, date

    @property
    def doubt(self) -> str:
        """Why the cost model should not be trusted, in words; empty if it fits well."""
        return doubt(self.about)

    def check_model(self, model: str, dtype: str = "", executor: str = "") -> None:
        """Raise SettingError unless the fit is of this model, and of this dtype and executor if
        they are given. The executor of an analytical one is not checked."""
        if model != self.model or (dtype and dtype != self.dtype):
            wanted = f"{model} in {dtype}" if dtype else model
            raise SettingError(
                f"this cost file is of {self.model} in {self.dtype}, not of {wanted}: "
                "run headway calibrate for that one"
            )
        if executor and executor != self.executor and not self.analytical:
            raise SettingError(
                f"this cost file is of the executor {self.executor}, not of {executor}: "
                f"run headway calibrate --executor {executor}"
            )

    def check_device(self, device: str) -> None:
        """Raise SettingError unless the fit is of this kind of device; its number is ignored."""
        if _kind(device) != _kind(self.device):
            raise SettingError(
                f"this cost file is of a model on {self.device}, and this one runs on {device}: "
                "run headway calibrate here"
            )


def doubt(about: Mapping[str, Any]) -> str:
    """How far the cost model was off on traffic outside the fit; empty if that is acceptable.

    about: what the cost file records about its own fit.
    """
    errors = about.get("errors", {})
    regimes = [errors["all"]] if "all" in errors else list(errors.values())
    median = max((each["median"] for each in regimes), key=abs, default=0)
    total = max((each.get("total", 0) for each in regimes), key=abs, default=0)
    if max(abs(median), abs(total)) < DOUBTFUL:
        return ""
    others = about.get(CORES_AT_WORK_FOR_OTHERS, 0)
    cause = (
        f"; other processes kept {others:.1f} cores busy meanwhile" if others > NOISY_CORES else ""
    )
    return (
        f"in traffic that was kept aside this cost model was off by {median / WHOLE:+.0%} in the "
        f"median step and by {total / WHOLE:+.0%} in all{cause}"
    )


def write_cost_file(calibration: Calibration, path: Path) -> None:
    """Write the whole file or nothing. A symbolic link stays, and its target is written. Raises
    SettingError if the file cannot be written."""
    plain = {"headway_cost": VERSION, **asdict(calibration)}
    _write(path, json.dumps(plain, indent=1) + "\n")


def check_writable(path: Path) -> None:
    """Raise SettingError if write_cost_file could not write here. Called before a long run."""
    _write(path, "", keep=False)


def _write(path: Path, text: str, keep: bool = True) -> None:
    try:
        target = Path(realpath(path))
        if (target.exists() and not target.is_file()) or not target.parent.is_dir():
            raise SettingError(
                f"{path} cannot be written as a file; choose one with --out FILE.json"
            )
        beside = target.with_name(f".headway-{token_hex(8)}.part")
        try:
            with beside.open("x", encoding="utf-8") as file:
                file.write(text)
            if keep:
                beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}") from error


def read_cost_file(path: Path) -> Calibration:
    """Read a cost file. SettingError, with the remedy, if it is missing or damaged."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(
            f"the cost file {path.name} cannot be read: {error.strerror}; headway calibrate "
            "makes one"
        ) from error
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(plain, dict) or "headway_cost" not in plain:
        raise SettingError(f"{path.name} is not a cost file; headway calibrate makes one")
    if plain.pop("headway_cost") != VERSION:
        raise SettingError(f"{path.name} is of another version of headway: calibrate again")
    try:
        calibration = Calibration(**plain | {"cost": _cost(plain["cost"])})
        _check(calibration)
        return calibration
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SettingError(f"{path.name} is damaged ({error}): calibrate again") from error


def _check(calibration: Calibration) -> None:
    """Raise ValueError if a field has a wrong type or value."""
    for name in (
        "kv_bytes",
        "num_blocks",
        "fit",
        "block_size",
        "context",
        "slots",
        "threads",
        "depth",
    ):
        if not _are_whole([getattr(calibration, name)], least=1):
            raise ValueError(
                f"{name} is {getattr(calibration, name)!r}, not a whole number from 1 on"
            )
    if calibration.fit < calibration.num_blocks:
        raise ValueError(
            f"{calibration.num_blocks} blocks are more than the {calibration.fit} that fit"
        )
    price = calibration.price_per_hour
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < inf:
        raise ValueError(f"price_per_hour is {price!r}")
    if not all(
        isinstance(getattr(calibration, name), str)
        for name in ("model", "dtype", "device", "executor")
    ):
        raise ValueError("model, dtype, device and executor are names")
    if not isinstance(calibration.analytical, bool) or not isinstance(calibration.machine, Mapping):
        raise ValueError("analytical is true or false, and machine has facts by name")
    regimes = [calibration.about.get(key, {}) for key in ("errors", "errors_of_designed_alone")]
    numbers = [each[name] for found in regimes for each in found.values() for name in ERROR_NAMES]
    numbers += [each.get("total", 0) for found in regimes for each in found.values()]
    if designed := calibration.about.get("designed"):
        numbers += [designed[name] for name in ("samples", "largest_tokens", "mean_error")]
    if not _are_whole(numbers, least=-inf):
        raise ValueError("what is told about it has numbers that are none")
    _check_ceilings(calibration.about)
    if not isinstance(calibration.about.get(CORES_AT_WORK_FOR_OTHERS, 0.0), int | float):
        raise ValueError(
            f"{CORES_AT_WORK_FOR_OTHERS} is {calibration.about[CORES_AT_WORK_FOR_OTHERS]!r}"
        )


def _check_ceilings(about: Mapping[str, Any]) -> None:
    """Raise ValueError if the ceilings of `headway calibrate --profile` are not numbers."""
    profile = about.get("profile", {})
    ceilings = profile.get("ceilings", {}) if isinstance(profile, dict) else None
    if not isinstance(ceilings, dict) or not all(
        isinstance(each, int | float) and 0 <= each < inf for each in ceilings.values()
    ):
        raise ValueError(f"about.profile has no ceilings: {profile!r}")


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _are_whole(numbers: Iterable[Any], least: float = 0) -> bool:
    return all(type(each) is int and each >= least for each in numbers)


def _cost(plain: Mapping[str, Any]) -> StepCost:
    rates = {name: Rates(**plain[name]) for name in ("device", "host", "after")}
    memory, compute = (Residuals(tuple(each["quantiles"])) for each in plain["residuals"])
    cost = StepCost(
        pieces=tuple((begin, slope) for begin, slope in plain["pieces"]),
        tile=plain["tile"],
        wake=plain["wake"],
        wake_tail=tuple(plain["wake_tail"]),
        cooling=plain["cooling"],
        turn=plain["turn"],
        knee=plain["knee"],
        rounding=Rounding(**plain["rounding"]),
        gathering=Gathering(**plain["gathering"]),
        residuals=(memory, compute),
        echoes=tuple(Echo(**each) for each in plain["echoes"]),
        **rates,
    )
    numbers = [*asdict(cost.device).values(), *asdict(cost.host).values()]
    numbers += [cost.tile, cost.wake, *cost.wake_tail, cost.cooling, cost.turn, cost.knee]
    numbers += [*asdict(cost.after).values(), *(each for piece in cost.pieces for each in piece)]
    if not _are_whole(numbers):
        raise ValueError("a coefficient is not a whole number of picoseconds, 0 or more")
    if not _are_whole(asdict(cost.rounding).values()) or not cost.rounding.tile:
        raise ValueError("tokens are not rounded up to whole numbers")
    if not _are_whole([cost.gathering.at_once]) or not _are_whole([cost.gathering.block], least=1):
        raise ValueError("keys are not gathered in whole blocks")
    begins = [begin for begin, _ in cost.pieces]
    if begins != sorted(begins) or begins[:1] not in ([], [0]):
        raise ValueError("the pieces of the token's price do not ascend from 0")
    drawn = [each.quantiles for each in cost.residuals]
    if not all(each and _are_whole(each) and any(each) for each in drawn):
        raise ValueError("the residuals of a regime are not thousandths, one or more above 0")
    shares = [each.share for each in cost.echoes]
    if not _are_whole([*shares, *(each.lasts for each in cost.echoes)]) or sum(shares) > WHOLE:
        raise ValueError(f"the shares of the echoes are not thousandths, at most {WHOLE:,} in all")
    if not all(each.lasts for each in cost.echoes):
        raise ValueError("an echo lasts for no time")
    return cost
