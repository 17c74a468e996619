"""The options of `headway tune`."""

from dataclasses import dataclass
from pathlib import Path

from headway.traffic.token_scale import TOKEN_SCALE


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """The command line's options."""

    cost: Path
    model: str | None = None  # a folder or hub id; must be the cost file's
    traces: tuple[Path, ...] = ()
    lanes: Path | None = None
    rate: float = 0.0  # requests per second; 0: search for the highest
    requests: int = 400  # per window
    token_scale: float = TOKEN_SCALE
    seed: int = 0
    workers: int = 0  # processes; 0: one per core
    out: Path = Path("headway.yaml")
    json: Path | None = None
    live: bool = True  # check the recommendation on the live model, if it can be loaded here
