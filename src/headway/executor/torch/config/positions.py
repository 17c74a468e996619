"""How a layer's queries see their past: how far, and how they tell positions apart.

Rotary embedding: Su et al. 2021. Scaling by linear interpolation: Chen et al. 2023; by
wavelength: Llama 3.1; YaRN: Peng et al. 2023; LongRoPE: Ding et al. 2024. Sliding window: Mistral
7B, 2023; local and global layers in turns: Gemma 2, 2024; layers without positions: SmolLM3.
"""

import math
from dataclasses import dataclass, field

from headway.errors import CheckpointError
from headway.executor.torch.config.config_reader import Keys
from headway.executor.torch.config.families import Family

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class Even:
    """Every angle divided by the factor; 1: plain rope."""

    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Llama3:
    """By wavelength: long ones are stretched, short ones are left alone."""

    factor: float
    low: float  # wavelengths above original / low are stretched by the factor
    high: float  # those below original / high are left alone
    original: int  # context it was trained with before the stretching


@dataclass(frozen=True, slots=True)
class Yarn:
    """By dimension, from those that turn often in the original context to those that do not."""

    factor: float
    original: int
    fast: float = 32.0  # turns from which on a dimension is left alone
    slow: float = 1.0  # turns up to which it is stretched by the whole factor
    rounded: bool = True  # the two dimensions are whole numbers


@dataclass(frozen=True, slots=True)
class Each:
    """LongRoPE: every pair of dimensions has its own factor, found by search."""

    factors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding."""

    theta: float
    stretch: Even | Llama3 | Yarn | Each = field(default_factory=Even)
    share: float = 1.0  # of a head's dimensions, the first ones, that are turned
    scale: float = 1.0  # of cosines and sines, so of q and k alike


@dataclass(frozen=True, slots=True)
class Sight:
    """What one layer's queries see."""

    rope: Rope | None  # None: the layer knows no positions
    window: int = 0  # so many positions, their own included; 0: all of the past


def read_sights(keys: Keys, family: Family, layers: int) -> tuple[tuple[Sight, ...], int]:
    """By layer, and the context: positions that the model can be asked for."""
    context = keys.count("max_position_embeddings")
    windows = _windows(keys, family, layers, context)
    plain, local = _ropes(keys, family)
    turned = _turned(keys, family, layers)
    sights = tuple(
        Sight((local if slides else plain) if turns else None, window)
        for (slides, window), turns in zip(windows, turned, strict=True)
    )
    return sights, _context(keys, plain, context)


def _context(keys: Keys, rope: Rope, context: int) -> int:
    """YaRN's configs often keep the length from before the stretching; LongRoPE's say the new.

    LongRoPE has two sets of factors and changes to the longer one, for all positions, when a
    sequence grows beyond the original context. Keys that were kept would be wrong from then on,
    so only the original context is offered, where transformers' answers are ours.
    """
    if isinstance(rope.stretch, Yarn) and "original_max_position_embeddings" in _asked(keys):
        return max(context, int(rope.stretch.factor * rope.stretch.original))
    if isinstance(rope.stretch, Each):
        return min(context, _stretched(keys, _asked(keys))[0])
    return context


def _windows(keys: Keys, family: Family, layers: int, context: int) -> list[tuple[bool, int]]:
    """By layer: whether it is one of the sliding kind, and its window."""
    size = keys.raw.get("sliding_window", family.window or None)
    if family.switched and not keys.flag("use_sliding_window"):
        size = None
    if size is not None:
        size = Keys({"sliding_window": size}, keys.where).count("sliding_window")
    kinds = _kinds(keys, family, layers, bool(size))
    if family.windows == "none" and size and size < context:
        keys.refuse(f"sliding_window = {size} is not supported")
    if size is None and family.windows == "some" and SLIDING in kinds:
        raise CheckpointError(f"{keys.where}: layer_types has {SLIDING} and there is no window")
    # A window that holds the whole context masks nothing.
    shown = size if size and size < context else 0
    return [(kind == SLIDING, shown if kind == SLIDING else 0) for kind in kinds]


def _kinds(keys: Keys, family: Family, layers: int, sized: bool) -> list[str]:
    """The kind of each layer, named or by the family's pattern."""
    named = keys.items("layer_types")
    if odd := sorted({str(each) for each in named} - {FULL, SLIDING}):
        keys.refuse(f"layer_types {', '.join(odd)} not supported, only {FULL} and {SLIDING}")
        return [FULL] * layers
    if named and len(named) < layers:
        raise keys.wrong("layer_types", f"must name all {layers} layers", named)
    if family.windows != "some":
        if SLIDING in named and family.windows == "none":
            keys.refuse(f"layer_types {SLIDING} is not supported in this family")
        return [SLIDING if family.windows == "all" and sized else FULL] * layers
    if named:
        return named[:layers]
    if pattern := family.pattern:
        pattern = keys.count("sliding_window_pattern", pattern)
        return [SLIDING if (i + 1) % pattern else FULL for i in range(layers)]
    if "no_rope_layers" in family.obeys:  # SmolLM3
        turned = _turned(keys, family, layers)
        return [SLIDING if sized and not each else FULL for each in turned]
    first = keys.count("max_window_layers", 28) if sized else layers
    return [SLIDING if i >= first else FULL for i in range(layers)]


