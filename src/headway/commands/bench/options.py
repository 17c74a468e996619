"""The options of `headway bench`."""

from dataclasses import dataclass
from pathlib import Path

PROMPT, ANSWER = "128", "64"  # tokens


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options of the command line."""

    urls: tuple[str, ...]
    models: tuple[str, ...] = ()  # one name, or one per server; empty: the server's only model
    traces: tuple[Path, ...] = ()  # each trace is an endpoint
    lanes: Path | None = None
    poisson: float = 0.0  # requests per second; 0: no such arrivals
    gamma: str = ""  # RATE,CV; empty: no such arrivals
    prompt: str = ""  # tokens of poisson and gamma: one number, or FROM-TO; empty: PROMPT
    answer: str = ""  # the same; empty: ANSWER
    ttft: float = 0.0  # ms, of endpoints without --lanes; 0: no limit
    tpot: float = 0.0
    e2e: float = 0.0
    seconds: float = 60.0  # of traces and arrivals
    rate: float = 0.0  # requests per second of all endpoints; 0: traces go at their own pace
    speed: float = 1.0  # times the traces' own pace
    token_scale: float | None = None  # divides the traces' token counts; None: by 1
    warm_up: float | None = None  # seconds; None: a tenth of the window
    drain: float = 30.0  # seconds after the window
    retries: int = 0
    callers: int = 0  # of a closed loop; 0: open loop
    find_capacity: float = 0.0  # percent of each lane's requests inside its budget; 0: no search
    repeat: int = 1
    seed: int = 0
    chat: bool = False
    text: bool = False  # send text prompts, even if the server would take token ids
    key_env: str = ""  # the environment variable with the API key
    out: Path = Path("headway-bench")
