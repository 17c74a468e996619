"""LayerAttention: how far each layer looks back, and its rotary position embedding.

Rotary embedding: Su et al. 2021. Scaling by linear interpolation: Chen et al. 2023; by
wavelength: Llama 3.1; YaRN: Peng et al. 2023; LongRoPE: Ding et al. 2024. Sliding window: Mistral
7B, 2023; alternating local and global layers: Gemma 2, 2024; layers without positions: SmolLM3.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from headway.errors import CheckpointError
from headway.executor.torch.config.config_reader import ConfigReader, shortened
from headway.executor.torch.config.families import Family

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Every angle is divided by the factor; 1: no scaling."""

    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Scaling by wavelength: long ones are stretched, short ones are not."""

    factor: float
    low: float  # wavelengths above original / low are stretched by the factor
    high: float  # wavelengths below original / high are not stretched
    original: float  # the context, in tokens, before the stretching


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """Scaling by dimension: the more a dimension rotates within the original context, the less it
    is stretched."""

    factor: float
    original: float
    fast: float = 32.0  # a dimension with at least this many rotations is not stretched
    slow: float = 1.0  # one with at most this many is stretched by the whole factor
    rounded: bool = True  # round the limits to whole dimensions


@dataclass(frozen=True, slots=True)
class LongRopeScaling:
    """LongRoPE: each pair of dimensions has its own factor, found by search."""

    factors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding."""

    theta: float
    scaling: LinearScaling | Llama3Scaling | YarnScaling | LongRopeScaling = field(
        default_factory=LinearScaling
    )
    rotary_share: float = 1.0  # the share of a head's dimensions that is rotated, from the first
    attention_factor: float = 1.0  # multiplies cosines and sines, and so both q and k


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """The position embedding of one layer, and how far its queries look back."""

    rope: Rope | None  # None: the layer has no position embedding
    window: int = 0  # queries see the latest n positions, their own included; 0: all


def read_layer_attention(
    reader: ConfigReader, family: Family, layers: int
) -> tuple[tuple[LayerAttention, ...], int]:
    """One LayerAttention per layer, and the context: the most positions of a sequence."""
    plain, local = _ropes(reader, family)
    context = _context(reader, family, plain)
    windows = _windows(reader, family, layers, context)
    turned = _rotary_layers(reader, family, layers)
    layer_attention = tuple(
        LayerAttention((local if slides else plain) if turns else None, window)
        for (slides, window), turns in zip(windows, turned, strict=True)
    )
    return layer_attention, context


def _context(reader: ConfigReader, family: Family, rope: Rope) -> int:
    """The most positions of a sequence.

    YaRN's configs often give the length before the stretching, LongRoPE's the length after it.
    When a sequence outgrows the original context, LongRoPE switches to a second set of factors for
    all positions, and the cached keys would be wrong. So only the original context is offered.
    Within it, answers equal those of transformers.
    """
    context = reader.count("max_position_embeddings")
    if isinstance(
        rope.scaling, YarnScaling
    ) and "original_max_position_embeddings" in _rope_section(reader):
        return max(context, int(rope.scaling.factor * rope.scaling.original))
    if isinstance(rope.scaling, LongRopeScaling):
        section = _rope_section(reader)
        return min(context, int(_original_context_and_factor(reader, section, family)[0]))
    return context


def _windows(
    reader: ConfigReader, family: Family, layers: int, context: int
) -> list[tuple[bool, int]]:
    """For each layer: whether its kind is sliding, and its window (0: none)."""
    size = reader.raw.get("sliding_window", family.window or None)
    if family.window_is_opt_in and not reader.flag("use_sliding_window"):
        size = None
    if size is not None:
        size = ConfigReader({"sliding_window": size}, reader.where).count("sliding_window")
    kinds = _kinds(reader, family, layers, bool(size))
    if family.windows == "none" and size and size < context:
        reader.refuse(f"sliding_window = {size} is not supported")
    if size is None and family.windows == "some" and SLIDING in kinds:
        raise CheckpointError(f"{reader.where}: layer_types has {SLIDING} and there is no window")
    # A window of at least the context masks nothing.
    shown = size if size and size < context else 0
    return [(kind == SLIDING, shown if kind == SLIDING else 0) for kind in kinds]


