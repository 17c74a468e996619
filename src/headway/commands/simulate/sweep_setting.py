"""The settings that a sweep can vary: the traffic, the strategies' policies, the memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite

from headway.commands.compare.compare import CompareOptions
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses, Static
from headway.core.policies.policies import Policies
from headway.costing.calibration import Calibration
from headway.errors import SettingError, did_you_mean
from headway.strategies.resized import with_chunk, with_slots
from headway.strategies.strategy import Strategy

TRAFFIC = ("rate", "load", "seconds", "token_scale")
POLICY = ("slots", "chunk", "step_tokens", "window")
MEMORY = ("num_blocks",)
UNITS: Mapping[str, str] = {
    "rate": "requests / s",
    "load": "device-seconds / s",
    "seconds": "seconds of arrivals",
    "token_scale": "divisor of token counts",
    "slots": "slots",
    "chunk": "prompt tokens per step",
    "step_tokens": "tokens per step",
    "window": "ms that the oldest request may be held",
    "num_blocks": "KV blocks",
}
INTEGERS = ("slots", "chunk", "step_tokens", "num_blocks")
MOST_WHOLE = 10_000_000  # the largest value of INTEGERS
MAX_VALUES = 200  # of one range


@dataclass(frozen=True, slots=True)
class Sweep:
    """One setting and the values it takes."""

    setting: str
    values: tuple[float, ...]  # ascending

    @property
    def unit(self) -> str:
        """The unit of the values, in words."""
        return UNITS[self.setting]


def parse_sweep(text: str) -> Sweep:
    """Parse `rate=1,2,4`, or `rate=1..20:5` for five evenly spaced values.

    Raises SettingError for an unknown setting or a value that it cannot take.
    """
    setting, equals, rest = (part.strip() for part in text.partition("="))
    if not equals or not rest:
        raise SettingError(f"a sweep is written as rate=1,2,4 or rate=1..20:5, not {text!r}")
    if setting not in UNITS:
        raise SettingError(f"{setting!r} cannot be swept{did_you_mean(setting, UNITS)}")
    values = (
        _range(setting, rest) if ".." in rest else [_number(setting, e) for e in rest.split(",")]
    )
    if setting in INTEGERS:
        if ".." not in rest and any(each != int(each) for each in values):
            raise SettingError(f"{setting} takes whole numbers, not {rest}")
        values = [float(round(each)) for each in values]
        if max(values) > MOST_WHOLE:
            raise SettingError(f"{setting} must be at most {MOST_WHOLE:,}, not {max(values):g}")
    return Sweep(setting, tuple(sorted(set(values))))


def _range(setting: str, text: str) -> list[float]:
    ends, _, count_text = text.partition(":")
    low, high = (_number(setting, each) for each in ends.split("..", 1))
    count = int(count_text) if count_text.strip().isdecimal() else 0
    if low >= high or not 2 <= count <= MAX_VALUES:
        raise SettingError(
            f"a range is from..to:count, where to is above from and count is 2 to {MAX_VALUES}: "
            f"{setting}={text}"
        )
    return [low + (high - low) * k / (count - 1) for k in range(count)]


def _number(setting: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise SettingError(f"{setting}: {text.strip()!r} is not a number") from None
    if not isfinite(value) or value < 0 or (value == 0 and setting != "window"):
        raise SettingError(f"{setting} must be more than 0 and finite, not {text.strip()}")
    return value


# -- applying a value


def options_at(options: CompareOptions, setting: str, value: float) -> CompareOptions:
    """The options with the traffic that the value sets. A rate replaces a load, and vice versa.

    Settings other than traffic leave the options unchanged.
    """
    if setting == "rate":
        return replace(options, rate=value, load=0.0)
    if setting == "load":
        return replace(options, load=value, rate=0.0)
    if setting == "seconds":
        return replace(options, seconds=value)
    return replace(options, token_scale=value) if setting == "token_scale" else options


def calibration_at(calibration: Calibration, setting: str, value: float) -> Calibration:
    """The calibration with the KV blocks that the value sets.

    More slots than calibrated get as many blocks as they can use, up to the number that fits.
    Raises SettingError if a request of the whole context would not fit into the blocks.
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
            f"{calibration.context}: use {needed} or more"
        )
    return replace(calibration, num_blocks=int(value))


def strategy_at(strategy: Strategy, setting: str, value: float) -> Strategy:
    """The strategy with the setting at that value; unchanged if the setting does not apply."""
    if setting not in POLICY:
        return strategy
    changed = _with_setting(strategy.policies, setting, value)
    if changed == strategy.policies:
        return strategy
    return replace(strategy, rule=f"{strategy.rule}; {setting} {value:g}", policies=changed)


def applies_to(strategy: Strategy, setting: str) -> bool:
    """Whether the strategy has this setting."""
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
        if isinstance(join, Dynamic):
            join = replace(join, lows={})
        return replace(policies, join=replace(join, window=round(value * 1e6)))
    if setting == "chunk" and isinstance(chunk, Fixed):
        return with_chunk(policies, number)
    if setting == "slots" and isinstance(join, Static | Dynamic | LengthClasses | Continuous):
        return with_slots(policies, number)
    return policies


def _has_one_window(join: Join) -> bool:
    """Whether all lanes share one window, so that there is one number to vary."""
    return isinstance(join, LengthClasses) or (isinstance(join, Dynamic) and not join.windows)
