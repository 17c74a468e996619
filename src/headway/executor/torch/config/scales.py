"""Constant factors and soft caps of a decoder (Scales), from config.json."""

from dataclasses import dataclass

from headway.executor.torch.config.config_reader import ConfigReader
from headway.executor.torch.config.families import Family


@dataclass(frozen=True, slots=True)
class Scales:
    """Constant factors and soft caps (Gemma 2, Granite). A cap c turns x into c tanh(x / c)."""

    scores: float  # of attention
    scores_cap: float = 0.0  # 0: none
    embedding: float = 1.0
    residual: float = 1.0  # on the outputs of attention and the MLP
    logits: float = 1.0
    logits_cap: float = 0.0


def read_scales(reader: ConfigReader, family: Family, hidden: int, head_dim: int) -> Scales:
    """Read the scales. Granite gives factors; Gemma 2 and 3 give the number whose root divides the
    scores.

    A soft cap that is null is off. For a missing one, the family's default holds.
    """
    score = (
        reader.number("query_pre_attn_scalar", family.query_scalar)
        if family.query_scalar
        else head_dim
    )
    scores = score**-0.5
    if "attention_multiplier" in family.supports:
        scores = reader.number("attention_multiplier", 1.0)
    caps = [
        reader.number(key, default or 1.0) if reader.raw.get(key, default) else 0.0
        for key, default in zip(
            ("attn_logit_softcapping", "final_logit_softcapping"), family.soft_caps, strict=True
        )
    ]
    return Scales(
        scores=scores,
        scores_cap=caps[0],
        embedding=hidden**0.5
        if family.scaled_embedding
        else reader.number("embedding_multiplier", 1.0),
        residual=reader.number("residual_multiplier", 1.0),
        logits=1 / reader.number("logits_scaling", 1.0),
        logits_cap=caps[1],
    )
