"""The labels of a classification head, from config.json."""

from collections import Counter

from headway.errors import CheckpointError
from headway.executor.torch.config.config_reader import ConfigReader, Raw

MOST_LABELS = 100_000  # several times those of the largest heads: more would fill the memory
TWO = {"0": "LABEL_0", "1": "LABEL_1"}  # the default of transformers


def read_labels(raw: Raw, where: str = "config.json") -> tuple[str, ...]:
    """The labels in the order of the head's scores. Raises CheckpointError."""
    names = raw.get("id2label")
    if names is None and (count := ConfigReader(raw, where).count("num_labels", 0, 0, MOST_LABELS)):
        names = {str(i): f"LABEL_{i}" for i in range(count)}
    names = names or TWO
    try:
        labels = [str(names[key]) for key in sorted(names, key=int)]
    except (TypeError, ValueError, AttributeError, LookupError):  # a list has no such names
        raise CheckpointError(f"{where}: id2label makes no sense") from None
    if twice := [label for label, count in Counter(labels).items() if count > 1]:
        raise CheckpointError(f"{where}: id2label has {twice[0]!r} more than once")
    return tuple(labels)
