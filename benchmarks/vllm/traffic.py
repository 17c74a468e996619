"""The recorded requests of both servers, and what `headway bench` saw of them."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import yaml

from headway.core.ledger import RequestRow
from headway.core.request import Finish
from headway.report import report_json
from headway.traffic.trace import Arrival, read_shipped_trace

LANES = {"chat": "azure2023-conv", "code": "azure2023-code"}  # the first is served first
LIMITS = ("ttft", "tpot")
AT_ONCE = 1_000.0  # requests a second: faster than any server here
SECONDS = 60.0  # of the traces, before a rate scales them
DRAIN = 900.0  # seconds behind the last arrival
Budgets = Mapping[str, Mapping[str, float]]  # milliseconds, by lane and limit


@dataclass(frozen=True, slots=True)
class Traffic:
    """So many requests of each lane, with token counts divided by `scale`, in a folder."""

    folder: Path
    each: int
    scale: float
    seed: int

    def write(self, name: str, count: int = 0) -> Path:
        """The lanes file. count: requests of each lane; 0: all. Both lanes take equally long."""
        lanes = {}
        for lane, trace in LANES.items():
            path = self.folder / f"{lane}-{name}.csv"
            arrivals = read_shipped_trace(trace)[: count or self.each]
            path.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *_lines(arrivals)]))
            lanes[lane] = {
                "trace": str(path),
                "token_scale": self.scale,
                "headers": {"x-headway-lane": lane},
            }
        found = self.folder / f"{name}.yaml"
        found.write_text(yaml.safe_dump(lanes))
        return found

    def served(self, url: str, lanes: Path, out: str, *options: str) -> list[RequestRow]:
        """Drive a server with `headway bench`; the rows stay in a folder of this name."""
        folder = self.folder / out
        command = [sys.executable, "-m", "headway", "bench", url, "--lanes", str(lanes)]
        command += ["--seconds", str(SECONDS + 1), "--warm-up", "0", "--drain", str(DRAIN)]
        command += ["--seed", str(self.seed), "--out", str(folder), *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if not (folder / "report.json").is_file():
            raise SystemExit(f"headway bench ended with {done.returncode}:\n{done.stdout[-2000:]}")
        (outcome,) = report_json.read(folder / "report.json").outcomes.values()
        return list(outcome.requests)


def _lines(arrivals: Sequence[Arrival]) -> list[str]:
    first, last = arrivals[0].at, arrivals[-1].at
    return [
        f"{(each.at - first) / (last - first) * SECONDS:.6f},{each.prompt},{each.answer}"
        for each in arrivals
    ]


def span(rows: Sequence[RequestRow]) -> float:
    """Seconds from the first scheduled arrival to the last end."""
    return (max(row.finished for row in rows) - min(row.arrived for row in rows)) / 1e9


def tokens_per_second(rows: Sequence[RequestRow]) -> float:
    """Generated tokens."""
    return sum(row.generated for row in rows if _is_served(row)) / span(rows)


def medians(rows: Sequence[RequestRow]) -> dict[str, dict[str, float]]:
    """Of TTFT and TPOT in milliseconds, by lane."""
    return {
        lane: {
            limit: median(getattr(row, limit) for row in rows if row.lane == lane) / 1e6
            for limit in LIMITS
        }
        for lane in LANES
    }


def inside(rows: Sequence[RequestRow], budgets: Budgets) -> dict[str, int]:
    """Requests that were answered whole inside every limit of their lane, by lane."""
    good = dict.fromkeys(LANES, 0)
    for row in rows:
        limits = budgets[row.lane].items()
        good[row.lane] += _is_served(row) and all(
            getattr(row, limit) / 1e6 <= most for limit, most in limits
        )
    return good


def _is_served(row: RequestRow) -> bool:
    return row.finish in (Finish.LENGTH, Finish.STOP)
