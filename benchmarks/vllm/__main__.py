"""What does headway's scheduler cost, and what is it worth, on vLLM's own workers?

`headway serve --executor vllm` against `vllm serve`: one machine, one model (Qwen2.5-0.5B's shape,
random weights in --dtype), the same recorded requests, driven by `headway bench`. Two lanes of a
hundred requests each: chat (azure2023-conv) and code (azure2023-code), token counts divided by
SCALE for both servers, so that a run takes minutes on two cores. Both have the same slots, context,
blocks, KV memory and options of vLLM's engine, and neither compiles the model.

`vllm_throughput_ratio`: all requests at once; output tokens a second, headway's over vLLM's, pair
by pair. Both go first come, first served, with the same bound on a step's tokens.

`vllm_goodput_ratio`: the requests arrive as recorded, at 1.2 times the rate that vLLM's server
answers when all come at once. Budgets are fixed before that: five times each lane's p50 of TTFT and
TPOT on vLLM's idle server (no TPOT where most answers have one token). The figure is the requests
inside budget, headway's over vLLM's, where vLLM's setting is the best of one sweep: first come and
either lane first, with max-num-batched-tokens of STEPS, and both orders with callers that hang up
when their first token has not come after 0.5, 0.7 or 0.9 of its budget. The sweep has 13 runs, and
says how long it took. headway goes by budgets, with a cost file that it has measured beforehand. In
every other pair headway is first.

    .venv-vllm/bin/python -m benchmarks.vllm [--check] [--pairs 3] [--part throughput|goodput]

A processor without products in bfloat16 computes them many times slower: give it --dtype float32.
--cost FILE takes a cost file that was measured before.

`--quick` takes a tiny model and few requests: it shows that all of it runs, and its figures say
nothing. Rows, logs and the cost file stay in `.build/vllm` (--out).
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from benchmarks.report import Figure, finish
from benchmarks.vllm import traffic
from benchmarks.vllm.served import HALF_B, QUICK, Servers, calibrate, write_checkpoint
from benchmarks.vllm.sweep import STEPS, Setting, sweep
from benchmarks.vllm.traffic import AT_ONCE, Budgets, Traffic
from headway.core.ledger import RequestRow

SEED, SCALE = 0, 16.0
EACH, ALONE = 100, 12  # requests of each lane: of a run, and of the idle server
DEFAULT = Setting(STEPS[-1])
OVERLOAD, TIMES = 1.2, 5.0  # of the capacity; of the idle server's medians
CALIBRATING = 1_500.0  # seconds: a step of a long prompt takes some


@dataclass(slots=True)
class Bench:
    """Both servers and their requests."""

    servers: Servers
    traffic: Traffic
    pairs: int
    seconds: float  # of calibration
    cost: Path | None = None  # measured before; None: measure
    steps: Sequence[int] = STEPS
    saturated: dict[str, list[float]] = field(default_factory=lambda: {"headway": [], "vllm": []})

    def at_once(self, pair: int, name: str) -> list[RequestRow]:
        """All requests at once."""
        server = self.servers.headway(STEPS[-1], {}) if name == "headway" else self._vllm()
        lanes = self.traffic.write("all")
        with server as url:
            self._warmed(url)
            out = f"at-once-{name}-{pair}"
            return self.traffic.served(url, lanes, out, "--rate", str(AT_ONCE))

    def throughput(self) -> list[float]:
        """Ratios of output tokens a second."""
        ratios = []
        for pair in range(self.pairs):
            found = {}
            for name in ordered(pair):
                rows = self.at_once(pair, name)
                found[name] = traffic.tokens_per_second(rows)
                self.saturated[name].append(found[name])
                say(f"at once, pair {pair}: {name} {found[name]:.1f} tokens/s, {_ends(rows)}")
            ratios.append(found["headway"] / found["vllm"])
        return ratios

    def capacity(self) -> float:
        """Requests a second that vLLM's server answers when all come at once."""
        rows = self.at_once(self.pairs, "vllm")
        return len(rows) / traffic.span(rows)

    def budgets(self) -> Budgets:
        """Of each lane, in milliseconds: from vLLM's idle server."""
        with self._vllm() as url:
            self._warmed(url)
            lanes = self.traffic.write("alone", ALONE)
            rows = self.traffic.served(url, lanes, "alone", "--callers", "1")
        medians = traffic.medians(rows).items()
        return {
            lane: {limit: TIMES * ms for limit, ms in limits.items() if ms}
            for lane, limits in medians
        }

    def goodput(self) -> list[float]:
        """Ratios of the requests inside budget."""
        rate, budgets = OVERLOAD * self.capacity(), self.budgets()
        cost = str(self.cost or calibrate(self.servers, self.seconds))
        say(f"{rate:.3g} requests/s; budgets in ms {json.dumps(budgets)}")
        began, runs = monotonic(), 0

        def inside(setting: Setting) -> int:
            nonlocal runs
            runs += 1
            with self._vllm(setting, budgets) as url:
                return self._inside(url, f"sweep-{setting}", rate, budgets)

        setting = sweep(self.steps, inside)
        say(f"the best of {runs} in {(monotonic() - began) / 60:.0f} min of vLLM: {setting}")
        ratios = []
        for pair in range(self.pairs):
            found = {}
            for name in ordered(pair):
                ours = name == "headway"
                server = (
                    self.servers.headway(0, budgets, cost) if ours else self._vllm(setting, budgets)
                )
                with server as url:
                    found[name] = self._inside(url, f"loaded-{name}-{pair}", rate, budgets)
            ratios.append(found["headway"] / max(1, found["vllm"]))
        return ratios

    def _vllm(
        self, setting: Setting = DEFAULT, budgets: Budgets | None = None
    ) -> AbstractContextManager[str]:
        return self.servers.vllm(setting.step, setting.first, setting.limits(budgets or {}))

    def _warmed(self, url: str) -> None:
        """A few requests before those that count: kernels are chosen at their first use."""
        self.traffic.served(url, self.traffic.write("warm", 4), "warm", "--callers", "2")

    def _inside(self, url: str, out: str, rate: float, budgets: Budgets) -> int:
        self._warmed(url)
        rows = self.traffic.served(url, self.traffic.write("all"), out, "--rate", str(rate))
        good = traffic.inside(rows, budgets)
        say(f"{out}: inside budget {json.dumps(good)} of {len(rows)}, {_ends(rows)}")
        return sum(good.values())


