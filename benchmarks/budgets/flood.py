"""What do interactive requests see when offline answers hold every slot?

Long offline answers take all slots; a second later interactive traffic comes at half of the rate
that the machine can bear. The same requests are served without the flood, and the flood without
them. An engine is busy whenever any sequence decodes, so by the clock interactive traffic at half
its capacity already takes all of the time (`flood_interactive_busy`). So the aim for offline goes
by the share of its capacity instead: 0.85 of what the other half gives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from benchmarks.budgets.mixes import MIXES, MS, SECOND, Mix, Place, Source
from benchmarks.budgets.trial import Serve, simulated, token_rate
from benchmarks.budgets.variants import SMALLER, Variant, first_come
from benchmarks.report import Figure
from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import Finish, Request
from headway.costing.request_spec import RequestSpec
from headway.errors import HeadwayError
from headway.figures.capacity import search_capacity
from headway.strategies.registry import by_budgets

HALF = 0.5  # of the capacity, that interactive traffic takes
INTERACTIVE, OFFLINE = "interactive", "offline"
PROMPT, ANSWER = 64, 2_040  # tokens, of offline requests
MORE, SHORT = 1.25, 20.0  # of them for each slot; where a smaller context makes them shorter
SECONDS, BEGIN, CHUNK = 240, SECOND, 1_024  # of interactive traffic; where it begins
SEARCHED, TOLERANCE, MOST = 500, 0.05, 32.0  # of the capacity: requests, share, rate
MIX = replace(
    MIXES["smooth"],
    lanes=(
        Lane(INTERACTIVE, Budget(ttft=SECOND // 2, tpot=50 * MS)),
        Lane(OFFLINE, priority=1),
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    """The rows of one run."""

    requests: Sequence[RequestRow]
    steps: Sequence[StepRow]

    def lane(self, name: str) -> list[RequestRow]:
        return [row for row in self.requests if row.lane == name]

    @property
    def flooded(self) -> int:
        """When the last offline answer ended."""
        return max(row.finished for row in self.lane(OFFLINE))

    def busy(self, until: int) -> float:
        """Share of the interactive time until then in which a step ran."""
        spent = sum(row.nanoseconds for row in self.steps if BEGIN <= row.began < until)
        return spent / (until - BEGIN)


def interactive(recorded: Sequence[Request], rate: float, seconds: float) -> list[Request]:
    """Poisson arrivals with recorded lengths, the same for each rate but for their times."""
    draw, at, asked = Random("flood"), float(BEGIN), list[Request]()
    while (at := at + draw.expovariate(rate) * SECOND) < BEGIN + seconds * SECOND:
        one = recorded[len(asked) % len(recorded)]
        number = len(asked) + 1
        prompt = (number,) * len(one.prompt)
        asked.append(Request(f"i{number}", prompt, one.max_tokens, int(at), INTERACTIVE))
    return asked


def offline(mix: Mix) -> list[Request]:
    """More than there are slots, and as long as the machine's context allows."""
    spec, more = RequestSpec(0, OFFLINE, PROMPT, ANSWER), MORE
    if mix.place:
        spec, more = mix.place.put(spec), SHORT
    return [
        Request(f"o{number}", (10**6 + number,) * spec.prompt, spec.answer, 0, OFFLINE)
        for number in range(round(more * mix.slots))
    ]


def capacity(mix: Mix, recorded: Sequence[Request], ours: Variant) -> float:
    """The interactive requests a second of which 95 % are inside their budget; simulated."""

    def serve(rate: float) -> dict[str, float]:
        rows = simulated(mix, interactive(recorded, rate, SEARCHED / rate), ours).requests
        return {INTERACTIVE: sum(row.good for row in rows) / len(rows)}

    return search_capacity(serve, 4.0, MOST, TOLERANCE).rate


def p95(rows: Sequence[RequestRow]) -> float:
    """Nanoseconds to the first token, nearest rank."""
    waits = sorted(row.ttft for row in rows)
    return waits[-(-len(waits) * 95 // 100) - 1]


def flood(
    window: Source, place: Place | None = None, serve: Serve = simulated, seconds: float = SECONDS
) -> list[Figure]:
    """One step: the median step of the flooded run in which an interactive request is served.

    seconds: of interactive traffic. HeadwayError if the flood takes longer.
    """
    mix = MIX.on(place)
    ours = Variant("budgets", by_budgets(mix.slots))
    plain = first_come(mix.slots, CHUNK // SMALLER if place else CHUNK)

    def ran(requests: Sequence[Request], variant: Variant) -> Run:
        rows = serve(mix, requests, variant)
        return Run(rows.requests, rows.steps)

    recorded = mix.requests(window, 1.0)
    rate = HALF * capacity(mix, recorded, ours)
    some, many = interactive(recorded, rate, seconds), offline(mix)
    both = ran([*many, *some], ours)
    alone, idle = ran(many, ours), ran(some, ours)
    before = ran([*many, *some], plain)
    end = both.flooded
    if end >= BEGIN + seconds * SECOND:
        took = f"{end / SECOND:.0f} s"
        raise HeadwayError(f"the flood took {took}, longer than the interactive traffic beside it")

    def waited(run: Run, until: int = end) -> float:
        return p95([row for row in run.lane(INTERACTIVE) if row.arrived < until]) / MS

    def good(run: Run, until: int = end) -> float:
        rows = [row for row in run.lane(INTERACTIVE) if row.arrived < until]
        return sum(row.good for row in rows) / len(rows)

    step = median(row.nanoseconds for row in both.steps if BEGIN <= row.began < end) / MS
    most = max(0.05 * waited(idle), step)
    rates = [token_rate(run.lane(OFFLINE)) for run in (alone, both)]
    ended = sum(row.finish == Finish.LENGTH for row in both.lane(OFFLINE)) / len(many)
    late = before.flooded
    return [
        Figure("flood_rate", [rate], unit="requests/s"),
        Figure("flood_requests", [sum(each.arrived < end for each in some)]),
        Figure("flood_interactive_busy", [idle.busy(end)]),
        Figure("flood_step", [step], unit="ms"),
        Figure("flood_ttft_p95_without", [waited(idle)], unit="ms"),
        Figure("flood_ttft_p95_with", [waited(both)], unit="ms"),
        Figure(
            "flood_ttft_p95_more", [waited(both) - waited(idle)], most=round(most, 2), unit="ms"
        ),
        Figure("flood_ttft_p95_first_come", [waited(before, late)], unit="ms"),
        Figure("flood_good_without", [good(idle)]),
        Figure("flood_good_with", [good(both)]),
        Figure("flood_good_first_come", [good(before, late)]),
        Figure("flood_offline_alone", [rates[0]], unit="tokens/s"),
        Figure("flood_offline_with", [rates[1]], unit="tokens/s"),
        Figure("flood_offline_share", [rates[1] / rates[0]], least=0.85 * (1 - HALF)),
        Figure("flood_offline_ended", [ended], least=1.0),
    ]
