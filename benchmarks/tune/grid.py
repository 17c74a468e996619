"""The exhaustive sweep's configurations: every strategy at every size."""

from headway.commands.tune.candidate import (
    BY_SLACK,
    GROUPS,
    WHOLE_PROMPTS,
    WINDOWS,
    Candidate,
)

SLOTS = (4, 8, 16, 32, 64, 128, 256)
CHUNKS = (32, 64, 128, 256, 512, 1_024)  # tokens
STEPS = (256, 512, 1_024, 2_048, 4_096)  # tokens beside the slots
SHARES = (75, 50)  # percent of the slots, of the laxest lane
CHUNKED = (
    *("first-come", "priority", "shortest-first", "deadline-order"),
    *("relegation", "filler", "memory-ahead"),
)


def grid(laxest: str) -> list[Candidate]:
    """All of them, in the candidates' order. laxest: the lane whose share of slots is varied."""
    found = list[Candidate]()
    for slots in SLOTS:
        found += [Candidate(name, slots, chunk) for name in CHUNKED for chunk in CHUNKS]
        for name in (*WHOLE_PROMPTS, *BY_SLACK):
            found += [Candidate(name, slots, step_tokens=tokens) for tokens in STEPS]
        found += [Candidate(name, slots, window=window) for name in GROUPS for window in WINDOWS]
        found += [Candidate("budgets", slots, most=((laxest, share),)) for share in SHARES]
    return sorted(found)
