"""The supported encoders, by the model_type of their config.json."""

from dataclasses import dataclass
from pathlib import Path

from headway.executor.torch.config.config_reader import ConfigReader, Raw, read_json

ABSOLUTE = "absolute"  # position_embedding_type of config.json


@dataclass(frozen=True, slots=True)
class EncoderFamily:
    """How an encoder differs: its positions, token types and heads."""

    after_padding: bool = False  # positions start at the padding's id + 1, not at 0
    typed: bool = False  # the tokens of a second text have a separate type
    positions: str = ABSOLUTE  # a further position_embedding_type that config.json may name
    heads: bool = True  # whether its classification heads, which read one vector, are supported


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
    """Whether a checkpoint's folder holds an encoder. Raises CheckpointError without a config."""
    path = folder / "config.json"
    return ConfigReader(read_json(path), str(path)).text("model_type") in FAMILIES


def is_classifier(raw: Raw) -> bool:
    """Whether a config.json describes a checkpoint with a classification head."""
    named = ConfigReader(raw, "config.json").array("architectures") or [""]
    return str(named[0]).endswith(CLASSIFIER)


def check_positions(raw: Raw, where: str) -> None:
    """Raise CheckpointError if an encoder's config.json has no positions for a text."""
    reader, family = ConfigReader(raw, where), FAMILIES[raw["model_type"]]
    first = 0
    if family.after_padding and "pad_token_id" in raw:  # without the key, transformers' own id
        first = reader.count("pad_token_id", least=0) + 1
    key = "max_position_embeddings"
    if key in reader and reader.count(key) <= first:
        raise reader.error(key, f"leaves no position from {first} on", reader.get(key))


def refusals(raw: Raw) -> list[str]:
    """Why an encoder's config.json is not supported; empty if it is."""
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
