"""How well promises are kept, summed over the ledger's rows (Promises)."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.histogram import TIMES, Histogram


class Promises:
    """Counts how far first tokens missed their promises, and whether answers ended as promised."""

    def __init__(self, lanes: Iterable[str]) -> None:
        lanes = tuple(lanes)
        self._errors = {lane: Histogram(TIMES) for lane in lanes}
        self._firsts = Counter({(lane, how): 0 for lane in lanes for how in ("earlier", "later")})
        self._ends = Counter({(lane, how): 0 for lane in lanes for how in ("kept", "broken")})

    def ended(self, row: RequestRow) -> None:
        """Count a request by its row."""
        if (error := row.first_error) != NEVER:
            self._errors[row.lane].add(abs(error))
            self._firsts[row.lane, "later" if error > 0 else "earlier"] += 1
        if row.was_promised:
            self._ends[row.lane, "kept" if row.kept_promise else "broken"] += 1

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families of the promises."""
        yield families.by_lane(
            "headway_first_token_promise_error_seconds",
            "How far first tokens came from the time that was promised, before or after it.",
            self._errors,
        )
        yield families.counter(
            "headway_first_token_promises",
            "First tokens that came earlier or later than promised. Half of them are to be later.",
            self._firsts,
            ("lane", "came"),
        )
        yield families.counter(
            "headway_end_promises",
            "Requests that ended by themselves, by the time that was promised (kept) or after it "
            "(broken). A tenth is to be broken.",
            self._ends,
            ("lane", "outcome"),
        )
