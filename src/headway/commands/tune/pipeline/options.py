"""The options of `headway tune --pipeline`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """The command line's options."""

    pipeline: str  # a YAML file, or module:name
    trace: Path | None = None  # its arrivals are offered; None: arrivals are drawn
    processes: int = 0  # of all stages together; 0: as many as the plan has
    requests: int = 400  # workflows per window
    seed: int = 0
    workers: int = 0  # processes that simulate; 0: one per core
    out: Path = Path("tuned-pipeline.yaml")
    json: Path | None = None
