"""What does the host do per step with 1,024 sequences, besides the model's computing?

Each figure is about a part whose cost once grew with more than it had to:
- deciding a step while 16 requests wait that do not fit and share 65,536 cached tokens, over the
  same step with no request waiting;
- the inputs of a step of 1,024 rows, one of them with a context of 100,000 tokens: its time, the
  bytes allocated meanwhile, and the time over that of a step in which that row is short;
- a step's line in the journal, and the journal line that adds a prompt of 100,000 tokens.
"""

import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from benchmarks.report import Figure, finish, parser
from benchmarks.scheduler_step import CONTEXT, answered, decoding, step
from headway.core.batch import Batch, Begun, Row, Want
from headway.core.commands import Add
from headway.core.request import Request
from headway.core.sampling import Sampling
from headway.executor.grammars.grammar import GrammarCompiler
from headway.executor.torch.attention.gathered import GatheredAttention
from headway.executor.torch.config.model_config import read_config
from headway.executor.torch.inputs import InputsBuilder
from headway.executor.torch.memory.kv_cache import KVCache
from headway.executor.torch.slots import Slots
from headway.journal import journal
from headway.journal.record import Record, digest
from headway.models import EMBEDDED

RUNNING, WAITING, SHARED, LONG = 1_024, 16, 4_096, 100_000
BLOCK, REPEATS = 16, 5
SEED = 0
EOS = frozenset({2})


def timed(work: Callable[[], object], times: int = 5) -> float:
    """Median milliseconds."""
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spans.append(time.perf_counter() - began)
    return median(spans) * 1e3


def deciding(waiting: int) -> float:
    """Milliseconds of a step. The waiting requests share a cached beginning, and none fits."""
    scheduler, draw = decoding(RUNNING, RUNNING + 1), random.Random(SEED)
    shared = tuple(draw.choices(range(50_000), k=SHARED * BLOCK + 1))
    scheduler.apply([Add(Request("first", shared, 1, 0))], 0)
    while "first" in scheduler.roster.by_id:
        batch = scheduler.schedule(0)
        scheduler.commit(batch, answered(batch), 1)
    longest = shared + tuple(draw.choices(range(50_000), k=scheduler.pool.num_free * BLOCK))
    prompts = [longest[: len(longest) - i] for i in range(16)]
    scheduler.apply([Add(Request(f"w{i}", prompts[i % 16], 1, 0)) for i in range(waiting)], 0)
    for _ in range(2):  # names are made once
        batch = scheduler.schedule(0)
        scheduler.commit(batch, answered(batch), 1)
    return step(scheduler)


def building(longest: int) -> tuple[InputsBuilder, Callable[[], object]]:
    """One step's inputs, again and again."""
    config = read_config(EMBEDDED)
    cache = KVCache(config, 1, BLOCK, torch.float32, torch.device("cpu"))  # its cells are not read
    grammars = GrammarCompiler(Path(), config.vocab, EOS)
    slots = Slots(-(-(LONG + BLOCK) // BLOCK), grammars, torch.device("cpu"))
    attention = GatheredAttention(config, cache, slots.tables)
    builder, rows = InputsBuilder(slots, attention, BLOCK, config.vocab), list[Row]()
    for number in range(RUNNING):
        start = longest if number == RUNNING // 2 else CONTEXT + number % 64
        slots.begin(Begun(number, 10, Sampling(stop_tokens=EOS)))
        slots.extend(slots.of[number], tuple(range(1, start // BLOCK + 2)))
        rows.append(Row(number, start, (7,), (), Want.LAST))
    batch = Batch(1, tuple(rows))
    return builder, lambda: builder.build(batch)


def megabytes(work: Callable[[], object]) -> float:
    """Peak memory of the work."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 1e6


def lines() -> tuple[Callable[[], object], Callable[[], object]]:
    """A step's record as the engine makes it, and one that adds a long prompt."""
    rows = tuple([Row(i, CONTEXT, (7,), (), Want.LAST) for i in range(RUNNING)])
    said, prompt = ((50_000,),) * RUNNING, tuple(range(LONG))
    add = Add(Request("a", prompt, 1, 0, sampling=Sampling(stop_tokens=EOS)))

    def record(*commands: Add) -> str:
        kept = Record(9, 10**15, commands, 9, said, {}, 10**7, 10**5, digest(rows))
        return journal.line_of(kept)

    return record, lambda: record(add)


def main() -> int:
    parser(__doc__).parse_args()
    near, far = building(CONTEXT)[1], building(LONG)[1]
    plain, taking = lines()
    figures = dict[str, list[float]]()

    def add(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    for _ in range(REPEATS):  # interleaved, so that a slow moment falls on all alike
        alone, beside = deciding(0), deciding(WAITING)
        add("decide_ms", alone)
        add("decide_waiting_ms", beside)
        add("waiting_ratio", beside / alone)
        short, long = timed(near), timed(far)
        add("inputs_ms", short)
        add("inputs_long_ms", long)
        add("long_ratio", long / short)
        add("inputs_long_mb", megabytes(far))
        add("journal_ms", timed(plain))
        add("journal_prompt_ms", timed(taking))
    return finish("full_house", __doc__ or "", SEED, [Figure(k, v) for k, v in figures.items()])


if __name__ == "__main__":
    sys.exit(main())
