"""The seconds that a refused client is told to wait, with jitter."""

import random

LEAST, MOST = 1.0, 80.0  # seconds before the jitter, which makes them at most 120
SPREAD = 1.5
SOON = 5.0  # seconds to wait for a server that loads its model or is being replaced


def jittered(seconds: float) -> float:
    """The seconds to wait, between 1 and 120. seconds: when a retry may succeed."""
    return min(max(seconds, LEAST), MOST) * random.uniform(1.0, SPREAD)
