"""Where the engine's time goes and how full its batches are, summed over the ledger's step rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import Metric

from headway.core.ledger import StepRow
from headway.core.load import Load
from headway.core.request import NEVER
from headway.server.observe.metrics.families import Families, seconds
from headway.server.observe.metrics.histogram import SEQUENCES, TOKENS, Histogram

KINDS = ("compute", "host", "waiting", "idle")


class Steps:
    """Gives every nanosecond since `begin` one kind:

    step     |----- compute + host -----|                        |----- compute + host ---
    between                             | host | waiting | idle  |
    """

    def __init__(self, lanes: Iterable[str]) -> None:
        lanes = tuple(lanes)
        self._steps = self._wasted = 0
        self._spent = Counter({(kind,): 0 for kind in KINDS})
        self._until = 0  # the time up to here has its kind
        self._runs = self._waits = False  # whether any request runs, or waits, since then
        self._tokens = Histogram(TOKENS)
        self._batch = {lane: Histogram(SEQUENCES) for lane in lanes}
        self._padding = Counter({("", kind): 0 for kind in ("padding", "held")})

    def begin(self, now: int) -> None:
        """An engine is ready and has nothing to do. The time before it has no kind."""
        self._until = now
        self._runs = self._waits = False

    def add(self, rows: Iterable[StepRow], load: Load) -> None:
        """Count the rows. load: published after the last row, or by a poll without a step."""
        for row in rows:
            self._count_until(row.began)
            # A scrape during the step has counted a part of it as waiting, and no counter may fall.
            spent = max(0, row.began + row.nanoseconds - self._until)
            host = min(row.host, spent)
            self._spent["compute",] += spent - host
            self._spent["host",] += host
            self._until = max(self._until, row.began + row.nanoseconds)
            self._runs, self._waits = row.running > 0, row.waiting > 0
            self._steps += 1
            self._wasted += row.waste_nanoseconds
            self._tokens.add(row.tokens)
            self._padding["", "padding"] += row.padding_tokens
            self._padding["", "held"] += row.held_tokens
            for name, lane in load.lanes.items():
                self._batch[name].add(lane.batch)
        self._count_until(load.now)
        self._runs = load.running > 0
        # `waiting` also counts requests that are on their way to the engine; `oldest` does not.
        self._waits = any(lane.oldest != NEVER for lane in load.lanes.values())

    def _count_until(self, now: int) -> None:
        """Count the time since the last step, up to `now`."""
        if (passed := now - self._until) > 0:
            self._spent[self._kind,] += passed
            self._until = now

    @property
    def _kind(self) -> str:
        if self._runs:
            return "host"
        return "waiting" if self._waits else "idle"

    def collect(
        self, families: Families, wasted: Mapping[tuple[str, str], int], now: int, *, busy: bool
    ) -> Iterator[Metric]:
        """The metric families of the steps.

        wasted: tokens by lane and kind, other than padding and held slots. busy: requests wait or
        run, as far as the front knows.
        """
        # The time up to now is kept in the count, because a counter must not fall.
        if self._until and self._kind == ("waiting" if busy else "idle"):
            self._count_until(now)
        yield families.counter("headway_steps", "Steps of the engine.", {(): self._steps})
        yield families.counter(
            "headway_step_seconds",
            "The engine's time. compute: the device works on a step; host: in a step, the device "
            "waits for decisions, inputs or sampling, and the time between steps while requests "
            "run; waiting: none runs and some wait, as for a window; idle: there are none.",
            seconds(self._spent),
            ("kind",),
        )
        yield families.by_lane(
            "headway_batch_size",
            "The lane's sequences in the running batch, per step.",
            self._batch,
        )
        yield families.histogram(
            "vllm:iteration_tokens_total", "Tokens computed per step.", self._tokens
        )
        yield families.counter(
            "headway_waste_tokens",
            "Tokens computed for no answer. padding, held: slots of an exclusive group, without a "
            "lane; discarded: sampled past the end of an answer; recomputed: after a preemption.",
            {**self._padding, **wasted},
            ("lane", "kind"),
        )
        yield families.counter(
            "headway_waste_seconds",
            "Step time spent on padding, held slots and sequences that had ended.",
            seconds({(): self._wasted}),
        )
