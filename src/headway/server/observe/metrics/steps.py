"""Where the engine's time goes, and how full its batches are: the sums of the ledger's steps."""

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
    """Every nanosecond from `begin` on is of one kind:

    step     |----- compute + host -----|                        |----- compute + host ---
    between                             | host | waiting | idle  |
    """

    def __init__(self, lanes: Iterable[str]) -> None:
        lanes = tuple(lanes)
        self._steps = self._wasted = 0
        self._spent = Counter({(kind,): 0 for kind in KINDS})
        self._until = 0  # it is accounted for
        self._runs = self._waits = False  # somebody, since then
        self._tokens = Histogram(TOKENS)
        self._batch = {lane: Histogram(SEQUENCES) for lane in lanes}
        self._padding = Counter({("", kind): 0 for kind in ("padding", "held")})

    def begin(self, now: int) -> None:
        """An engine is ready, and has nothing to do. What was before it is nobody's time."""
        self._until = now
        self._runs = self._waits = False

    def add(self, rows: Iterable[StepRow], load: Load) -> None:
        """load: published behind the last of them, or by a poll that built none."""
        for row in rows:
            self._between(row.began)
            self._spent["compute",] += row.nanoseconds - row.host
            self._spent["host",] += row.host
            self._until = row.began + row.nanoseconds
            self._runs, self._waits = row.running > 0, row.waiting > 0
            self._steps += 1
            self._wasted += row.waste_nanoseconds
            self._tokens.add(row.tokens)
            self._padding["", "padding"] += row.padding_tokens
            self._padding["", "held"] += row.held_tokens
            for name, lane in load.lanes.items():
                self._batch[name].add(lane.batch)
        self._between(load.now)
        self._runs = load.running > 0
        # As the engine sees it: a load counts who is on the way among the waiting.
        self._waits = any(lane.oldest != NEVER for lane in load.lanes.values())

    def _between(self, now: int) -> None:
        if (passed := now - self._until) > 0:
            self._spent[self._kind,] += passed
            self._until = now

    @property
    def _kind(self) -> str:
        if self._runs:
            return "host"
        return "waiting" if self._waits else "idle"

    def collect(
        self, families: Families, wasted: Mapping[tuple[str, str], int], idle_until: int
    ) -> Iterator[Metric]:
        """wasted: tokens by lane and kind, beside padding and held slots. idle_until: now, if
        nothing is there to do; else 0.
        """
        if self._until and self._kind == "idle":
            self._between(idle_until)  # for good: what was once said never falls
        yield families.counter("headway_steps", "Steps of the engine.", {(): self._steps})
        yield families.counter(
            "headway_step_seconds",
            "The engine's time. compute: of steps, the device at work; host: of steps, the device "
            "waiting for decisions, inputs or sampling, and between steps while somebody runs; "
            "waiting: nobody runs and somebody waits, as for a window; idle: nobody is there.",
            seconds(self._spent),
            ("kind",),
        )
        yield families.by_lane(
            "headway_batch_size", "The lane's sequences in the batch, of each step.", self._batch
        )
        yield families.histogram(
            "vllm:iteration_tokens_total", "Tokens that a step has computed.", self._tokens
        )
        yield families.counter(
            "headway_waste_tokens",
            "Tokens computed for nobody. padding, held: slots of an exclusive group, of no lane; "
            "discarded: sampled past an end; recomputed: after a preemption.",
            {**self._padding, **wasted},
            ("lane", "kind"),
        )
        yield families.counter(
            "headway_waste_seconds",
            "Time of steps that went into padding, held slots and sequences that had ended.",
            seconds({(): self._wasted}),
        )
