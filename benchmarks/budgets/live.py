"""The flood and a short bursty window, served by the embedded model itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic_ns, sleep

from rich.console import Console

from benchmarks.budgets.flood import flood
from benchmarks.budgets.machine import EmbeddedModel, place
from benchmarks.budgets.mixes import MIXES, SEED, Mix, Source
from benchmarks.budgets.trial import Rows, Score, Serve, score
from benchmarks.budgets.variants import SHARES, Variant, chunks_of, first_come
from benchmarks.report import Figure
from headway.core.request import Request
from headway.costing.machine import Neighbours
from headway.runs.run import Run
from headway.strategies.registry import by_budgets
from headway.traffic.prompts import Prompts

MIX, LOAD = "bursty", 1.5
SECONDS, QUICK = 60.0, 20.0  # of the window, at load 1
FLOODED = 120.0  # seconds of interactive traffic


class Stopwatch:
    """The wall clock from 0 on: a request's times count from the run's beginning."""

    def __init__(self) -> None:
        self._zero = monotonic_ns()

    def now(self) -> int:
        return monotonic_ns() - self._zero

    def advance_to(self, time: int) -> None:
        """Sleep until then."""
        if (left := time - self.now()) > 0:
            sleep(left / 1e9)


@dataclass(frozen=True, slots=True)
class Live:
    """Serves on the loaded model."""

    model: EmbeddedModel

    def serve(self, mix: Mix, requests: Sequence[Request], variant: Variant) -> Rows:
        """To the end. Prompts are cut from a text, as long as those that were asked for."""
        bed = replace(self.model.testbed, cost=self.model.calibration.cost)
        prompts = Prompts(bed.text, bed.block_size, SEED)
        spoken = [
            replace(each, prompt=prompts.draw(each.lane, len(each.prompt))) for each in requests
        ]
        run = Run(replace(bed, clock=Stopwatch()), variant.policies, mix.lanes, spoken)
        return run.serve()


def live(model: EmbeddedModel, window: Source, is_quick: bool, console: Console) -> list[Figure]:
    """The bursty window simulated and served, and the flood served. Common requests in both."""
    neighbours, serve = Neighbours(), Live(model).serve
    short = replace(window, seconds=QUICK if is_quick else SECONDS)
    figures = bursty(short, model, serve, console)
    smooth = place(MIXES["smooth"], window, model.calibration)
    figures += [
        replace(each, name=f"live_{each.name}") for each in flood(window, smooth, serve, FLOODED)
    ]
    return [*figures, Figure("live_cores_of_others", [neighbours.cores()])]


def bursty(window: Source, model: EmbeddedModel, serve: Serve, console: Console) -> list[Figure]:
    """Shares inside budget. First come and its queue timeout have the best simulated settings."""
    mix = MIXES[MIX].on(place(MIXES[MIX], window, model.calibration))
    offered = mix.requests(window, LOAD)

    def best(tried: Sequence[Variant]) -> tuple[Variant, Score]:
        scores = {variant: score(mix, offered, variant) for variant in tried}
        return max(scores.items(), key=lambda each: each[1].share)

    plain = best([first_come(mix.slots, chunk) for chunk in chunks_of(mix)])
    chunk = int(plain[0].name.rsplit(" ", 1)[1])
    impatient = best([first_come(mix.slots, chunk, share) for share in SHARES])
    whole = best([Variant("budgets", by_budgets(mix.slots))])
    figures = [Figure("live_requests", [len(offered)])]
    chosen = {"first_come": plain, "queue_timeout": impatient, "budgets": whole}
    for key, (variant, expected) in chosen.items():
        console.print(f"{MIX} window: {variant.name}")
        found = score(mix, offered, variant, serve)
        figures.append(Figure(f"live_{key}", [found.share]))
        figures.append(Figure(f"live_{key}_simulated", [expected.share]))
    return figures
