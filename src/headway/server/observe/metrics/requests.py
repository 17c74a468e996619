"""What has become of requests, by lane: the sums of the ledger's rows, and of the door's words."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from prometheus_client.core import Metric

from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.histogram import TIMES, TOKENS, Histogram, together

WELL = frozenset({Finish.STOP, Finish.LENGTH, Finish.COMPUTED})  # ended by itself
OUTCOMES = {
    Finish.EXPIRED: "expired",
    Finish.CANCELLED: "cancelled",
    Finish.REFUSED: "refused",
    Finish.ERROR: "error",
}
FINISHES = {  # vLLM's words
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.COMPUTED: "length",
    Finish.CANCELLED: "abort",
    Finish.EXPIRED: "abort",
    Finish.ERROR: "error",
}
FULL, LATE = "lane_full", "deadline_exceeded"
# Said as 0 from the beginning: a counter that first appears as 1 has no rate. Others may come.
REASONS = (FULL, LATE, "rate_limit_exceeded", "draining", "engine_down")
LEFT = ("client_gone", "cancelled", "superseded")
FAILED = ("engine_down", "engine_error", "draining")  # the server's doing, not the client's


class Requests:
    """What has become of requests, and how long they took."""

    def __init__(self, lanes: Iterable[str]) -> None:
        lanes = tuple(lanes)
        self._queue, self._tpot, self._e2e = (
            {lane: Histogram(TIMES) for lane in lanes} for _ in range(3)
        )
        self._prefill, self._decode, self._inference = (Histogram(TIMES) for _ in range(3))
        self._prompts, self._answers = Histogram(TOKENS), Histogram(TOKENS)
        self._looked_up = self._cached = 0  # prompt tokens
        self._finished = Counter({(reason,): 0 for reason in FINISHES.values()})
        words = ("good", "late", *OUTCOMES.values())
        self._outcomes = Counter({(lane, word): 0 for lane in lanes for word in words})
        self._refusals = Counter({(lane, reason): 0 for lane in lanes for reason in REASONS})
        self._left = Counter({(lane, reason): 0 for lane in lanes for reason in LEFT})
        kinds = ("discarded", "recomputed")
        self.wasted = Counter({(lane, kind): 0 for lane in lanes for kind in kinds})
        # Ids whose row is still to come. A call fails once, and nobody comes after a dead engine:
        # no more than were being answered at one time.
        self._failed = set[str]()

    def begin(self) -> None:
        """An engine is ready: no row comes any more of one before it."""
        self._failed.clear()

    def refused(self, lane: str, reason: str, count: int) -> None:
        """At the door, or before it: too late, or left, while its prompt was tokenized. There is no
        row of those. lane: empty where it was not asked yet."""
        outcome = "expired" if reason == LATE else "cancelled" if reason in LEFT else "refused"
        self._outcomes[lane, outcome] += count
        if reason in LEFT:
            self._left[lane, reason] += count
        else:
            self._refusals[lane, reason] += count

    def abandoned(self, lane: str, reason: str, count: int) -> None:
        """Without a token; their rows come too."""
        if reason in LEFT:
            self._left[lane, reason] += count

    def failed(self, lane: str, ids: Collection[str]) -> None:
        """By the server, and so they have ended: of a dead engine no row comes, and a row that
        comes says that they were cancelled."""
        self._outcomes[lane, "error"] += len(ids)
        self._finished["error",] += len(ids)
        self._failed.update(ids)

    def ended(self, row: RequestRow) -> None:
        """Count a request by its row, once the row has come."""
        lane, finish = row.lane, row.finish
        if row.id in self._failed:
            self._failed.remove(row.id)
            self._spent(row)
            return
        well = "good" if row.good else "late"
        self._outcomes[lane, OUTCOMES.get(finish, well)] += 1
        if finish is Finish.REFUSED:
            self._refusals[lane, FULL] += 1
            return
        if finish is Finish.EXPIRED:
            self._refusals[lane, LATE] += 1
        self._finished[FINISHES[finish],] += 1
        self._spent(row)
        if finish in WELL:
            self._timed(row)

    def _spent(self, row: RequestRow) -> None:
        """What it has cost, however it ended."""
        lane = row.lane
        self.wasted[lane, "discarded"] += row.discarded
        self.wasted[lane, "recomputed"] += row.recomputed
        if row.first_scheduled != NEVER:
            self._queue[lane].add(row.queue)
            self._looked_up += row.prompt
            self._cached += row.cached

    def _timed(self, row: RequestRow) -> None:
        """One that has ended by itself: others would make latencies look better than they are."""
        spoke = row.first_token != NEVER
        first, last = (row.first_token, row.last_token) if spoke else (row.finished, row.finished)
        self._e2e[row.lane].add(row.e2e)
        self._prefill.add(first - row.first_scheduled)
        self._decode.add(last - first)
        self._inference.add(last - row.first_scheduled)
        self._prompts.add(row.prompt)
        self._answers.add(row.generated)
        if row.generated > 1:
            self._tpot[row.lane].add(row.tpot)

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families of this part."""
        yield from self._counts(families)
        yield from self._histograms(families)

    def _counts(self, families: Families) -> Iterator[Metric]:
        count = families.counter
        yield count(
            "headway_requests",
            "Requests that have ended, by how; refused ones, too. good: by itself and inside every "
            "limit of its lane's budget; late: by itself, outside. Attainment is good over all.",
            self._outcomes,
            ("lane", "outcome"),
        )
        yield count(
            "headway_refusals",
            "Requests answered with 429 or 503 at the door, and those that have missed a deadline "
            "(408), by the error's code. Without a lane where none was asked yet.",
            self._refusals,
            ("lane", "reason"),
        )
        yield count(
            "headway_abandoned",
            "Requests whose client has left, or cancelled or superseded them, before their first "
            "token.",
            self._left,
            ("lane", "reason"),
        )
        yield count(
            "vllm:request_success",
            "Requests that have ended, by why: stop, length, abort (cancelled or too late), error.",
            self._finished,
            ("finished_reason",),
        )
        cached = {(): self._cached}
        yield count(
            "vllm:prefix_cache_queries",
            "Prompt tokens of ended requests that were looked up in the prefix cache.",
            {(): self._looked_up},
        )
        yield count("vllm:prefix_cache_hits", "Those of them that were found.", cached)
        yield count("vllm:prompt_tokens_cached", "As vllm:prefix_cache_hits.", cached)

    def _histograms(self, families: Families) -> Iterator[Metric]:
        one, by_lane = families.histogram, families.by_lane
        queue, tpot, e2e = self._queue, self._tpot, self._e2e
        yield by_lane("headway_queue_wait_seconds", "Arrival to first scheduled.", queue)
        said = "Mean gap between tokens, of requests that have ended by themselves."
        yield by_lane("headway_tpot_seconds", said, tpot)
        yield one("vllm:request_time_per_output_token_seconds", said, _all(tpot))
        said = "Arrival to end, of requests that have ended by themselves."
        yield by_lane("headway_e2e_seconds", said, e2e)
        yield one("vllm:e2e_request_latency_seconds", said, _all(e2e))
        yield one("vllm:request_queue_time_seconds", "Arrival to first scheduled.", _all(queue))
        for name, what, histogram in (
            ("prefill_time_seconds", "First scheduled to first token.", self._prefill),
            ("decode_time_seconds", "First to last token.", self._decode),
            ("inference_time_seconds", "First scheduled to last token.", self._inference),
            ("prompt_tokens", "Prompt tokens.", self._prompts),
            ("generation_tokens", "Tokens generated.", self._answers),
            ("max_num_generation_tokens", "As vllm:request_generation_tokens.", self._answers),
        ):
            yield one(
                f"vllm:request_{name}", f"{what} Of requests that ended by themselves.", histogram
            )


def _all(lanes: dict[str, Histogram]) -> Histogram:
    return together(TIMES, lanes.values())