def _kinds(reader: ConfigReader, family: Family, layers: int, sized: bool) -> list[str]:
    """The kind of each layer, as the config names it or from the family's pattern."""
    named = reader.array("layer_types")
    if odd := sorted({str(each) for each in named} - {FULL, SLIDING}):
        reader.refuse(f"layer_types {', '.join(odd)} not supported, only {FULL} and {SLIDING}")
        return [FULL] * layers
    if named and len(named) < layers:
        raise reader.error("layer_types", f"must name all {layers} layers", named)
    if family.windows != "some":
        if SLIDING in named and family.windows == "none":
            reader.refuse(f"layer_types {SLIDING} is not supported in this family")
        return [SLIDING if family.windows == "all" and sized else FULL] * layers
    if named:
        return named[:layers]
    if pattern := family.global_every:
        if family.model_type == "gemma3_text":
            pattern = reader.count("sliding_window_pattern", pattern)
        return [SLIDING if (i + 1) % pattern else FULL for i in range(layers)]
    if "no_rope_layers" in family.supports:  # SmolLM3
        turned = _rotary_layers(reader, family, layers)
        return [SLIDING if sized and not each else FULL for each in turned]
    first = reader.count("max_window_layers", 28, least=0) if sized else layers
    return [SLIDING if i >= first else FULL for i in range(layers)]


def _rotary_layers(reader: ConfigReader, family: Family, layers: int) -> list[bool]:
    """Which layers have rope: all, or those with a 1 in no_rope_layers (despite its name)."""
    if "no_rope_layers" not in family.supports:
        return [True] * layers
    if "no_rope_layers" in reader:
        named = reader.array("no_rope_layers")
        if len(named) < layers:
            raise reader.error("no_rope_layers", f"must name all {layers} layers", named)
        return [bool(each) for each in named[:layers]]
    every = reader.count("no_rope_layer_interval", 4)
    return [bool((i + 1) % every) for i in range(layers)]


def _rope_section(reader: ConfigReader) -> ConfigReader:
    """Rope's settings: rope_scaling of transformers 4, rope_parameters of transformers 5. Where
    both say something else of the same setting, the model is refused."""
    before, now = reader.section("rope_scaling"), reader.section("rope_parameters")
    old, new = _by_new_name(before), _by_new_name(now)
    for key in sorted(old.keys() & new.keys()):
        if old[key] != new[key]:
            reader.refuse(
                f"rope_scaling has {key} = {shortened(old[key])} and rope_parameters has "
                f"{shortened(new[key])}: they must agree, or one of them must go"
            )
    return before.merged_with(now)


def _by_new_name(section: ConfigReader) -> dict[str, Any]:
    """A rope section's settings that are not null, with `type`, the old name, as `rope_type`."""
    known = {key: value for key, value in section.raw.items() if value is not None}
    kind = known.pop("type", None)
    return known if kind is None else {"rope_type": kind, **known}


def _ropes(reader: ConfigReader, family: Family) -> tuple[Rope, Rope]:
    """The rope of layers that attend to everything, and the rope of layers with a window."""
    section = _rope_section(reader)
    theta = reader.number("rope_theta", family.theta)
    local = family.local_theta or theta
    if family.model_type == "gemma3_text":
        local = reader.number("rope_local_base_freq", local)
    nested = {key for key, value in section.raw.items() if isinstance(value, dict)}
    if not nested:
        if family.local_theta and reader.section("rope_parameters").raw:
            reader.refuse(f"rope_parameters without {FULL} and {SLIDING} are not supported")
        plain = _rope(reader, section, theta, family)
        return plain, Rope(local) if family.local_theta else plain
    if odd := nested - {FULL, SLIDING} if family.windows == "some" else nested:
        reader.refuse(f"rope_parameters with {min(odd)} of its own are not supported")
        return Rope(theta), Rope(theta)
    whole = section.section(FULL)
    if family.local_theta:  # as in transformers, rope_scaling is only for these layers
        whole = whole.merged_with(reader.section("rope_scaling"))
    return (
        _rope(reader, whole, theta, family),
        _rope(reader, section.section(SLIDING), local, family),
    )


