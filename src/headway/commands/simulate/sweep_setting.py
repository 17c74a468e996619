"""What a sweep can turn: the traffic, a setting of the strategies, the memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite

from headway.commands.compare.compare import Asked
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses, Static
from headway.core.policies.policies import Policies
from headway.costing.calibration import Calibration
from headway.errors import SettingError, did_you_mean
from headway.strategies.strategy import Strategy

TRAFFIC = ("rate", "load", "seconds", "token_scale")
POLICY = ("slots", "chunk", "step_tokens", "window")
MEMORY = ("num_blocks",)
UNITS: Mapping[str, str] = {
    "rate": "requests / s",
    "load": "device-seconds / s",
    "seconds": "seconds of arrivals",
    "token_scale": "that token counts are divided by",
    "slots": "slots",
    "chunk": "prompt tokens per step",
    "step_tokens": "tokens per step",
    "window": "ms that the oldest may be held",
    "num_blocks": "KV blocks",
}
WHOLE = ("slots", "chunk", "step_tokens", "num_blocks")
MOST = 200  # values of one sweep


@dataclass(frozen=True, slots=True)
class Sweep:
    """One setting, and the values that it takes in turn."""

    setting: str
    values: tuple[float, ...]  # ascending

    @property
    def unit(self) -> str:
        return UNITS[self.setting]


def parse_sweep(said: str) -> Sweep:
    """`rate=1,2,4`, or `rate=1..20:5` for five values at equal distances."""
    setting, equals, rest = (part.strip() for part in said.partition("="))
    if not equals or not rest:
        raise SettingError(f"a sweep is said as rate=1,2,4 or rate=1..20:5, not {said!r}")
    if setting not in UNITS:
        raise SettingError(f"{setting!r} cannot be swept{did_you_mean(setting, UNITS)}")
    values = (
        _range(setting, rest) if ".." in rest else [_number(setting, e) for e in rest.split(",")]
    )
    if setting in WHOLE:
        if ".." not in rest and any(each != int(each) for each in values):
            raise SettingError(f"{setting} is counted in whole numbers: {rest}")
        values = [float(round(each)) for each in values]
    return Sweep(setting, tuple(sorted(set(values))))


def _range(setting: str, said: str) -> list[float]:
    ends, _, many = said.partition(":")
    low, high = (_number(setting, each) for each in ends.split("..", 1))
    count = int(many) if many.strip().isdecimal() else 0
    if low >= high or not 2 <= count <= MOST:
        raise SettingError(
            f"a range is from..to:count, to above from and 2 to {MOST} values: {setting}={said}"
        )
    return [low + (high - low) * k / (count - 1) for k in range(count)]


def _number(setting: str, said: str) -> float:
    try:
        value = float(said)
    except ValueError:
        raise SettingError(f"{setting}: {said.strip()!r} is not a number") from None
    if not isfinite(value) or value < 0 or (value == 0 and setting != "window"):
        raise SettingError(f"{setting} must be more than 0 and finite, not {said.strip()}")
    return value


# -- turning it


def asked_at(asked: Asked, setting: str, value: float) -> Asked:
    """The wishes with that much traffic; rate and load take each other's place."""
    if setting == "rate":
        return replace(asked, rate=value, load=0.0)
    if setting == "load":
        return replace(asked, load=value, rate=0.0)
    if setting == "seconds":
        return replace(asked, seconds=value)
    return replace(asked, token_scale=value) if setting == "token_scale" else asked


def calibration_at(calibration: Calibration, setting: str, value: float) -> Calibration:
    """The machine with that much memory, or as an engine of more slots would take of it.

    SettingError if a request may not fit into it.
    """
    needed = -(-calibration.context // calibration.block_size)
    if setting == "slots" and value > calibration.slots:
        usable = max(calibration.num_blocks, int(value) * needed)
        return replace(calibration, num_blocks=min(calibration.fit, usable))
    if setting not in MEMORY:
        return calibration
    if value < needed:
        raise SettingError(
            f"{value:g} blocks of {calibration.block_size} tokens do not hold one request of "
            f"{calibration.context}: take {needed} or more"
        )
    return replace(calibration, num_blocks=int(value))


def strategy_at(strategy: Strategy, setting: str, value: float) -> Strategy:
    """The strategy with it; one to which it means nothing, as it is."""
    if setting not in POLICY:
        return strategy
    turned = _with_setting(strategy.policies, setting, value)
    if turned == strategy.policies:
        return strategy
    return replace(strategy, rule=f"{strategy.rule}; {setting} {value:g}", policies=turned)


def applies_to(strategy: Strategy, setting: str) -> bool:
    """Whether the setting means anything to it."""
    if setting == "chunk":
        return isinstance(strategy.policies.chunk, Fixed)
    if setting == "window":
        return _has_one_window(strategy.policies.join)
    return setting != "slots" or isinstance(
        strategy.policies.join, Static | Dynamic | LengthClasses | Continuous
    )


def _with_setting(policies: Policies, setting: str, value: float) -> Policies:
    join, chunk, number = policies.join, policies.chunk, int(value)
    if setting == "step_tokens":
        return replace(policies, step_tokens=number)
    if setting == "window" and _has_one_window(join):
        assert isinstance(join, Dynamic | LengthClasses)
        return replace(policies, join=replace(join, window=round(value * 1e6)))
    if setting == "chunk" and isinstance(chunk, Fixed):
        beside = policies.step_tokens - chunk.size  # room for the decoding, which stays
        room = max(policies.slots, number + max(0, beside))
        return replace(policies, chunk=Fixed(number), step_tokens=room)
    if setting == "slots" and isinstance(join, Continuous):
        prompts = policies.step_tokens - join.size  # room for them, which stays
        return replace(policies, join=Continuous(number), step_tokens=number + max(1, prompts))
    if setting == "slots" and isinstance(join, Static | Dynamic | LengthClasses):
        each = policies.step_tokens // join.size
        return replace(policies, join=replace(join, size=number), step_tokens=number * max(1, each))
    return policies


def _has_one_window(join: Join) -> bool:
    """For all lanes, so that there is one number to turn."""
    return isinstance(join, LengthClasses) or (isinstance(join, Dynamic) and not join.windows)
