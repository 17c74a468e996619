"""What the engines answer: requests of token ids, drawn by a seed.

    single     one stream: a prompt of 32, an answer of 128
    conc8      the lengths of batch32, at most 8 at once
    batch32    32 requests at once: prompts of 64 to 512, answers of 16 to 256
    prefix32   32 requests at once: a prefix of 512 that all share, 16 of their own, answers of 32
    prefix32_warm   the same with further own parts: the prefix was answered a moment ago

No two workloads but the last two share a prefix, so that no prefix cache has what another left.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

VOCAB = 150_000  # ids are drawn below it: special tokens lie above
SINGLE = "single"  # answered in turns, all others in rounds
NAMES = (SINGLE, "conc8", "batch32", "prefix32", "prefix32_warm")
CONTEXT = 1_024


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, and how many tokens its answer has: none ends earlier."""

    prompt: tuple[int, ...]
    answer: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in the order in which they are asked."""

    name: str
    requests: tuple[Request, ...]
    most: int  # outstanding at once

    @property
    def answers(self) -> int:
        """Output tokens."""
        return sum(each.answer for each in self.requests)

    @property
    def shared(self) -> int:
        """Tokens that all prompts begin with, if there are several."""
        first, *others = (each.prompt for each in self.requests)
        same = len(first) if others else 0
        for other in others:
            same = next((i for i in range(same) if first[i] != other[i]), same)
        return same

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(found: Mapping[str, Any]) -> Workload:
    requests = [Request(tuple(each["prompt"]), each["answer"]) for each in found["requests"]]
    return Workload(found["name"], tuple(requests), found["most"])


def draw(seed: int, scale: float = 1.0) -> list[Workload]:
    """All workloads. scale: of the number of tokens of each part, for a quick look."""
    rng = random.Random(seed)

    def few(tokens: int) -> int:
        return max(2, round(tokens * scale))

    def ids(tokens: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCAB) for _ in range(few(tokens)))

    lengths = [(rng.randint(64, 512), few(rng.randint(16, 256))) for _ in range(32)]
    prefix = ids(512)
    parts: Sequence[tuple[str, list[Request], int]] = (
        (SINGLE, [Request(ids(32), few(128))], 1),
        ("conc8", [Request(ids(prompt), answer) for prompt, answer in lengths], 8),
        ("batch32", [Request(ids(prompt), answer) for prompt, answer in lengths], 32),
        ("prefix32", [Request(prefix + ids(16), few(32)) for _ in range(32)], 32),
        ("prefix32_warm", [Request(prefix + ids(16), few(32)) for _ in range(32)], 32),
    )
    return [Workload(name, tuple(requests), most) for name, requests, most in parts]


def warm_up(seed: int) -> Workload:
    """A few requests that no other workload has, answered before anything is measured."""
    rng = random.Random(f"warm-up {seed}")
    prompts = [tuple(rng.randrange(VOCAB) for _ in range(200)) for _ in range(8)]
    return Workload("warm-up", tuple(Request(prompt, 8) for prompt in prompts), 8)
