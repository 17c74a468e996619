"""When a refused client should come back: jittered, or all of them come back as one burst."""

import random

LEAST, MOST = 1.0, 80.0  # seconds, before the jitter, which makes at most 120 of them
SPREAD = 1.5


def jittered(seconds: float) -> float:
    """From the time until the line has drained; between 1 and 120 s."""
    return min(max(seconds, LEAST), MOST) * random.uniform(1.0, SPREAD)
