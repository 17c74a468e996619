"""Makes the traces of the example folders, from a seed: the same bytes every time.

    python examples/traces.py [FOLDER]        # default: the folder of this file

Nothing here was recorded. Lengths and rates are made up, and each function says by what idea. Token
counts are those of a large model; `headway tune`, `simulate` and `compare` divide them by 8 unless
--token-scale says otherwise. A prefix block stands for 512 tokens that prompts with the same id
share.
"""

import sys
from collections.abc import Callable, Iterator
from math import log, sqrt
from pathlib import Path
from random import Random

BLOCK = 512  # tokens of a prefix block
Row = tuple[float, int, int, tuple[int, ...]]  # seconds, prompt, answer, prefix blocks


def lognormal(random: Random, mean: float, cv: float, most: int) -> int:
    """Tokens: from 1 to the most."""
    spread = sqrt(log(1 + cv * cv))
    return max(1, min(most, round(random.lognormvariate(log(mean) - spread**2 / 2, spread))))


def poisson(random: Random, rate: float, count: int) -> Iterator[float]:
    """So many moments, in seconds."""
    at = 0.0
    for _ in range(count):
        at += random.expovariate(rate)
        yield at


def completions(random: Random, count: int) -> Iterator[Row]:
    """Developers type in bursts. A prompt begins with the file's surroundings, which its burst
    shares, and ends at the cursor. A completion is a line or two."""
    rows, at, files = list[Row](), 0.0, 0
    while len(rows) < count:
        at += random.expovariate(0.5)
        files, now = files + 1, at
        file = (1_000_000 + 2 * files, 1_000_001 + 2 * files)
        for _ in range(random.randint(2, 10)):
            prompt = 2 * BLOCK + lognormal(random, 500, 0.6, 3_000)
            rows.append((now, prompt, lognormal(random, 24, 0.6, 96), file))
            now += random.uniform(0.3, 1.5)
    yield from sorted(rows)[:count]


def dialogues(random: Random, count: int) -> Iterator[Row]:
    """Questions about code. Each turn's prompt holds the turns before it."""
    rows, at, sessions = list[Row](), 0.0, 0
    while len(rows) < count:
        at += random.expovariate(0.25)
        sessions, now, prompt = sessions + 1, at, 1_600
        for _ in range(random.randint(1, 5)):
            answer = lognormal(random, 250, 0.7, 1_200)
            shared = tuple(1_000 * sessions + part for part in range(prompt // BLOCK))
            rows.append((now, prompt + 120, answer, shared))
            prompt = min(prompt + 120 + answer, 12_000)
            now += random.uniform(15.0, 60.0)
    yield from sorted(rows)[:count]


def indexing(random: Random, count: int) -> Iterator[Row]:
    """Files to describe for a search index, one after the other. Nobody waits for them."""
    for at in poisson(random, 0.4, count):
        yield at, lognormal(random, 3_200, 0.5, 12_000), lognormal(random, 64, 0.3, 200), ()


def support(random: Random, count: int) -> Iterator[Row]:
    """Customers ask. A prompt is 1,024 tokens of instructions, an article that was found (forty of
    them, some asked for often), and the question. Answers are short."""
    popular = [1 / rank for rank in range(1, 41)]
    for at in poisson(random, 3.0, count):
        (article,) = random.choices(range(40), popular)
        shared = (1, 2, *(100 + 10 * article + part for part in range(2 + article % 4)))
        question = lognormal(random, 300, 0.8, 2_000)
        yield at, len(shared) * BLOCK + question, lognormal(random, 90, 0.5, 300), shared


def closed_tickets(random: Random, count: int) -> Iterator[Row]:
    """Conversations that have ended, to be summarised by the next morning."""
    for at in poisson(random, 0.6, count):
        yield at, lognormal(random, 5_000, 0.5, 14_000), lognormal(random, 160, 0.3, 400), ()


def turns(random: Random, count: int) -> Iterator[Row]:
    """Spoken dialogues: every turn carries the persona and the dialogue so far; two sentences come
    back. People pause for some seconds between turns."""
    rows, at, calls = list[Row](), 0.0, 0
    while len(rows) < count:
        at += random.expovariate(0.5)
        calls, now, said = calls + 1, at, 0
        for _ in range(random.randint(3, 12)):
            answer = lognormal(random, 45, 0.5, 160)
            blocks = (1, *(1_000 * calls + part for part in range(said // BLOCK)))
            rows.append((now, BLOCK + said + lognormal(random, 25, 0.6, 120), answer, blocks))
            said += 25 + answer
            now += random.uniform(4.0, 12.0)
    yield from sorted(rows)[:count]


def recordings(random: Random, count: int) -> Iterator[Row]:
    """Transcripts of calls that have ended, to be summarised when there is time."""
    for at in poisson(random, 0.5, count):
        yield at, lognormal(random, 4_000, 0.6, 14_000), lognormal(random, 180, 0.3, 400), ()


def drawn(
    rate: float, prompt: tuple[float, float], answer: tuple[float, float]
) -> Callable[[Random, int], Iterator[Row]]:
    """Poisson arrivals and lognormal lengths, each a mean and a coefficient of variation."""

    def rows(random: Random, count: int) -> Iterator[Row]:
        for at in poisson(random, rate, count):
            yield at, lognormal(random, *prompt, 14_000), lognormal(random, *answer, 2_000), ()

    return rows


TRACES = {
    "code_assistant/completion": (completions, 1_500),
    "code_assistant/chat": (dialogues, 750),
    "code_assistant/indexing": (indexing, 250),
    "support_desk/answers": (support, 2_000),
    "support_desk/summaries": (closed_tickets, 500),
    "voice_agent/turns": (turns, 2_000),
    "voice_agent/summaries": (recordings, 500),
    # as examples/four_endpoints.yaml draws them, at 20 requests a second together
    "four_endpoints/chat": (drawn(5.0, (900, 0.8), (140, 0.8)), 750),
    "four_endpoints/search": (drawn(3.0, (1_600, 0.3), (100, 0.6)), 450),
    "four_endpoints/summaries": (drawn(2.0, (3_700, 0.4), (200, 0.3)), 300),
    "four_endpoints/completion": (drawn(10.0, (390, 0.6), (20, 0.6)), 1_500),
}


def csv(name: str) -> str:
    """One trace, as text."""
    make, count = TRACES[name]
    lines = ["arrival_s,input_tokens,output_tokens,prefix_block_ids"]
    for at, prompt, answer, blocks in make(Random(f"headway examples {name}"), count):
        lines.append(f"{at:.3f},{prompt},{answer},{' '.join(map(str, blocks))}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write them all."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name in TRACES:
        path = folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(csv(name), encoding="utf-8")


if __name__ == "__main__":
    main()
