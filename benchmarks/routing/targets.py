"""Tasks with all their draws, and the two simulated targets that serve them."""

import math
import random
from dataclasses import dataclass

from headway.routing import RouteAnswer, RouteRequest, SimulatedTarget
from headway.routing.targets.simulated import line

REQUESTS = 600
SLOTS = 8  # of a target; its requests share the device
TOKENS = 100.0  # of the mean answer
SMALL, LARGE = (0.02, 0.002), (0.1, 0.010)  # seconds of an answer, and of each token in a slot
LARGE_MEAN = LARGE[0] + TOKENS * LARGE[1]
LARGE_RATE = SLOTS / LARGE_MEAN  # requests a second that the large target can serve


@dataclass(frozen=True, slots=True)
class Task:
    """One request, with all its draws."""

    at: float  # seconds
    tokens: int  # of the small target's and the large one's answer alike
    stall: float  # of the small target's time, where it stalls
    score: float  # mean log-probability of the small target's answer
    small_is_right: bool
    large_is_right: bool
    stretches: tuple[float, ...]  # of the time of each member of an ensemble
    rights: tuple[bool, ...]  # whether each member is right


def tasks_of(seed: int, rate: float, count: int = REQUESTS) -> list[Task]:
    """Poisson arrivals. Answers are of exponential length, 20 tokens at least. The small target is
    right with probability exp(score), the large one with 0.97; members are right in 0.75."""
    draw, at, tasks = random.Random(seed), 0.0, list[Task]()
    for _ in range(count):
        at += draw.expovariate(rate)
        score = -draw.expovariate(2.0)
        tasks.append(
            Task(
                at,
                20 + round(draw.expovariate(1 / (TOKENS - 20))),
                10.0 if draw.random() < 0.1 else 1.0,
                score,
                draw.random() < math.exp(score),
                draw.random() < 0.97,
                tuple([draw.lognormvariate(-0.32, 0.8) for _ in range(5)]),
                tuple([draw.random() < 0.75 for _ in range(5)]),
            )
        )
    return tasks


def tokens(request: RouteRequest) -> int:
    task: Task = request.input
    return task.tokens


def mean_tokens(request: RouteRequest) -> int:
    """The length expected beforehand: the answer's own length is not known yet."""
    return round(TOKENS)


def small(stalls: bool = False) -> SimulatedTarget:
    def takes(request: RouteRequest) -> int:
        task: Task = request.input
        return round((task.stall if stalls else 1) * line(*SMALL, tokens)(request))

    def answer(request: RouteRequest) -> RouteAnswer:
        task: Task = request.input
        return RouteAnswer(task.small_is_right, "", task.score, task.tokens)

    return SimulatedTarget(
        "small",
        takes,
        answer,
        expected=line(*SMALL, mean_tokens),
        slots=SLOTS,
        max_waiting=10_000,
    )


def large() -> SimulatedTarget:
    def answer(request: RouteRequest) -> RouteAnswer:
        task: Task = request.input
        return RouteAnswer(task.large_is_right, "", -0.1, task.tokens)

    return SimulatedTarget(
        "large",
        line(*LARGE, tokens),
        answer,
        expected=line(*LARGE, mean_tokens),
        slots=SLOTS,
        max_waiting=10_000,
    )
