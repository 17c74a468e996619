"""A candidate: settings of a server that `headway tune` tries."""

from collections.abc import Collection
from dataclasses import dataclass, replace

WHOLE_PROMPTS = ("continuous-mixed", "continuous-prefill-first", "continuous-alternate")
BY_SLACK = ("budgets", "slack-steps")
DYNAMIC, LENGTH_CLASSES = "dynamic-lanes", "length-classes"
GROUPS = (DYNAMIC, LENGTH_CLASSES)
WINDOWS = (5, 10, 25, 50)  # percent of the budget
LEASTS = (0, 10, 25, 50)  # percent of the slots
MOSTS = (100, 75, 50, 25)  # percent of the slots
LEAST_CHUNK, MOST_CHUNK = 32, 4_096  # tokens
LEAST_STEP, MOST_STEP = 128, 8_192  # tokens


LaneParts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """Settings of a server. The order of its fields breaks ties between candidates."""

    strategy: str  # as the server's configuration names it, or length-classes
    slots: int
    chunk: int = 0  # prompt tokens per step; 0: the strategy decides
    step_tokens: int = 0  # in addition to one per slot, if no chunk is set; 0: server's default
    window: int = 0  # of groups: percent of the lane's limit, or of the tightest of all lanes
    # For single lanes, in ascending order of their names; default values are left out.
    windows: LaneParts = ()  # percent of the lane's budget, in place of `window`
    least: LaneParts = ()  # percent of the slots that other lanes cannot take
    most: LaneParts = ()  # percent of the slots that the lane may hold at most

    @property
    def is_group(self) -> bool:
        """Whether the strategy forms groups that run to their end."""
        return self.strategy in GROUPS

    @property
    def text(self) -> str:
        """The candidate in words, for progress and tables."""
        parts = [f"{self.strategy}, {self.slots} slots"]
        if self.chunk:
            parts.append(f"chunks of {self.chunk}")
        if self.step_tokens:
            parts.append(f"steps of {self.slots + self.step_tokens}")
        if self.window:
            parts.append(f"windows {self.window} %")
        parts += [f"window of {lane} {part} %" for lane, part in self.windows]
        parts += [f"{lane} at least {part} % of the slots" for lane, part in self.least]
        parts += [f"{lane} at most {part} % of the slots" for lane, part in self.most]
        return ", ".join(parts)


def first_candidates(most_slots: int, context: int, lanes: int) -> list[Candidate]:
    """The coarse grid: every strategy at a few sizes.

    most_slots: the largest batch. lanes: how many there are; with one, priorities change nothing.
    """
    chunked = ["first-come", "shortest-first", "deadline-order", "relegation", "memory-ahead"]
    chunked += ["priority", "filler"] if lanes > 1 else []
    found = list[Candidate]()
    for slots in sizes(most_slots, 4, 3):
        found += [Candidate(n, slots, c) for n in chunked for c in (64, 256, 1_024) if c <= context]
        found += [Candidate(n, slots, step_tokens=t) for n in WHOLE_PROMPTS for t in (512, 2_048)]
        found += [Candidate(n, slots) for n in BY_SLACK]
        found += [Candidate(n, slots, window=w) for n in GROUPS for w in (5, 25)]
    return sorted(found)


def sizes(most: int, ratio: int, count: int) -> list[int]:
    """At most `count` sizes, falling from `most` by factors of `ratio`, none below 1."""
    return [size for k in range(count) if (size := most // ratio**k)]


def neighbours(
    candidate: Candidate, most_slots: int, context: int, times: float = 2.0
) -> list[Candidate]:
    """The candidates one step away in one size, or in the common window of all lanes.

    times: the factor between neighbouring sizes, up and down.
    """
    found = set[Candidate]()
    for slots in _around(candidate.slots, times, 1, most_slots):
        found.add(replace(candidate, slots=slots))
    if candidate.chunk:
        most = min(context, MOST_CHUNK)
        for chunk in _around(candidate.chunk, times, LEAST_CHUNK, most):
            found.add(replace(candidate, chunk=chunk))
    elif not candidate.is_group:
        usual = candidate.step_tokens or 2_048
        for tokens in _around(usual, times, LEAST_STEP, MOST_STEP):
            found.add(replace(candidate, step_tokens=tokens))
    if candidate.window:
        for window in _beside(candidate.window, WINDOWS):
            found.add(replace(candidate, window=window))
    return sorted(found - {candidate})


def lane_neighbours(candidate: Candidate, lanes: Collection[str]) -> list[Candidate]:
    """The candidates one step away in one setting of one lane.

    In dynamic lanes that is the lane's window. Without groups it is the lane's least or most slots.
    """
    found = set[Candidate]()
    for lane in lanes:
        if candidate.strategy == DYNAMIC:
            for part in _stepped(candidate.windows, lane, WINDOWS, candidate.window):
                found.add(replace(candidate, windows=part))
        elif not candidate.is_group:
            for part in _stepped(candidate.least, lane, LEASTS):
                found.add(replace(candidate, least=part))
            for part in _stepped(candidate.most, lane, MOSTS):
                found.add(replace(candidate, most=part))
    return sorted(found - {candidate})


def _stepped(
    parts: LaneParts, lane: str, values: tuple[int, ...], usual: int = -1
) -> list[LaneParts]:
    """The parts with the lane's value one step lower or higher.

    usual: the value that is left out; -1: the first of `values`.
    """
    usual, now = values[0] if usual < 0 else usual, dict(parts)
    found = []
    for value in _beside(now.get(lane, usual), values):
        changed = {**now, lane: value}
        found.append(tuple(sorted(each for each in changed.items() if each[1] != usual)))
    return found


def _around(size: int, times: float, least: int, most: int) -> list[int]:
    return [each for each in (round(size / times), round(size * times)) if least <= each <= most]


def _beside(value: int, values: tuple[int, ...]) -> list[int]:
    at = values.index(value)
    return [values[near] for near in (at - 1, at + 1) if 0 <= near < len(values)]
