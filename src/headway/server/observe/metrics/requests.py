"""How requests ended and how long they took, summed over the ledger's rows and the refusals."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from prometheus_client.core import Metric

from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.histogram import TIMES, TOKENS, Histogram, merged

ENDED_BY_ITSELF = frozenset({Finish.STOP, Finish.LENGTH, Finish.COMPUTED})
OUTCOMES = {
    Finish.EXPIRED: "expired",
    Finish.CANCELLED: "cancelled",
    Finish.REFUSED: "refused",
    Finish.UNSATISFIABLE: "unsatisfiable",
    Finish.ERROR: "error",
}
FINISHES = {  # vLLM's names for them
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.COMPUTED: "length",
    Finish.CANCELLED: "abort",
    Finish.EXPIRED: "abort",
    Finish.UNSATISFIABLE: "error",
    Finish.ERROR: "error",
}
FULL, LATE = "lane_full", "deadline_exceeded"
# These start at 0: Prometheus sees no increase in a counter that first appears as 1. Other reasons
# appear when they first occur.
REASONS = (FULL, LATE, "rate_limit_exceeded", "spend_limit_reached", "draining", "engine_down")
# A key is at a limit of its own: this does not say how well the lane is served.
KEY_LIMITS = ("rate_limit_exceeded", "spend_limit_reached")
LEFT = ("client_gone", "cancelled", "superseded")
FAILED = ("engine_down", "engine_error", "draining", "fault")  # by the server, not by the client


def finish_of(reason: str) -> Finish:
    """How a request ended that never reached the engine. reason: the code of its error."""
    if reason == LATE:
        return Finish.EXPIRED
    return Finish.CANCELLED if reason in LEFT else Finish.REFUSED


class Requests:
    """Counts the outcomes of requests, and their times."""

    def __init__(self, lanes: Iterable[str]) -> None:
        lanes = tuple(lanes)
        self._queue, self._tpot, self._e2e = (
            {lane: Histogram(TIMES) for lane in lanes} for _ in range(3)
        )
        self._prefill, self._decode, self._inference = (Histogram(TIMES) for _ in range(3))
        self._prompts, self._answers = Histogram(TOKENS), Histogram(TOKENS)
        self._looked_up = self._cached = 0  # prompt tokens
        self._finished = Counter({(reason,): 0 for reason in FINISHES.values()})
        outcomes = ("good", "late", *OUTCOMES.values())
        self._outcomes = Counter({(lane, outcome): 0 for lane in lanes for outcome in outcomes})
        self._refusals = Counter({(lane, reason): 0 for lane in lanes for reason in REASONS})
        self._left = Counter({(lane, reason): 0 for lane in lanes for reason in LEFT})
        self._relegated = Counter({(lane,): 0 for lane in lanes})
        kinds = ("discarded", "recomputed")
        self.wasted = Counter({(lane, kind): 0 for lane in lanes for kind in kinds})
        # Ids of failed requests whose row may still come. The set stays small: a call fails once,
        # and a failed engine takes no further requests.
        self._failed = set[str]()
        self._leaving: dict[str, tuple[str, Finish]] = {}  # lane and finish by id, until the row

    def no_more_rows(self) -> None:
        """No more rows come from the engine: count the requests that had left without their row."""
        for lane, finish in self._leaving.values():
            self._outcomes[lane, OUTCOMES[finish]] += 1
            if finish in FINISHES:
                self._finished[FINISHES[finish],] += 1
        self._leaving.clear()
        self._failed.clear()

    def refused(self, lane: str, reason: str, count: int) -> None:
        """Count requests that never reached the engine, and so have no row.

        They were refused, or they expired or left while their prompt was tokenized. lane: empty if
        the request was refused before its lane was known.
        """
        self._outcomes[lane, OUTCOMES[finish_of(reason)]] += count
        if reason in LEFT:
            self._left[lane, reason] += count
        else:
            self._refusals[lane, reason] += count

    def abandoned(self, lane: str, reason: str, count: int) -> None:
        """Count requests whose client left before the first token. Their rows still come."""
        if reason in LEFT:
            self._left[lane, reason] += count

    def failed(self, lane: str, ids: Collection[str]) -> None:
        """Count requests that the server failed.

        They are counted here because an engine that died sends no row, and one that lives sends a
        row that says cancelled.
        """
        self._outcomes[lane, "error"] += len(ids)
        self._finished["error",] += len(ids)
        self._failed.update(ids)

    def leaving(self, lane: str, finish: Finish, ids: Iterable[str]) -> None:
        """Note requests of a call that has left. They are counted by their rows, or with this
        finish if no row comes."""
        self._leaving.update(dict.fromkeys(ids, (lane, finish)))

    def ended(self, row: RequestRow) -> None:
        """Count a request by its row."""
        lane, finish = row.lane, row.finish
        self._leaving.pop(row.id, None)
        if row.id in self._failed:
            self._failed.remove(row.id)
            self._count_cost(row)
            return
        self._relegated[lane,] += row.relegated
        in_budget = "good" if row.good else "late"
        self._outcomes[lane, OUTCOMES.get(finish, in_budget)] += 1
        if finish is Finish.REFUSED:  # on arrival in the engine, or in line as it would be late
            self._refusals[lane, FULL] += 1
            self._count_cost(row)
            return
        if finish is Finish.EXPIRED:
            self._refusals[lane, LATE] += 1
        self._finished[FINISHES[finish],] += 1
        self._count_cost(row)
        if finish in ENDED_BY_ITSELF:
            self._count_times(row)

    def _count_cost(self, row: RequestRow) -> None:
        """Count a request's waste, wait and prompt, however it ended."""
        lane = row.lane
        self.wasted[lane, "discarded"] += row.discarded
        self.wasted[lane, "recomputed"] += row.recomputed
        if row.first_scheduled != NEVER:
            self._queue[lane].add(row.queue)
            self._looked_up += row.prompt
            self._cached += row.cached

    def _count_times(self, row: RequestRow) -> None:
        """Count the times of a request that ended by itself.

        Requests that were cut short would make latencies look better than they are.
        """
        first, last = row.first_token, row.last_token
        if first == NEVER:
            first = last = row.finished
        self._e2e[row.lane].add(row.e2e)
        self._prefill.add(first - row.first_scheduled)
        self._decode.add(last - first)
        self._inference.add(last - row.first_scheduled)
        self._prompts.add(row.prompt)
        self._answers.add(row.generated)
        if row.generated > 1:
            self._tpot[row.lane].add(row.tpot)

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families of the requests."""
        yield from self._counts(families)
        yield from self._histograms(families)

    def refusals(self, families: Families) -> Iterator[Metric]:
        """The families that also count requests that never reached an engine."""
        count = families.counter
        yield count(
            "headway_requests",
            "Ended requests by outcome. good: by itself, inside every limit of its lane's budget; "
            "late: by itself, outside a limit. Attainment is good over all.",
            self._outcomes,
            ("lane", "outcome"),
        )
        yield count(
            "headway_refusals",
            "Requests refused with 429 or 503, or with 408 after a missed deadline, by the error's "
            "code. The lane is empty if it was not known yet.",
            self._refusals,
            ("lane", "reason"),
        )
        yield count(
            "headway_abandoned",
            "Requests whose client left, cancelled or superseded them before their first token.",
            self._left,
            ("lane", "reason"),
        )

    def _counts(self, families: Families) -> Iterator[Metric]:
        yield from self.refusals(families)
        count = families.counter
        yield count(
            "vllm:request_success",
            "Ended requests by reason: stop, length, abort (cancelled or too late), error.",
            self._finished,
            ("finished_reason",),
        )
        yield count(
            "headway_relegated",
            "Requests that have ended and were served behind the others, because their first token "
            "could not come within the lane's ttft any more.",
            self._relegated,
            ("lane",),
        )
        cached = {(): self._cached}
        yield count(
            "vllm:prefix_cache_queries",
            "Prompt tokens of ended requests that were looked up in the prefix cache.",
            {(): self._looked_up},
        )
        yield count("vllm:prefix_cache_hits", "Looked-up prompt tokens that were found.", cached)
        yield count("vllm:prompt_tokens_cached", "The same as vllm:prefix_cache_hits.", cached)

    def _histograms(self, families: Families) -> Iterator[Metric]:
        one, by_lane = families.histogram, families.by_lane
        queue, tpot, e2e = self._queue, self._tpot, self._e2e
        for name, vllm, help, lanes in (
            ("queue_wait", "request_queue_time", "Arrival to first scheduled.", queue),
            (
                "tpot",
                "request_time_per_output_token",
                "Mean gap between tokens of requests that ended by themselves.",
                tpot,
            ),
            (
                "e2e",
                "e2e_request_latency",
                "Arrival to end of requests that ended by themselves.",
                e2e,
            ),
        ):
            yield by_lane(f"headway_{name}_seconds", help, lanes)
            yield one(f"vllm:{vllm}_seconds", help, merged(TIMES, lanes.values()))
        for name, help, histogram in (
            ("prefill_time_seconds", "First scheduled to first token.", self._prefill),
            ("decode_time_seconds", "First to last token.", self._decode),
            ("inference_time_seconds", "First scheduled to last token.", self._inference),
            ("prompt_tokens", "Prompt tokens.", self._prompts),
            ("generation_tokens", "Tokens generated.", self._answers),
            (
                "max_num_generation_tokens",
                "The same as vllm:request_generation_tokens.",
                self._answers,
            ),
        ):
            yield one(
                f"vllm:request_{name}", f"{help} Of requests that ended by themselves.", histogram
            )