def _rope(reader: ConfigReader, section: ConfigReader, theta: float, family: Family) -> Rope:
    kind = section.get("rope_type", section.get("type", "default"))
    theta = section.number("rope_theta", theta)
    rotary_share = section.number("partial_rotary_factor", reader.get("partial_rotary_factor", 1.0))
    if rotary_share > 1:
        raise section.error("partial_rotary_factor", "must be at most 1", rotary_share)
    if rotary_share != 1 and "partial_rotary_factor" not in family.supports:
        reader.refuse(f"partial_rotary_factor = {rotary_share} is not supported")
    if kind == "yarn" and family.model_type == "phi3":
        kind = "longrope"  # Phi-3's first checkpoints call it yarn
    match kind:
        case "default" | "dynamic":
            # Dynamic scaling changes nothing up to max_position_embeddings, where sequences end.
            # Beyond it the base would grow, and every cached key would need a new angle.
            return Rope(theta, LinearScaling(), rotary_share)
        case "linear":
            return Rope(theta, LinearScaling(section.number("factor")), rotary_share)
        case "llama3":
            low, high = section.number("low_freq_factor"), section.number("high_freq_factor")
            original, _ = _original_context_and_factor(reader, section, family)
            return Rope(
                theta, Llama3Scaling(section.number("factor"), low, high, original), rotary_share
            )
        case "yarn":
            return _yarn(reader, section, theta, family, rotary_share)
        case "longrope" | "su":
            return _longrope(reader, section, theta, family, rotary_share)
    reader.refuse(
        f"rope type {kind!r} is not supported, only default, linear, dynamic, llama3, yarn "
        "and longrope"
    )
    return Rope(theta)


def _original_context_and_factor(
    reader: ConfigReader, section: ConfigReader, family: Family
) -> tuple[float, float]:
    """The context before the stretching, and the factor. Phi-3 has it at the top level."""
    context = reader.count("max_position_embeddings")
    inside = section.number("original_max_position_embeddings", context)
    default = family.original_context or inside
    original = reader.number("original_max_position_embeddings", default)
    return original, section.number("factor", context / original)


def _yarn(
    reader: ConfigReader, section: ConfigReader, theta: float, family: Family, rotary_share: float
) -> Rope:
    original, factor = _original_context_and_factor(reader, section, family)
    attention_factor = _temperature(factor)
    # DeepSeek's weights for the same idea, if neither is 0.
    if section.get("mscale") and section.get("mscale_all_dim"):
        attention_factor = _temperature(factor, section.number("mscale"))
        attention_factor /= _temperature(factor, section.number("mscale_all_dim"))
    scaling = YarnScaling(
        factor,
        original,
        section.number("beta_fast", 32.0),
        section.number("beta_slow", 1.0),
        section.flag("truncate", True),
    )
    return Rope(theta, scaling, rotary_share, section.number("attention_factor", attention_factor))


def _temperature(factor: float, weight: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _longrope(
    reader: ConfigReader, section: ConfigReader, theta: float, family: Family, rotary_share: float
) -> Rope:
    original, factor = _original_context_and_factor(reader, section, family)
    if original <= 1:
        raise section.error("original_max_position_embeddings", "must be above 1", original)
    attention_factor = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    factors = section.array("short_factor")
    if not factors or not all(isinstance(each, int | float) and each > 0 for each in factors):
        raise section.error("short_factor", "must be a list of positive numbers", factors)
    scaling = LongRopeScaling(tuple(float(each) for each in factors))
    return Rope(theta, scaling, rotary_share, section.number("attention_factor", attention_factor))