def ordered(pair: int) -> Sequence[str]:
    """Who is first alternates."""
    return ("headway", "vllm") if pair % 2 == 0 else ("vllm", "headway")


def say(text: str) -> None:
    print(text, flush=True)


def _ends(rows: Sequence[RequestRow]) -> str:
    """How they ended, in words."""
    counts = Counter(row.finish.value for row in rows)
    return ", ".join(f"{count} {finish}" for finish, count in sorted(counts.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--part", choices=("throughput", "goodput", "both"), default="both")
    parser.add_argument("--dtype", default="bfloat16", help="of the weights, in both servers")
    parser.add_argument("--cost", type=Path, help="a cost file of this model and machine")
    parser.add_argument("--out", type=Path, default=Path(".build/vllm"))
    given = parser.parse_args()
    if given.cost and given.part == "throughput":
        parser.error("--cost: only the part goodput reads one")
    if given.cost and not given.cost.is_file():
        parser.error(f"--cost: there is no file {given.cost}")
    config = HALF_B | QUICK if given.quick else HALF_B
    folder = (given.out / ("quick" if given.quick else "half-b")).resolve()
    model = write_checkpoint(folder / "model", config)
    each, seconds = (12, 20.0) if given.quick else (EACH, CALIBRATING)
    servers = Servers(folder, model, given.dtype)
    steps = STEPS[-1:] if given.quick else STEPS
    drawn = Traffic(folder, each, SCALE, SEED)
    cost = given.cost and given.cost.resolve()
    bench = Bench(servers, drawn, given.pairs, seconds, cost, steps)
    figures = []
    if given.part != "goodput":
        ratios = bench.throughput()
        figures.append(Figure("vllm_throughput_ratio", ratios, least=0.97))
        for name, found in bench.saturated.items():
            figures.append(Figure(f"{name}_tokens_per_s", found, unit="tokens/s"))
    if given.part != "throughput":
        figures.append(Figure("vllm_goodput_ratio", bench.goodput(), least=1.5))
    if given.quick:
        say("QUICK: a tiny model and few requests. These figures say nothing.")
    return finish("vllm-quick" if given.quick else "vllm", __doc__, SEED, figures)


if __name__ == "__main__":
    raise SystemExit(main())
