"""Timing of designed batches on the real executor, in rounds of random order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from random import Random
from statistics import median

from headway.commands.calibrate.design import Design
from headway.core.batch import Batch, Begun, Row, Want
from headway.core.cost.features import Features, batch_features
from headway.core.sampling import Sampling
from headway.runs.machine_speed import MULTITHREADED_BELOW, THREAD_TRIALS
from headway.runs.testbed import Testbed

BURST = 6  # the most decode steps in a row; in traffic too, one follows another
ROUNDS = 12  # the most rounds of all designs
LEAST = 1  # the fewest rounds, however long they take
SHORTEST = 0.75  # the smallest share of a design's prompt length in a round
LONGEST = 0.025  # share of the seconds; a slower design and all larger ones are left out


@dataclass(frozen=True, slots=True)
class Sample:
    """A step's features and times in nanoseconds; the medians of several equal steps."""

    features: Features
    nanoseconds: int
    host: int  # of these: the host's part, building inputs and sampling
    weight: float = 1.0  # in a fit


class Trials:
    """Drives a testbed's executor without an engine, until the testbed's next run takes it over."""

    def __init__(self, testbed: Testbed, seed: int) -> None:
        self.testbed, self.random = testbed, Random(f"{seed} stand")
        self._steps, self._sequences = count(1), count(1)
        self._open: tuple[int, ...] = ()
        testbed.executor.hand_over()

    def measure(
        self, designs: Sequence[Design], seconds: float, watch: Callable[[float], object]
    ) -> list[Sample]:
        """A sample per design and round, in as many rounds as the time allows, at least LEAST.

        designs: ascending by size. watch: called with the share of the seconds that is spent.
        """
        clock, began = self.testbed.clock, self.testbed.clock.now()
        chosen, samples = self._warmed(designs, seconds), list[Sample]()
        share = seconds / len(chosen) / 3  # seconds of a design in a round: room for three rounds
        for turn in range(ROUNDS):
            for design in self.random.sample(chosen, len(chosen)):
                spent = (clock.now() - began) / 1e9 / seconds
                if spent > 1 and turn >= LEAST:
                    return samples
                watch(min(1.0, spent))
                varied = design.varied(self.random.uniform(SHORTEST, 1))
                samples.append(self.sample(varied, share))
        return samples

    def _warmed(self, designs: Sequence[Design], seconds: float) -> list[Design]:
        """Run each design once, to choose kernels and touch memory; return the fast enough ones."""
        chosen, longest = list[Design](), round(seconds * LONGEST * 1e9)
        for design in designs:
            began = self.testbed.clock.now()
            self._steady(design)
            if self.testbed.clock.now() - began > longest and chosen:
                break
            chosen.append(design)
        return chosen

    def choose_threads(self, designs: Sequence[Design]) -> int:
        """Set and return the executor's threads: one, or all if all are much faster."""
        counts = self.testbed.thread_choices
        spent = dict.fromkeys(counts, 0)
        for _ in range(THREAD_TRIALS if len(counts) > 1 else 0):
            for number in counts:
                self.testbed.use_threads(number)
                spent[number] += sum(self.sample(design).nanoseconds for design in designs)
        faster = spent[counts[-1]] < MULTITHREADED_BELOW * spent[counts[0]]
        chosen = counts[-1] if faster else counts[0]
        self.testbed.use_threads(chosen)
        return chosen

    def warm_up_sizes(self, tokens: int, seconds: float) -> None:
        """Run a step of every size up to `tokens`, the smallest first, while time lasts."""
        clock, until = self.testbed.clock, self.testbed.clock.now() + seconds * 1e9
        for size in range(2, tokens + 1):
            if clock.now() < until:
                self._steady(Design(prompts=((0, size),)))

    def sample(self, design: Design, seconds: float = inf) -> Sample:
        """Time a design: one step with prompts, or the medians of a burst of decode steps.

        seconds: the time after which the burst ends.
        """
        clock, steady = self.testbed.clock, self._steady(design)
        until, several = clock.now() + seconds * 1e9, [self._step(steady)]
        while not design.prompts and len(several) < BURST and clock.now() < until:
            several.append(self._step(steady))
        return Sample(
            several[0].features,
            round(median(sample.nanoseconds for sample in several)),
            round(median(sample.host for sample in several)),
        )

    def _steady(self, design: Design) -> Batch:
        """The design's batch after its first run, with its rows begun and its size warmed up.

        On a CPU the math library prepares its products for each number of tokens. The first step
        of each size takes milliseconds longer, and a running engine soon has met all sizes.
        """
        begun, rows = self._begin(design)
        ended, self._open = self._open, tuple(each.sequence for each in begun)
        first = Batch(0, rows, begun, ended, design.held, design.width)
        self._step(first)
        rows = tuple(row._replace(blocks=()) for row in rows)
        return replace(first, rows=rows, begun=(), ended=())

    def _step(self, batch: Batch) -> Sample:
        testbed, batch = self.testbed, replace(batch, step=next(self._steps))
        began = testbed.clock.now()
        output = testbed.executor.collect(testbed.executor.submit(batch))
        spent = testbed.clock.now() - began
        return Sample(batch_features(batch, testbed.gathering), spent, output.host)

    def _begin(self, design: Design) -> tuple[tuple[Begun, ...], tuple[Row, ...]]:
        """The rows of a design on scattered blocks, as in a memory that has been in use."""
        size, text = self.testbed.block_size, self.testbed.text
        needs = [-(-length // size) for length in design.lengths]
        taken = iter(self.random.sample(range(1, self.testbed.num_blocks + 1), sum(needs)))
        spans = [(held, 1, Want.LAST) for held in design.decodes]
        want = Want.NOTHING if design.unfinished else Want.LAST
        spans += [(start, length, want) for start, length in design.prompts]
        begun, rows = list[Begun](), list[Row]()
        for (start, length, want), need in zip(spans, needs, strict=True):
            at = self.random.randrange(len(text) - length)
            blocks = tuple(next(taken) for _ in range(need))
            number = next(self._sequences)
            mine = tuple(text[at : at + length])
            known = (
                0,
            ) * start + mine  # the executor may need them; zeros: tokens that were never computed
            begun.append(Begun(number, start + length, Sampling(), known))
            rows.append(Row(number, start, mine, blocks, want))
        return tuple(begun), tuple(rows)