def _turned(keys: Keys, family: Family, layers: int) -> list[bool]:
    """Which layers have rope: all, unless no_rope_layers (1: it has one!) says otherwise."""
    if "no_rope_layers" not in family.obeys:
        return [True] * layers
    if "no_rope_layers" in keys:
        named = keys.items("no_rope_layers")
        if len(named) < layers:
            raise keys.wrong("no_rope_layers", f"must name all {layers} layers", named)
        return [bool(each) for each in named[:layers]]
    every = keys.count("no_rope_layer_interval", 4)
    return [bool((i + 1) % every) for i in range(layers)]


def _asked(keys: Keys) -> Keys:
    """transformers 4 writes rope_theta and rope_scaling, transformers 5 one rope_parameters."""
    return keys.within("rope_scaling").joined(keys.within("rope_parameters"))


def _ropes(keys: Keys, family: Family) -> tuple[Rope, Rope]:
    """Of the layers that see everything and of those with a window."""
    asked = _asked(keys)
    theta = keys.number("rope_theta", family.theta)
    nested = {key for key, value in asked.raw.items() if isinstance(value, dict)}
    if not nested:
        plain = _rope(keys, asked, theta, family)
        if not family.local_theta:
            return plain, plain
        return plain, Rope(keys.number("rope_local_base_freq", family.local_theta))
    if odd := nested - {FULL, SLIDING} if family.windows == "some" else nested:
        keys.refuse(f"rope_parameters with {min(odd)} of its own are not supported")
        return Rope(theta), Rope(theta)
    local = family.local_theta or theta
    return (
        _rope(keys, asked.within(FULL), theta, family),
        _rope(keys, asked.within(SLIDING), local, family),
    )


def _rope(keys: Keys, asked: Keys, theta: float, family: Family) -> Rope:
    kind = asked.get("rope_type", asked.get("type", "default"))
    theta = asked.number("rope_theta", theta)
    share = asked.number("partial_rotary_factor", keys.get("partial_rotary_factor", 1.0))
    if share != 1 and "partial_rotary_factor" not in family.obeys:
        keys.refuse(f"partial_rotary_factor = {share} is not supported")
    if kind == "yarn" and family.model_type == "phi3":
        kind = "longrope"  # the name that Phi-3's first checkpoints gave it
    match kind:
        case "default" | "dynamic":
            # Dynamic scaling changes nothing up to max_position_embeddings, and no sequence
            # goes further here: its growing base would give every token's kept key a new angle.
            return Rope(theta, Even(), share)
        case "linear":
            return Rope(theta, Even(asked.number("factor")), share)
        case "llama3":
            low, high = asked.number("low_freq_factor"), asked.number("high_freq_factor")
            original = asked.count("original_max_position_embeddings")
            return Rope(theta, Llama3(asked.number("factor"), low, high, original), share)
        case "yarn":
            return _yarn(keys, asked, theta, share)
        case "longrope" | "su":
            return _longrope(keys, asked, theta, share)
    keys.refuse(
        f"rope type {kind!r} is not supported, only default, linear, dynamic, llama3, yarn "
        "and longrope"
    )
    return Rope(theta)


def _stretched(keys: Keys, asked: Keys) -> tuple[int, float]:
    """The original context, and by how much it was stretched. Phi-3's, outside, comes first."""
    context = keys.count("max_position_embeddings")
    inside = asked.count("original_max_position_embeddings", context)
    original = keys.count("original_max_position_embeddings", inside)
    return original, asked.number("factor", context / original)


def _yarn(keys: Keys, asked: Keys, theta: float, share: float) -> Rope:
    original, factor = _stretched(keys, asked)
    scale = _temperature(factor)
    if "mscale" in asked and "mscale_all_dim" in asked:  # DeepSeek's weights of the same idea
        scale = _temperature(factor, asked.number("mscale"))
        scale /= _temperature(factor, asked.number("mscale_all_dim"))
    stretch = Yarn(
        factor,
        original,
        asked.number("beta_fast", 32.0),
        asked.number("beta_slow", 1.0),
        asked.flag("truncate", True),
    )
    return Rope(theta, stretch, share, asked.number("attention_factor", scale))


def _temperature(factor: float, weight: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _longrope(keys: Keys, asked: Keys, theta: float, share: float) -> Rope:
    original, factor = _stretched(keys, asked)
    scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    factors = asked.items("short_factor")
    if not factors or not all(isinstance(each, int | float) and each > 0 for each in factors):
        raise asked.wrong("short_factor", "must be a list of positive numbers", factors)
    stretch = Each(tuple(float(each) for each in factors))
    return Rope(theta, stretch, share, asked.number("attention_factor", scale))
