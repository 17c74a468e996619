"""read_files: the two JSON files that say how to build a checkpoint's model."""

from collections import Counter
from math import prod
from pathlib import Path

from headway.executor.torch.config.config_reader import Raw, read_json

CONFIG, GENERATION = "config.json", "generation_config.json"
FLOATS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}  # by the files' name of it


def read_files(folder: Path) -> tuple[Raw, Raw]:
    """Read both JSON objects; the second is empty if its file is missing. If config.json names no
    dtype, it is the one of the weights, as in transformers. Raises CheckpointError."""
    raw, path = read_json(folder / CONFIG), folder / GENERATION
    if raw.get("dtype") is None and raw.get("torch_dtype") is None:
        raw = {**raw, "dtype": _stored_dtype(folder)}
    return raw, read_json(path) if path.is_file() else {}


def _stored_dtype(folder: Path) -> str | None:
    """The dtype of most numbers in the first file of weights; None: there is none here, or it
    cannot be read, which loading will say."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    try:
        from safetensors import SafetensorError

        from headway.executor.torch.config.stored_tensors import stored_tensors
    except ModuleNotFoundError:  # without the extra `torch` a config can still be read
        return None
    counts = Counter[str]()
    try:
        for each in stored_tensors(files[0]).values():
            counts[each.dtype] += prod(each.shape)
    except (SafetensorError, OSError):
        return None
    return next((FLOATS[name] for name, _ in counts.most_common() if name in FLOATS), None)
