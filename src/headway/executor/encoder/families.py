"""The encoders that are computed, by the model_type of their config.json."""

from dataclasses import dataclass
from pathlib import Path

from headway.executor.torch.config.config_reader import Raw, read_json

ABSOLUTE = "absolute"  # position_embedding_type of config.json


@dataclass(frozen=True, slots=True)
class EncoderFamily:
    """What transformers' own class would work out from a padded batch."""

    after_padding: bool = False  # positions count from the padding's id + 1, not from 0
    typed: bool = False  # a second text's tokens have a type of their own
    positions: str = ABSOLUTE  # what config.json may call their embeddings besides
    heads: bool = True  # its classification heads are computed: they read one vector of a text


ROBERTA = EncoderFamily(after_padding=True)
FAMILIES = {
    "bert": EncoderFamily(typed=True),
    "electra": EncoderFamily(typed=True),
    "distilbert": EncoderFamily(),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "modernbert": EncoderFamily(),
    "nomic_bert": EncoderFamily(typed=True),
    "gte": EncoderFamily(typed=True, positions="rope"),
    "eurobert": EncoderFamily(heads=False),
}
CLASSIFIER = "ForSequenceClassification"  # how the architecture's name ends


def is_encoder(folder: Path) -> bool:
    """Whether a checkpoint's folder has an encoder. Raises CheckpointError if it has no config."""
    return read_json(folder / "config.json").get("model_type") in FAMILIES


def is_classifier(raw: Raw) -> bool:
    """Whether a config.json is of a checkpoint with a classification head."""
    return str((raw.get("architectures") or [""])[0]).endswith(CLASSIFIER)


def refusals(raw: Raw) -> list[str]:
    """Why an encoder's config.json is not computed; empty: it is."""
    kind, reasons = raw["model_type"], list[str]()
    family = FAMILIES[kind]
    if is_classifier(raw) and not family.heads:
        reasons.append(f"the head of {kind} is not computed")
    if raw.get("is_decoder"):
        reasons.append(f"is_decoder = {raw['is_decoder']} is not supported")
    positions = raw.get("position_embedding_type") or ABSOLUTE
    if positions not in (ABSOLUTE, family.positions):
        reasons.append(f"position_embedding_type = {positions} is not supported")
    return reasons
