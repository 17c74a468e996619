"""The device that a model is loaded on (device_of)."""

import torch

from headway.errors import SettingError

KINDS = "cpu", "cuda"  # torch's kinds of devices that the executors compute on


def device_of(name: str) -> torch.device:
    """The device of this torch name; empty: cuda if there is one, else cpu. Raises SettingError."""
    if not name:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingError(f"device {name!r} is not one that torch knows") from None
    if device.type not in KINDS:
        raise SettingError(f"device {name} does not compute here: it is one of {', '.join(KINDS)}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingError(f"device {name} was asked for, and torch finds no CUDA device")
    return device
